"""Which pods of a live cluster may be moved, how many at a time, and what for when nobody waits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from binpack.moving import afresh, stays
from binpack.repack.values import FreeDevices, Movable
from binpack.state import NodeState
from fleet import labels
from fleet.budget import DisruptionBudget
from fleet.dra import ClaimChoice
from fleet.pod import Berth, Pod

_OUR_COSTS = ("", labels.LEAVES_EARLY, labels.LEAVES_FIRST)


def service_of(pod: Pod) -> str:
    """Return what a pod is a replica of, for budgets; "" = of nothing."""
    return "" if pod.owner is None else f"{pod.namespace}/{pod.owner.kind}/{pod.owner.name}"


def movables(
    pods: Iterable[Pod],
    states: Mapping[str, NodeState],
    budgets_of: Callable[[Pod], Sequence[DisruptionBudget]],
    barred: Collection[str] = (),
    *,
    claimed: Callable[[Pod], tuple[ClaimChoice, ...] | None] = lambda pod: None if pod.has_claims else (),
) -> tuple[Movable, ...]:
    """Return the pods that may be moved, by uid.

    Left out are pods that stay, that move already, that are not Ready (what is not well should not be moved), whose
    order of leaving somebody else has set, that are under two disruption budgets or under one that lets nobody go
    however healthy all are, those on nodes that are being emptied, and those whose resource claims are not their own.

    Args:
        pods: That have a berth.
        states: By node, of those that take pods.
        budgets_of: Which disruption budgets cover a pod.
        barred: Services that could not be moved a moment ago.
        claimed: What the resource claims of a pod hold, for it alone; None = not only for it, or nobody knows.
    """
    found: list[Movable] = []
    for pod in pods:
        if not pod.is_ready or pod.moving_to is not None or pod.moving_by or stays(pod) is not None:
            continue
        if pod.deletion_cost not in _OUR_COSTS:
            continue
        state, service = states.get(pod.node_name), service_of(pod)
        if state is None or state.node.is_spare or state.node.is_kept or service in barred:
            continue
        covering = budgets_of(pod)
        if len(covering) > 1 or any(budget.forbids for budget in covering):
            continue
        choices = claimed(pod)
        if choices is None:
            continue
        berth = Berth(node=pod.node_name, devices=pod.devices or (), choices=choices)
        found.append(Movable(pod=afresh(pod), berth=berth, service=service))
    return tuple(sorted(found, key=lambda movable: movable.pod.uid))


def allowed_at_a_time(
    candidates: Iterable[Movable], budgets_of: Callable[[Pod], Sequence[DisruptionBudget]]
) -> dict[str, int]:
    """Return by service how many replicas its disruption budget lets be missing; services without one are left out."""
    found: dict[str, int] = {}
    for movable in candidates:
        if movable.service not in found:
            for budget in budgets_of(movable.pod):
                found[movable.service] = max(1, budget.allowed)
    return found


def openings_to_free(states: Iterable[NodeState], openings: int, devices: int) -> FreeDevices | None:
    """Return the goal that so many pods of so many devices each find devices that nobody uses; None = they do.

    Args:
        states: Of all nodes that take pods.
        openings: How many pods.
        devices: Of each; 0 = as many as the largest node has.
    """
    known = list(states)
    wanted = devices or max((len(state.devices) for state in known), default=0)
    if wanted < 1 or openings < 1:
        return None
    there = sum(
        sum(device.is_untouched for device in state.devices) // wanted
        for state in known
        if not (state.blocked or state.node.is_spare or state.node.is_cordoned)
    )
    return FreeDevices(openings=openings - there, devices=wanted) if there < openings else None
