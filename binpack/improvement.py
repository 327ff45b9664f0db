"""What the solver is asked about a batch, and what becomes of its answer. Pure; OR-Tools is not loaded by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from binpack.booking import held
from binpack.company import Company
from binpack.company.wishes import spreads_replicas
from binpack.demand import UNPLACED_PRICE, demand_milli, hardest_first, price_left_out
from binpack.index import Index
from binpack.solver.question import Answer, Kind, Question, Seat
from fleet.device import AskKind
from fleet.plan import Placement, Plan, Reason, Source, Unplaced
from fleet.pod import Berth, Pod

# Nodes of different cost looked at per kind of pod; of equal ones as many as pods of the kind and a few rivals.
_NODES_PER_KIND: Final = 8
_RIVALS: Final = 4
_MOST_KINDS: Final = 256
_LEAST_SAVING_MILLI: Final = 0.1  # below this another plan differs by tie-breaks and rounding


def question_of(index: Index, pods: Sequence[Pod], plan: Plan) -> Question | None:
    """Return what the solver should improve; None where it cannot help, and need not be asked.

    It cannot help a single pod, nor pods that all are alike unless one was left out, nor where no node can hold any;
    of more than 256 kinds of pods it would be late.

    Args:
        index: As it was when `plan` was drafted.
        pods: The batch.
        plan: The draft.
    """
    company = index.company
    alone = {pod.uid for pod in pods if company.is_involved(pod) or _is_beyond_patterns(pod)}
    if not alone:
        return _question(index, pods, plan)
    # Rules between pods, MIG instances and several ways to serve a pod are the index's business: what it found for
    # such pods stands, and the solver plans around them.
    theirs = [placement for placement in plan.placements if placement.pod_uid in alone]
    free = [pod for pod in pods if pod.uid not in alone]
    rest = tuple(placement for placement in plan.placements if placement.pod_uid not in alone)
    with held(index, theirs, {pod.uid: pod for pod in pods}):
        return _question(index, free, replace(plan, placements=rest))


def _is_beyond_patterns(pod: Pod) -> bool:
    ask = pod.ask
    if pod.resource_claims:
        return True
    return ask is not None and (ask.kind is AskKind.PARTITION or bool(ask.alternatives))


def _question(index: Index, pods: Sequence[Pod], plan: Plan) -> Question | None:
    placed = {placement.pod_uid for placement in plan.placements}
    kinds = [kind for kind in _kinds(pods, index.company) if kind[0].uid in placed or index.options(kind[0], 1)]
    if len(kinds) > _MOST_KINDS or sum(map(len, kinds)) < 2:
        return None
    if len(kinds) == 1 and not (plan.placements and plan.unplaced):
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
    asked = {uid for kind in question.kinds for uid in kind.uids}
    kept = tuple(placement for placement in plan.placements if placement.pod_uid not in asked)
    placements = (*kept, *_seated(question, answer))
    placed = {placement.pod_uid for placement in placements}
    reasons = {unplaced.pod_uid: unplaced for unplaced in plan.unplaced}
    unplaced = tuple(
        reasons.get(pod.uid)
        or Unplaced(pod_uid=pod.uid, reason=Reason.INSUFFICIENT, detail="others of the batch take its room")
        for pod in pods
        if pod.uid not in placed
    )
    saved_price = price_left_out(pods, plan.unplaced) - price_left_out(pods, unplaced)
    saved_cost = answer.draft_cost - answer.cost
    saved_cost += _together(pods, plan.placements) - _together(pods, placements)
    gap = answer.gap_milli_gpu
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


def _together(pods: Iterable[Pod], placements: Iterable[Placement]) -> float:
    """Return what replicas cost that are placed on one node by one plan: of that neither side of a comparison knows."""
    by_uid = {pod.uid: pod for pod in pods}
    placed = Counter(
        (guest.owner, placement.berth.node)
        for placement in placements
        if spreads_replicas(guest := by_uid[placement.pod_uid].guest)
    )
    return Company.togetherness(placed)


def _kinds(pods: Iterable[Pod], company: Company) -> list[list[Pod]]:
    """Return the pods in groups that nothing tells apart, the hardest first, by name within."""
    kinds: dict[tuple[Hashable, ...], list[Pod]] = {}
    for pod in sorted((pod for pod in pods if not pod.problems), key=hardest_first):
        kinds.setdefault((pod.requests, pod.ask, pod.constraints, pod.priority, company.standing(pod)), []).append(pod)
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
