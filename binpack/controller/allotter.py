"""Writes chosen devices into resource claims, while their pod is still gated, and takes them back. Decides nothing.

Order of writes: finalizer, allocation with reservation, then (by the carrier) the pin. A process that dies between two
of them leaves a claim that is reserved for a gated pod: the next leader plans the pod to its claim's node, or frees it.
When the pod goes, the cluster's own controller drops the reservation and with it the allocation.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable

import msgspec

from binpack.controller.writer import Outcome
from binpack.dra.desk import Desk
from fleet import labels
from fleet.clock import Clock
from fleet.condition import stamp
from fleet.dra import Allocation, ClaimChoice, Reserver, ResourceClaim
from fleet.errors import ApiError, Conflict, Invalid, NotFound, NotLeading
from fleet.kube import paths
from fleet.kube.claim_patches import allocation_patch, finalizer_patch, release_patch, reservation_patch
from fleet.kube.client import Client
from fleet.kube.decode_claim import claim_from
from fleet.kube.dra_objects import ResourceClaimObject
from fleet.pod import Berth, Pod

log = logging.getLogger(__name__)

_LONGEST_ECHO_S = 10.0
_ECHO_POLL_S = 0.02
_MOST_JOINS = 8
_decode = msgspec.json.Decoder(ResourceClaimObject).decode


class Allotter:
    """The planner's hand on resource claims.

    Args:
        client: To the API server.
        desk: What the watches show; never written from here, so that it stays a function of them.
        clock: For the time of allocation, and to wait until the watch shows what was written.
    """

    def __init__(self, client: Client, desk: Desk, clock: Clock) -> None:
        self._client = client
        self._desk = desk
        self._clock = clock

    async def allot(self, pod: Pod, berth: Berth) -> tuple[Outcome, str]:
        """Allocate the pod's claims as chosen and reserve all of them for it; DONE = the pod may be pinned.

        Whoever else allocates (kube-scheduler for pods that are not ours) can take the same device at the same moment:
        both claims are separate objects, and no write of theirs conflicts. All claims come by one watch in the order in
        which they were written, so once ours shows, every claim that was written before is known; if one of them has a
        device of ours, ours is taken back.
        """
        choices = {choice.claim_uid: choice for choice in berth.choices}
        reserver = Reserver(uid=pod.uid, name=pod.name)
        for claim in self._desk.claims_of(pod):
            choice = choices.get(claim.uid)
            if choice is not None:
                outcome, detail = await self.allocate(claim, choice, reserver)
            else:
                outcome, detail = await self.join(claim.uid, reserver)
            if outcome is not Outcome.DONE:
                return outcome, f"claim {claim.key}: {detail}"
        for uid in choices:
            outcome, detail = await self.confirm(uid)
            if outcome is not Outcome.DONE:
                if outcome is Outcome.CHANGED:
                    _, lost = await self.release(self._desk.claims[uid])
                    detail += f": {lost or 'freed'}"
                return outcome, detail
        return Outcome.DONE, ""

    async def confirm(self, uid: str) -> tuple[Outcome, str]:
        """Wait until the watch shows a claim allocated; CHANGED = an earlier write gave one of its devices away."""
        if not await self.shows(uid):
            return Outcome.FAILED, f"the watch does not show claim {uid} allocated"
        claim = self._desk.claims[uid]
        rivals = self._desk.rivals(claim)
        if rivals:
            return Outcome.CHANGED, f"claim {claim.key} shares a device with {', '.join(rivals)}"
        return Outcome.DONE, ""

    async def release(self, claim: ResourceClaim) -> tuple[Outcome, str]:
        """Take allocation and reservations of a claim back, if it is still as it was seen."""
        return await self._ending(self._patch_status(claim, release_patch(claim)))

    async def allocate(self, claim: ResourceClaim, choice: ClaimChoice, *reservers: Reserver) -> tuple[Outcome, str]:
        """Give a claim that has no devices those of a choice, reserved for these pods."""

        async def write() -> None:
            now = claim
            if labels.CLAIM_FINALIZER not in now.finalizers:
                path = paths.resource_claim(now.namespace, now.name)
                now = claim_from(_decode(await self._client.merge_patch(path, finalizer_patch(now))))
            await self._patch_status(now, allocation_patch(now, choice.allocation, *reservers, at=self._at()))

        outcome, detail = await self._ending(write())
        if outcome in (Outcome.DONE, Outcome.NOT_LEADING, Outcome.GONE):
            return outcome, detail
        # The answer may have been lost, or a repeated write have met its own: what counts is how the claim is now.
        found, fresh = await self.read(claim)
        if fresh is None:
            return found, detail
        is_ours = has_these(fresh, choice) and not _lacking(fresh, reservers)
        return (Outcome.DONE, "") if is_ours else (outcome, detail)

    async def join(self, uid: str, *reservers: Reserver) -> tuple[Outcome, str]:
        """Reserve a claim for these pods that has devices, or is given them for another pod at this moment."""
        if not await self.shows(uid):
            return Outcome.CHANGED, "it has no devices any more"
        claim: ResourceClaim | None = self._desk.claims[uid]
        outcome, detail = Outcome.CHANGED, "others write it all the time"
        for _ in range(_MOST_JOINS):
            if claim is None or claim.allocation is None:
                return Outcome.CHANGED, "it has no devices any more"
            lacking = _lacking(claim, reservers)
            if not lacking:
                return Outcome.DONE, ""
            outcome, detail = await self._ending(self._patch_status(claim, reservation_patch(claim, *lacking)))
            if outcome in (Outcome.DONE, Outcome.NOT_LEADING, Outcome.GONE):
                break
            _, claim = await self.read(claim)  # pods that share it join at the same time
        return outcome, detail

    async def read(self, claim: ResourceClaim) -> tuple[Outcome, ResourceClaim | None]:
        """Return a claim as it is now (DONE); GONE where there is none any more, FAILED where nobody can tell."""
        try:
            body = await self._client.get(paths.resource_claim(claim.namespace, claim.name))
            fresh = claim_from(_decode(body))
        except NotFound:
            return Outcome.GONE, None
        except (ApiError, msgspec.MsgspecError):
            return Outcome.FAILED, None
        return (Outcome.DONE, fresh) if fresh.uid == claim.uid else (Outcome.GONE, None)

    async def _patch_status(self, claim: ResourceClaim, body: bytes) -> None:
        await self._client.merge_patch(paths.resource_claim(claim.namespace, claim.name, "status"), body)

    async def _ending(self, write: Awaitable[None]) -> tuple[Outcome, str]:
        try:
            await write
        except NotLeading as error:
            return Outcome.NOT_LEADING, str(error)
        except NotFound as error:
            return Outcome.GONE, str(error)
        except (Conflict, Invalid) as error:
            return Outcome.CHANGED, str(error)
        except (ApiError, msgspec.MsgspecError) as error:
            return Outcome.FAILED, str(error)
        return Outcome.DONE, ""

    async def shows(self, uid: str) -> bool:
        """Wait until the watch shows a claim allocated; False where it does not in time, or the claim is gone."""
        until_s = self._clock.monotonic_s() + _LONGEST_ECHO_S
        while True:
            claim = self._desk.claims.get(uid)
            if claim is not None and claim.allocation is not None:
                return True
            if claim is None or self._clock.monotonic_s() >= until_s:
                return False
            await self._clock.sleep(_ECHO_POLL_S)

    def _at(self) -> str:
        return stamp(self._clock.now_s())


def has_these(claim: ResourceClaim, choice: ClaimChoice) -> bool:
    """Return True if a claim has just the devices of a choice."""
    return _names(claim.allocation) == _names(choice.allocation)


def _lacking(claim: ResourceClaim, reservers: Iterable[Reserver]) -> list[Reserver]:
    """Return those for whom the claim is not reserved."""
    known = {one.uid for one in claim.reserved_for}
    return [one for one in reservers if one.uid not in known]


def _names(allocation: Allocation | None) -> list[tuple[str, str, str, str, str]]:
    results = allocation.results if allocation is not None else ()
    return [(one.request, one.driver, one.pool, one.device, one.share_id) for one in results]
