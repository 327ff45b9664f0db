"""Resource claims as the API server keeps them, in memory: versions, merge patches, a watch; and writes that end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from binpack.controller.writer import Outcome
from binpack.dra.desk import Desk
from fleet.dra import ResourceClaim
from fleet.errors import Conflict, Invalid, NotFound
from fleet.kube.decode_claim import claim_from
from fleet.kube.dra_objects import ResourceClaimObject
from fleet.pod import Pod
from tests.support.devices import CLASS, DRIVER
from tests.support.planning import FakeWriter


class Strength:
    """How many writes a process still makes before it is killed; None = as many as it likes."""

    def __init__(self, left: int | None = None) -> None:
        self.left = left
        self.made = 0

    async def spend(self) -> None:
        """Make one more write, or never come back."""
        if self.left is not None and self.made >= self.left:
            await asyncio.get_running_loop().create_future()
        self.made += 1


class ClaimStore:
    """Stands for the client of the API server, as far as claims go.

    Attributes:
        strength: Of the process that writes.
        desks: Who watches; a claim shows at once, unless `is_slow`.
        writes: (name, what was patched) of every write that was taken.
        refuses: Names of claims whose allocation is answered with a conflict, each once.
        always_refuses: Name of one whose allocation always is.
        refused: Names of those that were.
    """

    def __init__(self) -> None:
        self.strength = Strength()
        self.desks: list[Desk] = []
        self.writes: list[tuple[str, str]] = []
        self.refuses: set[str] = set()
        self.always_refuses = ""
        self.refused: list[str] = []
        self._objects: dict[str, dict[str, Any]] = {}
        self._version = 0

    def add(self, name: str, *, count: int = 1, status: Mapping[str, Any] | None = None) -> None:
        """Create a claim for devices of the class of all."""
        requests = [{"name": "dev", "exactly": {"deviceClassName": CLASS, "count": count}}]
        metadata = {"name": name, "namespace": "default", "uid": name}
        self._put({"metadata": metadata, "spec": {"devices": {"requests": requests}}, "status": dict(status or {})})

    def give(self, name: str, node: str, device: str, *pods: str) -> None:
        """Have somebody else allocate a claim."""
        result = {"request": "dev", "driver": DRIVER, "pool": node, "device": device}
        only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [only]}}
        reserved = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
        self._put({**self._objects[name], "status": {"allocation": allocation, "reservedFor": reserved}})

    def remove(self, name: str) -> None:
        """Delete a claim that nothing holds back."""
        del self._objects[name]
        for desk in self.desks:
            desk.remove_claim(name)

    def condemn(self, name: str) -> None:
        """Delete a claim that a finalizer holds back."""
        body = self._objects[name]
        metadata = {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
        self._put({**body, "metadata": metadata})

    def watch(self, desk: Desk) -> None:
        """Show all claims to a desk, and from now on every change."""
        self.desks.append(desk)
        for name in self._objects:
            desk.set_claim(self.claim(name))
        desk.is_synced = True

    def claim(self, name: str) -> ResourceClaim:
        """Return a claim as it is."""
        return claim_from(msgspec.json.decode(json.dumps(self._objects[name]), type=ResourceClaimObject))

    def claims(self) -> list[ResourceClaim]:
        """Return all claims."""
        return [self.claim(name) for name in self._objects]

    def device(self, name: str) -> tuple[str, str] | None:
        """Return node and device of a claim for one device, None = it has none."""
        allocation = self.claim(name).allocation
        return None if allocation is None else (allocation.results[0].pool, allocation.results[0].device)

    # -- what the client does ----------------------------------------------------------------------------------

    async def get(self, path: str) -> bytes:
        return json.dumps(self._found(path)).encode()

    async def merge_patch(self, path: str, body: bytes, **_: Any) -> bytes:
        await self.strength.spend()
        old, patch = self._found(path), json.loads(body)
        name = old["metadata"]["name"]
        for key in ("uid", "resourceVersion"):
            if patch["metadata"][key] != old["metadata"][key]:
                raise Conflict(409, "Conflict", f"{name} has another {key}")
        status = patch.get("status")
        if status is not None and status.get("allocation") is not None:
            if name in self.refuses or name == self.always_refuses:
                self.refuses.discard(name)
                self.refused.append(name)
                raise Conflict(409, "Conflict", f"{name} was written by somebody else")
            if old["status"].get("allocation") is not None:
                raise Invalid(422, "Invalid", f"{name} is allocated")
        merged = {key: value for key, value in (old["status"] | (status or {})).items() if value is not None}
        if merged.get("reservedFor") and not merged.get("allocation"):
            raise Invalid(422, "Invalid", f"{name} is reserved and not allocated")
        self.writes.append((name, "status" if status is not None else "finalizers"))
        new = self._put({**old, "metadata": old["metadata"] | patch["metadata"], "status": merged})
        return json.dumps(new).encode()

    def _found(self, path: str) -> dict[str, Any]:
        name = path.removesuffix("/status").rsplit("/", 1)[-1]
        if name not in self._objects:
            raise NotFound(404, "NotFound", name)
        return self._objects[name]

    def _put(self, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        name = body["metadata"]["name"]
        stored = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        self._objects[name] = stored
        for desk in self.desks:
            desk.set_claim(self.claim(name))
        return stored


class MortalWriter(FakeWriter):
    """A writer of pods whose process may be killed before any of its writes."""

    def __init__(self, clock: Any, strength: Strength, pods: Iterable[Pod] = ()) -> None:
        super().__init__(clock)
        self._strength = strength
        self.pods = {pod.uid: pod for pod in pods}

    async def _call(self, verb: str, pod: Pod, what: Any, changes: dict[str, Any]) -> tuple[Outcome, str]:
        if verb != "say":
            await self._strength.spend()
        return await super()._call(verb, pod, what, changes)


def devices_held(claims: Sequence[ResourceClaim]) -> list[tuple[str, ...]]:
    """Return every device that a claim has, as often as it is had."""
    return [result.id for claim in claims if claim.allocation is not None for result in claim.allocation.results]
