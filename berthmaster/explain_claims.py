"""What a pod's resource claims have, could have, and from which nodes they keep it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from binpack.dra.choose import Obstacle, Refused
from binpack.dra.desk import Desk
from binpack.dra.wishes import Pending
from fleet.dra import Allocation, ClaimChoice
from fleet.plan import Reason
from fleet.pod import Berth, Pod

_WORDS: Final = {
    Obstacle.NONE_MATCH: "no such devices for its resource claims",
    Obstacle.IN_USE: "lacks free devices for its resource claims",
    Obstacle.POOL_CLOSED: "a pool of devices is incomplete or contradicts itself",
    Obstacle.CONSTRAINT: "no choice of devices meets the constraints of its resource claims",
    Obstacle.TOO_LONG: "the search for devices was given up",
    Obstacle.HELD_ELSEWHERE: "a claim that it shares has its devices elsewhere",
}


def own(desk: Desk, pod: Pod) -> tuple[ClaimChoice, ...]:
    """Return what the pod's claims have for nobody but it, to be lifted out of the cluster with it (`give_back`)."""
    return tuple(
        ClaimChoice(claim_uid=claim.uid, allocation=claim.allocation)
        for claim in desk.claims_of(pod)
        if claim.allocation is not None and all(user.uid == pod.uid for user in claim.reserved_for)
    )


def held(desk: Desk, pod: Pod, node: str) -> tuple[str, ...]:
    """Return the names of the devices that the pod's claims have, as the API shows it."""
    return _names((claim.allocation for claim in desk.claims_of(pod)), node)


def devices_of(desk: Desk | None, pod: Pod, berth: Berth) -> tuple[str, ...]:
    """Return the names of all devices of a berth: its own, those chosen for claims, those that claims have already."""
    if desk is None or not pod.resource_claims:
        return berth.devices
    given = _names((desk.allocation(claim) for claim in desk.claims_of(pod)), berth.node)
    chosen = _names((choice.allocation for choice in berth.choices), berth.node)
    return (*berth.devices, *given, *chosen)


def keeping_away(desk: Desk | None, pod: Pod) -> Callable[[str], str]:
    """Return a function from a node's name to why the pod's claims keep it from there, "" = they do not."""
    if desk is None or not pod.resource_claims:
        return lambda node: ""
    wish = desk.wish(pod)
    if isinstance(wish, Pending):
        is_left = wish.reason is Reason.LEFT_TO_SCHEDULER
        text = (
            "only kube-scheduler can allocate its resource claims" if is_left else "its resource claims are not ready"
        )
        return lambda node: text

    def away(node: str) -> str:
        answer = desk.offer(node, wish)
        return _WORDS[answer.obstacle] if isinstance(answer, Refused) else ""

    return away


def _names(allocations: Iterable[Allocation | None], node: str) -> tuple[str, ...]:
    """Return names of devices; of a pool that is not the node's own, with that pool's."""
    return tuple(
        one.device if one.pool == node else f"{one.pool}/{one.device}"
        for allocation in allocations
        if allocation is not None
        for one in allocation.results
    )
