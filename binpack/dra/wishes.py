"""What the resource claims of one pod still want, together, or why they cannot be planned now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from binpack.dra.wants import NoSuchClassError, Want, want_of
from fleet.dra import Allocation, DeviceClass, ResourceClaim
from fleet.plan import Reason
from fleet.pod import Pod

MOST_RESERVERS: Final = 256  # resource.k8s.io/v1, ResourceClaimReservedForMaxSize


@dataclass(frozen=True, slots=True)
class Wish:
    """What a pod's claims still want, and to which nodes those that have devices bind it.

    Attributes:
        key: Equal for pods that get equal answers everywhere.
    """

    wants: tuple[Want, ...]
    given: tuple[Allocation, ...]
    key: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """Why a pod's claims cannot be planned now."""

    reason: Reason
    detail: str


def wish_of(
    pod: Pod,
    claim_named: Callable[[str, str], ResourceClaim | None],
    allocation_of: Callable[[ResourceClaim], Allocation | None],
    classes: Mapping[str, DeviceClass],
) -> Wish | Pending:
    """Return what the pod's claims want.

    Args:
        pod: Whose claims they are.
        claim_named: Returns a claim by namespace and name.
        allocation_of: Returns what a claim has, shown or decided.
        classes: All device classes.
    """
    wants: list[Want] = []
    given: list[Allocation] = []
    for one in pod.resource_claims:
        if one.is_none:
            continue
        name = one.claim or one.like
        claim = claim_named(pod.namespace, name) if name else None
        if claim is None:
            what = f"claim {name} does not exist" if name else f"claim {one.name} is not made yet"
            return Pending(Reason.CLAIM_PENDING, what)
        if not one.claim:
            claim = replace(claim, uid=imagined(claim.uid), allocation=None, reserved_for=(), is_terminating=False)
        allocation = allocation_of(claim)
        pending = _unusable(claim, allocation, pod)
        if pending is not None:
            return pending
        if allocation is not None:
            given.append(allocation)
            continue
        try:
            wants.append(want_of(claim.uid, claim.demand, classes))
        except NoSuchClassError as error:
            return Pending(Reason.CLAIM_PENDING, f"claim {claim.name}: there is no device class {error}")
    key = (tuple(want.demand for want in wants), tuple(allocation.terms for allocation in given))
    return Wish(wants=tuple(wants), given=tuple(given), key=key)


def imagined(uid: str) -> str:
    """Return the uid of a claim that is only thought of: made from the same template as this one."""
    return f"like {uid}"


def _unusable(claim: ResourceClaim, allocation: Allocation | None, pod: Pod) -> Pending | None:
    if claim.is_terminating:
        return Pending(Reason.CLAIM_PENDING, f"claim {claim.name} is being deleted")
    if claim.problem:
        return Pending(Reason.CLAIM_PENDING, f"claim {claim.name} cannot be read: {claim.problem}")
    if claim.unmodelled and allocation is None:
        return Pending(Reason.LEFT_TO_SCHEDULER, f"claim {claim.name}: {claim.unmodelled}")
    if len(claim.reserved_for) >= MOST_RESERVERS and all(one.uid != pod.uid for one in claim.reserved_for):
        return Pending(Reason.CLAIM_PENDING, f"claim {claim.name} is in use by {MOST_RESERVERS} pods, the most it may")
    return None
