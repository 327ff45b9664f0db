"""Batch in, plan out: the index answers, the solver may improve it, the verifier has the last word. Pure.

The solver is somebody else's to run: `draft`, a solve anywhere (a child process, or `plan_batch` right here),
`improve`, `verified`. At every step there is a complete plan to fall back on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from binpack.check import check
from binpack.index import Index
from binpack.solver.instance import Budget
from binpack.solver.question import Answer, Kind, Question, Seat
from binpack.state import NodeState
from fleet.constraints import NodeConstraints
from fleet.device import DeviceAsk
from fleet.plan import Placement, Plan, Reason, Source, Unplaced, Violation
from fleet.pod import Berth, Pod
from fleet.resources import Resources

# What leaving out one milli-GPU of demand costs, in milli-GPU of potential: more than placing it ever does.
UNPLACED_PRICE: Final = 1000
# Nodes of different cost looked at per kind of pod; of equal ones as many as pods of the kind and a few rivals.
_NODES_PER_KIND: Final = 8
_RIVALS: Final = 4
_LEAST_SAVING_MILLI: Final = 0.1  # below this another plan differs by tie-breaks and rounding
_LEAST_DEMAND_MILLI: Final = 100
_MOST_DEMAND_MILLI: Final = 1_000_000
_MILLI_CPU_PER_MILLI_GPU: Final = 16  # a machine of the openb trace has 17 cores per GPU
_MIB_PER_MILLI_GPU: Final = 80  # for a share of memory alone: as on a card of 80 GiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A plan that breaks no rule.

    Attributes:
        plan: What may be carried out.
        violations: What was wrong with the plans before it; empty = the first one is the plan.
    """

    plan: Plan
    violations: tuple[Violation, ...] = ()


def plan_batch(
    index: Index, pods: Sequence[Pod], budget: Budget | None = None, states: Mapping[str, NodeState] | None = None
) -> Plan:
    """Return the plan of one batch, solved in this process; for commands and simulations.

    Args:
        index: Left as it was.
        pods: The batch, in any order.
        budget: Of the solver; None = the index alone.
        states: The states that `index` holds; given, the plan is verified against them.
    """
    plans = [draft(index, pods)]
    question = question_of(index, pods, plans[0]) if budget is not None else None
    if question is not None and budget is not None:
        from binpack.solver.solve import solve  # OR-Tools is loaded by those alone who solve in their own process

        plans.insert(0, improve(plans[0], pods, question, solve(question, budget)))
    return verified(plans, pods, states).plan if states is not None else plans[0]


def draft(index: Index, pods: Sequence[Pod]) -> Plan:
    """Return the index's plan: pods one by one, the hardest first, each seeing the ones before it as booked.

    The order of `pods` does not matter; the index is left as it was.
    """
    placements: list[Placement] = []
    unplaced: list[Unplaced] = []
    with _what_if(index) as booked:
        for pod in sorted(pods, key=_hardest_first):
            answer = index.place(pod)
            if isinstance(answer, Placement):
                index.take(pod, answer.berth)
                booked.append((pod, answer))
                placements.append(answer)
            else:
                unplaced.append(answer)
    cost = sum(placement.score for placement in placements) + price_left_out(pods, unplaced)
    return Plan(placements=tuple(placements), unplaced=tuple(unplaced), objective=cost)


@contextmanager
def _what_if(index: Index) -> Iterator[list[tuple[Pod, Placement]]]:
    """Give back on leaving, in reverse, whatever was noted as booked."""
    booked: list[tuple[Pod, Placement]] = []
    try:
        yield booked
    finally:
        for pod, placement in reversed(booked):
            index.give_back(pod, placement.berth)


def _hardest_first(pod: Pod) -> tuple[int, int, bool, int, int, int, str, str]:
    """Order by priority, then several devices before one, then the choosy, then the big, then by name."""
    ask = pod.ask
    return (
        -pod.priority,
        -ask.count if ask is not None and ask.count > 1 else 0,
        not (ask is not None and ask.models),
        -(ask.total_milli_gpu if ask is not None else 0),
        -pod.requests.milli_cpu,
        -pod.requests.memory_bytes,
        pod.key,
        pod.uid,
    )


def question_of(index: Index, pods: Sequence[Pod], plan: Plan) -> Question | None:
    """Return what the solver should improve; None where it cannot help, and need not be asked.

    It cannot help a single pod, nor pods that all are alike unless one was left out, nor where no node can hold any.

    Args:
        index: As it was when `plan` was drafted.
        pods: The batch.
        plan: The draft.
    """
    placed = {placement.pod_uid for placement in plan.placements}
    kinds = [kind for kind in _kinds(pods) if kind[0].uid in placed or index.options(kind[0], 1)]
    if sum(map(len, kinds)) < 2 or (len(kinds) == 1 and not (plan.placements and plan.unplaced)):
        return None
    numbers = {pod.uid: number for number, kind in enumerate(kinds) for pod in kind}
    tiers = sorted({kind[0].priority for kind in kinds})
    nodes = {placement.berth.node for placement in plan.placements}
    wanted = [(kind[0], len(kind) + min(len(pods) - len(kind), _RIVALS)) for kind in kinds]
    excerpt = index.excerpt(wanted, _NODES_PER_KIND, nodes)
    if excerpt is None:
        return None
    place = {name: number for number, name in enumerate(excerpt.names)}
    return Question(
        excerpt=excerpt,
        kinds=tuple(
            Kind(
                pod=Pod(uid="", name="", requests=kind[0].requests, ask=kind[0].ask),
                uids=tuple(pod.uid for pod in kind),
                tier=tiers.index(kind[0].priority),
                demand=demand_milli(kind[0]),
            )
            for kind in kinds
        ),
        seats=tuple(
            Seat(
                kind=numbers[placement.pod_uid],
                node=place[placement.berth.node],
                positions=tuple(map(excerpt.device_ids[place[placement.berth.node]].index, placement.berth.devices)),
            )
            for placement in plan.placements
        ),
        unplaced_price=UNPLACED_PRICE,
    )


def improve(plan: Plan, pods: Sequence[Pod], question: Question, answer: Answer) -> Plan:
    """Return the solver's plan where it is better than the draft, else the draft; both say how the solver ended.

    Args:
        plan: The draft that `question` was made of.
        pods: The batch.
        question: What the solver was asked.
        answer: What it answered, whatever that is.
    """
    if not answer.seats:
        return replace(plan, solve_status=answer.status)
    placements = _seated(question, answer)
    placed = {placement.pod_uid for placement in placements}
    reasons = {unplaced.pod_uid: unplaced for unplaced in plan.unplaced}
    unplaced = tuple(
        reasons.get(pod.uid)
        or Unplaced(pod_uid=pod.uid, reason=Reason.INSUFFICIENT, detail="its room is better used by others")
        for pod in pods
        if pod.uid not in placed
    )
    saved_price = price_left_out(pods, plan.unplaced) - price_left_out(pods, unplaced)
    saved_cost = answer.draft_cost - answer.cost
    gap = answer.gap
    if saved_price < 0 or saved_price + saved_cost < _LEAST_SAVING_MILLI:
        bound = None if gap is None else plan.objective - max(0.0, saved_price + saved_cost) - gap
        return replace(plan, solve_status=answer.status, bound=bound)
    objective = plan.objective - saved_price - saved_cost
    return Plan(
        placements=placements,
        unplaced=unplaced,
        source=Source.SOLVER,
        objective=objective,
        bound=None if gap is None else objective - gap,
        solve_status=answer.status,
    )


def _kinds(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Return the pods in groups that nothing tells apart, the hardest first, by name within."""
    kinds: dict[tuple[Resources, DeviceAsk | None, NodeConstraints, int], list[Pod]] = {}
    for pod in sorted((pod for pod in pods if not pod.problems), key=_hardest_first):
        kinds.setdefault((pod.requests, pod.ask, pod.constraints, pod.priority), []).append(pod)
    return list(kinds.values())


def _seated(question: Question, answer: Answer) -> tuple[Placement, ...]:
    """Return the answer's seats given to pods, those of a kind in the order of the question."""
    waiting = [iter(kind.uids) for kind in question.kinds]
    excerpt = question.excerpt
    return tuple(
        Placement(
            pod_uid=next(waiting[seat.kind]),
            berth=Berth(
                node=excerpt.names[seat.node],
                devices=tuple(excerpt.device_ids[seat.node][position] for position in seat.positions),
            ),
            score=seat.cost,
        )
        for seat in answer.seats
    )


def demand_milli(pod: Pod) -> int:
    """Return how much demand the pod is, in milli-GPU, CPU counted by what machines have of both: 100 to a million."""
    ask, of_devices = pod.ask, 0
    if ask is not None:
        of_devices = ask.total_milli_gpu or ask.count * ask.memory_mib // _MIB_PER_MILLI_GPU
    demand = of_devices + max(0, pod.requests.milli_cpu) // _MILLI_CPU_PER_MILLI_GPU
    return min(_MOST_DEMAND_MILLI, max(_LEAST_DEMAND_MILLI, demand))


def prices(pods: Iterable[Pod]) -> dict[str, int]:
    """Return by uid what leaving each pod out costs: any pod outweighs the whole batch's pods of lower priority."""
    demand = {pod.uid: (pod.priority, demand_milli(pod)) for pod in pods}
    tiers = sorted({priority for priority, _ in demand.values()})
    step = 1 + sum(milli for _, milli in demand.values())
    factor = {priority: UNPLACED_PRICE * step**rank for rank, priority in enumerate(tiers)}
    return {uid: factor[priority] * milli for uid, (priority, milli) in demand.items()}


def price_left_out(pods: Iterable[Pod], unplaced: Iterable[Unplaced]) -> int:
    """Return what leaving these pods of the batch out costs, in milli-GPU."""
    price = prices(pods)
    return sum(price[one.pod_uid] for one in unplaced)


def verified(plans: Sequence[Plan], pods: Sequence[Pod], states: Mapping[str, NodeState]) -> Verified:
    """Return the first plan that breaks no rule against `states`; if none, the last one without what breaks them.

    Args:
        plans: The best first; the last is the one to cut down.
        pods: The batch.
        states: What is free now, at least on every node that the plans name.
    """
    found: list[Violation] = []
    for plan in plans:
        violations = check(states, pods, plan)
        if not violations:
            return Verified(plan=plan, violations=tuple(found))
        found += violations
    plan, violations = plans[-1], check(states, pods, plans[-1])
    while violations:
        plan = _without(plan, pods, violations)
        violations = check(states, pods, plan)
    return Verified(plan=plan, violations=tuple(found))


def _without(plan: Plan, pods: Sequence[Pod], violations: Iterable[Violation]) -> Plan:
    """Return the plan with the pods of these violations left out, and with every pod in it exactly once."""
    why = {violation.pod_uid: violation.rule for violation in violations}
    kept = tuple(placement for placement in plan.placements if placement.pod_uid not in why)
    placed = {placement.pod_uid for placement in kept}
    reasons = {unplaced.pod_uid: unplaced for unplaced in plan.unplaced}
    left_out = tuple(
        reasons.get(pod.uid)
        or Unplaced(pod_uid=pod.uid, reason=Reason.INSUFFICIENT, detail=f"the plan did not hold: {why.get(pod.uid)}")
        for pod in pods
        if pod.uid not in placed
    )
    cost = sum(placement.score for placement in kept) + price_left_out(pods, left_out)
    return replace(plan, placements=kept, unplaced=left_out, objective=cost, bound=None)
