"""Letting go of every pod we gate: the safe way out, with or without a planner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from binpack.controller.writer import Outcome, PodWriter
from fleet import labels
from fleet.clock import Clock
from fleet.errors import ApiError, Gone, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.pod import Pod

_IN_FLIGHT = 32
_MOST_ROUNDS = 20
_PAUSE_S = 0.5
_PAGE = "500"
# How long an API server may still act on an admission policy after its deletion was answered: it learns by a watch.
POLICY_LAG_S = 2.0
GATE_POLICIES = ("berthmaster-gate", "berthmaster-gate-namespace")
RECORD_POLICIES = ("berthmaster-records",)
_DELETED = "was deleted meanwhile"
_LET_GO = "was let go by somebody else, or deleted, meanwhile"
_POLICIES = "/apis/admissionregistration.k8s.io/v1"


class _ListMeta(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _Meta(msgspec.Struct):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Gate(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    scheduling_gates: list[_Gate] | None = None


class _Gated(msgspec.Struct):
    """The little of a pod that it takes to let it go: whatever else is odd about it does not matter here."""

    metadata: _Meta
    spec: _Spec


class _PodList(msgspec.Struct):
    metadata: _ListMeta
    items: list[_Gated] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """How a release ended.

    Attributes:
        released: Pods let go.
        failed: (pod, last error) of those that are gated still.
        others: (pod, what became of it) of those that were found gated and went without us.
    """

    released: int
    failed: tuple[tuple[str, str], ...]
    others: tuple[tuple[str, str], ...] = ()


async def gated_pods(client: Client, namespace: str | None = None) -> list[Pod]:
    """Return every pod that carries our gate, from quorum, all namespaces by default: identity and gates alone."""
    path = paths.pods(namespace) if namespace else paths.PODS
    found: list[Pod] = []
    token = ""
    while True:
        params = {"limit": _PAGE} | ({"continue": token} if token else {})
        try:
            page = msgspec.json.decode(await client.get(path, params), type=_PodList)
        except Gone:
            found, token = [], ""  # the list grew too old between two pages
            continue
        for item in page.items or ():
            gates = tuple(gate.name for gate in item.spec.scheduling_gates or ())
            if labels.PLAN_GATE in gates:
                meta = item.metadata
                found.append(Pod(uid=meta.uid, namespace=meta.namespace, name=meta.name, gates=gates))
        token = page.metadata.token
        if not token:
            return found


async def release(
    client: Client,
    clock: Clock,
    *,
    namespace: str | None = None,
    quiet_s: float = 0.0,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> Released:
    """Remove our gate from every pod that has it, again and again until none is left.

    Args:
        client: Connected as somebody who may list and patch pods.
        clock: For the pauses.
        namespace: Only there; None = everywhere.
        quiet_s: For how long none must have been found; pods created while this runs are let go too.
        report: Called with (released so far, found so far).
    """
    writer, room = PodWriter(client), asyncio.Semaphore(_IN_FLIGHT)
    released: set[str] = set()
    found: set[str] = set()
    failed: dict[str, tuple[str, str]] = {}
    others: dict[str, tuple[str, str]] = {}

    async def let_go(pod: Pod) -> None:
        async with room:
            outcome, detail = await writer.ungate(pod)
        if outcome is Outcome.DONE:
            released.add(pod.uid)
            failed.pop(pod.uid, None)
        elif outcome is Outcome.GONE:
            others[pod.uid] = (pod.key, _DELETED)
            failed.pop(pod.uid, None)
        else:
            failed[pod.uid] = (pod.key, detail)

    quiet_since_s: float | None = None
    rounds = 0
    while rounds < _MOST_ROUNDS:
        pods = await gated_pods(client, namespace)
        now_s = clock.monotonic_s()
        still = {pod.uid for pod in pods}
        for uid in failed.keys() - still:
            others[uid] = (failed.pop(uid)[0], _LET_GO)
        if pods:
            quiet_since_s = None
            rounds += 1
            found |= still
            before = len(released)
            for start in range(0, len(pods), 4 * _IN_FLIGHT):
                await asyncio.gather(*(let_go(pod) for pod in pods[start : start + 4 * _IN_FLIGHT]))
                report(len(released), len(found))
            if len(released) == before:
                await clock.sleep(_PAUSE_S)
            continue
        quiet_since_s = now_s if quiet_since_s is None else quiet_since_s
        if now_s - quiet_since_s >= quiet_s:
            break
        await clock.sleep(min(_PAUSE_S, quiet_s))
    return Released(
        released=len(released), failed=tuple(sorted(failed.values())), others=tuple(sorted(others.values()))
    )


async def remove_policies(client: Client, names: tuple[str, ...]) -> tuple[str, ...]:
    """Delete our admission policies, bindings first, and return the paths that were there.

    Raises:
        ApiError: One could not be deleted; those deleted before stay deleted, and a second run goes on.
    """
    removed: list[str] = []
    for kind in (
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicies",
    ):
        for name in names:
            path = f"{_POLICIES}/{kind}/{name}"
            try:
                await client.delete(path)
            except NotFound:
                continue
            except ApiError as error:
                raise ApiError(error.status, error.reason, f"{path}: {error.message}") from error
            removed.append(path)
    return tuple(removed)
