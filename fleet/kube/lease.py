"""Leadership by a coordination.k8s.io Lease, judged by our own monotonic clock alone.

Times written by another machine are never compared with ours: a holder is alive while its lease keeps changing, as we
saw it, and gone once we saw no change for a whole lease. That is the lease a new leader waits out. The other side of
the bargain: a holder counts its lease from the moment it *sent* its last renewal, so that its writes end before anybody
else can have waited long enough. A released lease needs no waiting, because its holder had stopped before it let go.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

import msgspec

from fleet import labels
from fleet.clock import Clock
from fleet.errors import ApiError, Conflict, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.objects import LeaseObject
from fleet.kube.patches import MERGE_PATCH

_log = logging.getLogger(__name__)
_NEVER = float("-inf")
_decode = msgspec.json.Decoder(LeaseObject).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A lease as last seen to change.

    Attributes:
        version: resourceVersion; any other one is a sign of life.
        holder: Identity of the holder, "" = free.
        epoch: leaseTransitions: how often the lease has changed hands.
        lease_s: What the holder promised to renew within.
        changed_at_s: Monotonic time at which we first saw this version.
    """

    version: str
    holder: str
    epoch: int
    lease_s: float
    changed_at_s: float


def sight(previous: Sighting | None, lease: LeaseObject, now_s: float, lease_s: float) -> Sighting:
    """Return what is known of the lease after reading it; the same version keeps the time of its first sighting."""
    if previous is not None and previous.version == lease.metadata.resource_version:
        return previous
    promised_s = lease.spec.lease_duration_seconds or 0
    return Sighting(
        version=lease.metadata.resource_version,
        holder=lease.spec.holder_identity or "",
        epoch=lease.spec.lease_transitions or 0,
        lease_s=max(lease_s, promised_s),
        changed_at_s=now_s,
    )


def may_take(sighting: Sighting, identity: str, now_s: float) -> bool:
    """Return True if the lease is free, our own, or silent for as long as its holder promised."""
    return sighting.holder in ("", identity) or now_s - sighting.changed_at_s >= sighting.lease_s


class _Renewal(Enum):
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


class Elector:
    """Campaigns for one lease and runs the leader's work while it is held.

    Attributes:
        epoch: leaseTransitions of our current or last term: later leaders have higher ones.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_s: float = 15.0,
        renew_s: float = 10.0,
        retry_s: float = 2.0,
        seed: int | None = None,
    ) -> None:
        """Prepare; nothing is asked before `run`.

        Args:
            client: Connected client; the elector's own writes are not fenced.
            clock: For every time-out; its epoch time is only written down for people.
            namespace: Of the lease.
            name: Of the lease.
            identity: Different for every process that ever campaigns.
            lease_s: How long a silent holder keeps the lease.
            renew_s: How long renewals may fail before the work is stopped; less than lease_s.
            retry_s: Pause between renewals, and between looks at somebody else's lease.
            seed: Of the jitter.
        """
        if not 0 < retry_s < renew_s < lease_s:
            raise ValueError(f"need 0 < retry_s < renew_s < lease_s, not {retry_s}, {renew_s}, {lease_s}")
        self.epoch = 0
        self._client = client
        self._clock = clock
        self._collection = paths.leases(namespace)
        self._path = paths.leases(namespace, name)
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._retry_s = retry_s
        self._random = random.Random(seed)
        self._seen: Sighting | None = None
        self._deadline_s = _NEVER

    @property
    def is_leader(self) -> bool:
        """Return True while nobody else can hold the lease."""
        return self._clock.monotonic_s() < self._deadline_s

    def write_deadline_s(self) -> float:
        """Return the monotonic time by which every write of ours must have ended, -inf while we do not lead."""
        return self._deadline_s

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Campaign and lead, term after term, until cancelled or until `lead` returns or raises.

        Args:
            lead: The leader's work, started anew for each term; cancelled when the lease is lost, and waited for.
        """
        while True:
            await self._acquire()
            _log.info("leading %s/%s as %s, epoch %d", self._namespace, self._name, self._identity, self.epoch)
            try:
                if await self._lead_while_held(lead):
                    return
            finally:
                await self._release()
            _log.warning("lost the lease %s/%s, campaigning again", self._namespace, self._name)

    async def _lead_while_held(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Return True if the work ended by itself, False if the lease was lost."""
        work = asyncio.ensure_future(lead())
        holding = asyncio.create_task(self._hold())
        try:
            await asyncio.wait((work, holding), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await holding  # a fault of our own is not a lost lease
                return False
            await work
            return True
        finally:
            for task in (work, holding):
                task.cancel()
            await asyncio.gather(work, holding, return_exceptions=True)

    async def _acquire(self) -> None:
        while True:
            try:
                if await self._try():
                    return
            except (ApiError, msgspec.MsgspecError) as error:
                _log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            await self._clock.sleep(self._retry_s * self._random.uniform(1.0, 1.2))

    async def _try(self) -> bool:
        try:
            await self._look()
        except NotFound:
            self._seen = None
        seen = self._seen
        if seen is not None and not may_take(seen, self._identity, self._clock.monotonic_s()):
            return False
        try:
            await self._write(self._identity, epoch=0 if seen is None else seen.epoch + (seen.holder != self._identity))
        except Conflict:
            return False
        return True

    async def _hold(self) -> None:
        """Renew until the lease is lost or renewals have failed for too long."""
        while True:
            await self._clock.sleep(self._retry_s)
            outcome = await self._renew()
            renewed_at_s = self._deadline_s - self._lease_s
            if outcome is _Renewal.LOST or self._clock.monotonic_s() - renewed_at_s >= self._renew_s:
                self._deadline_s = _NEVER
                return

    async def _renew(self) -> _Renewal:
        try:
            await self._write(self._identity, epoch=self.epoch)
        except Conflict:
            return await self._after_conflict()
        except NotFound:
            return _Renewal.LOST
        except (ApiError, msgspec.MsgspecError) as error:
            _log.warning("lease %s/%s not renewed: %s", self._namespace, self._name, error)
            return _Renewal.FAILED
        return _Renewal.DONE

    async def _after_conflict(self) -> _Renewal:
        """Tell a lost lease from one that somebody merely annotated, or whose last answer did not reach us."""
        try:
            await self._look()
        except NotFound:
            return _Renewal.LOST
        except (ApiError, msgspec.MsgspecError):
            return _Renewal.FAILED
        is_ours = self._seen is not None and self._seen.holder == self._identity
        return _Renewal.FAILED if is_ours else _Renewal.LOST

    async def _release(self) -> None:
        """Let go, so that the next leader need not wait; without success, because then it just waits."""
        is_held, self._deadline_s = self._deadline_s > _NEVER, _NEVER
        if is_held:
            with suppress(ApiError, msgspec.MsgspecError):
                await asyncio.shield(self._write("", epoch=self.epoch))

    async def _look(self) -> None:
        lease = _decode(await self._client.get(self._path, timeout_s=self._call_s))
        self._seen = sight(self._seen, lease, self._clock.monotonic_s(), self._lease_s)

    async def _write(self, holder: str, *, epoch: int) -> None:
        """Write the lease as holder, on top of the version last seen, and count our time from before the call."""
        sent_at_s = self._clock.monotonic_s()
        now = datetime.fromtimestamp(self._clock.now_s(), UTC).isoformat(timespec="microseconds")
        spec: dict[str, object] = {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(self._lease_s)),
            "leaseTransitions": epoch,
            "renewTime": now.replace("+00:00", "Z"),
        }
        if holder and (self._seen is None or self._seen.holder != holder):
            spec["acquireTime"] = spec["renewTime"]
        if self._seen is None:
            answer = await self._create(spec)
        else:
            answer = await self._patch(spec, self._seen.version)
        self._seen = sight(None, _decode(answer), self._clock.monotonic_s(), self._lease_s)
        if holder:
            self.epoch = epoch
            self._deadline_s = sent_at_s + self._lease_s

    async def _create(self, spec: dict[str, object]) -> bytes:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": spec,
        }
        body = msgspec.json.encode(lease)
        return await self._client.create(self._collection, body, timeout_s=self._call_s, is_fenced=False)

    async def _patch(self, spec: dict[str, object], version: str) -> bytes:
        """Write our fields only: labels and fields of others stay as they are."""
        body = msgspec.json.encode({"metadata": {"resourceVersion": version}, "spec": spec})
        return await self._client.request(
            "PATCH",
            self._path,
            params={"fieldManager": labels.FIELD_MANAGER},
            body=body,
            content_type=MERGE_PATCH,
            timeout_s=self._call_s,
            is_fenced=False,
        )

    @property
    def _call_s(self) -> float:
        return self._renew_s / 2


def own_identity() -> str:
    """Return a name for this process as a holder: its pod's or its machine's, and some chance against twins."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
