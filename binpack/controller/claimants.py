"""Pods that wait with resource claims: whose devices are held in vain, and what only kube-scheduler can do. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from binpack.controller.waiting import CAPACITY
from binpack.dra.desk import Desk
from fleet.dra import Reserver, ResourceClaim
from fleet.plan import Reason, Unplaced
from fleet.pod import Pod

IsIdle = Callable[[Reserver], bool]


class Claimants:
    """Judges why claimants wait, and remembers which claims could be given back for their sake."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._loose: dict[str, ResourceClaim] = {}

    def judged(self, pod: Pod, unplaced: Unplaced, is_idle: IsIdle) -> Unplaced:
        """Return the reason of a pod for which DRA makes a difference, and note which of its claims may be freed.

        Args:
            pod: Who waits.
            unplaced: Why, as far as room goes.
            is_idle: Whether a pod that a claim is reserved for is gated, nothing is being written for it, and no seat
                kept.
        """
        # Of claims that are not all listed nobody knows what is still to come.
        holds_in_vain = bool(pod.resource_claims) and self._desk.is_synced
        for claim in self._desk.claims_of(pod) if holds_in_vain else ():
            others = [one for one in claim.reserved_for if one.uid != pod.uid]
            if claim.allocation is not None and claim.reserved_for and all(map(is_idle, others)):
                self._loose[claim.uid] = claim
        if unplaced.reason not in CAPACITY:
            return unplaced
        backed = self._desk.leaves_to_scheduler(pod)
        if not backed:
            return unplaced
        return replace(
            unplaced,
            reason=Reason.LEFT_TO_SCHEDULER,
            shortfall=None,
            detail=f"{backed} is backed by a device class, and only kube-scheduler makes the claims for it",
        )

    def take_loose(self, is_idle: IsIdle) -> list[ResourceClaim]:
        """Return claims, as they are now, whose gated pods have no room where the claims have devices."""
        loose, self._loose = self._loose, {}
        now = [(self._desk.claims.get(uid), claim) for uid, claim in loose.items()]
        return [
            claim
            for claim, seen in now
            if claim is not None
            and claim.uid not in self._desk.releasing
            and claim.resource_version == seen.resource_version
            and all(map(is_idle, claim.reserved_for))
        ]
