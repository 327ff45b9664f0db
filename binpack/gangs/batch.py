"""A batch with gangs in it, planned once for people to look at: gangs first, then everybody else beside them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from binpack.booking import what_if
from binpack.gangs.place import Refusal, place
from binpack.gangs.roll import Call, Key, Roll, key_of
from binpack.gangs.room import booked as with_pod
from binpack.index import Index
from binpack.planner import plan_batch
from binpack.solver.instance import Budget
from binpack.state import NodeState
from fleet.plan import Placement, Plan, Reason, Unplaced
from fleet.pod import Pod


def plan_with_gangs(
    index: Index, states: Mapping[str, NodeState], pods: Sequence[Pod], everybody: Sequence[Pod], budget: Budget | None
) -> Plan:
    """Return the plan of a batch in which gangs are placed as a whole or not at all.

    Args:
        index: Left as it was.
        states: What it holds.
        pods: The batch, the most urgent first. One with a seat has that.
        everybody: All pods there are: members that are placed already count.
        budget: Of the solver, for pods without a gang; None = the index alone.
    """
    roll = Roll()
    for pod in everybody:
        roll.seen(pod)
    seated = [Placement(pod_uid=pod.uid, berth=pod.seat) for pod in pods if pod.seat is not None]
    gangs: dict[Key, None] = {}
    rest: list[Pod] = []
    for pod in pods:
        key = key_of(pod)
        if pod.seat is not None:
            continue
        if key is None or roll.is_alone(pod):
            rest.append(pod)
        else:
            gangs[key] = None
    unplaced: list[Unplaced] = []
    now = dict(states)
    with what_if(index) as booked:
        for key in gangs:
            unplaced += _gang(index, now, roll, key, booked)
        plan = plan_batch(index, rest, budget)
        placements = (*seated, *(placement for _, placement in booked), *plan.placements)
    return replace(plan, placements=placements, unplaced=(*unplaced, *plan.unplaced))


def _gang(
    index: Index, states: dict[str, NodeState], roll: Roll, key: Key, booked: list[tuple[Pod, Placement]]
) -> list[Unplaced]:
    """Book a gang in index and states; return whoever is left out."""
    gang = roll.standing(key)
    unit = gang.unit
    late = [pod for pod in gang.ready if pod not in unit and pod.seat is None]
    waiting = [Unplaced(pod_uid=pod.uid, reason=Reason.GANG_INCOMPLETE, detail=gang.text) for pod in late]
    if gang.call is not Call.WHOLE or any(pod.seat is not None for pod in unit):
        return waiting
    answer = place(index, states.get, unit)
    if isinstance(answer, Refusal):
        return [*answer.unplaced, *waiting]
    by_uid = {pod.uid: pod for pod in unit}
    for placement in answer:
        pod, node = by_uid[placement.pod_uid], placement.berth.node
        index.take(pod, placement.berth)
        booked.append((pod, placement))
        states[node] = with_pod(pod, placement.berth, states[node])
    return waiting
