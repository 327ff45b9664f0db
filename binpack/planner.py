"""Batch in, plan out: the index answers, the solver may improve it, the verifier has the last word. Pure.

The solver is somebody else's to run: `draft`, `question_of`, a solve anywhere (a child process, or `plan_batch` right
here), `improve`, `filled`, `verified`. At every step there is a complete plan to fall back on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from binpack.booking import what_if
from binpack.check import check
from binpack.check_order import disorders
from binpack.check_register import Register
from binpack.company import COMPANY_REASONS
from binpack.demand import hardest_first, price_left_out
from binpack.improvement import improve, question_of
from binpack.index import Index, UnknownBerthError
from binpack.solver.instance import Budget
from binpack.state import NodeState
from fleet.plan import Placement, Plan, Reason, Unplaced, Violation
from fleet.pod import Pod

__all__ = ["Verified", "draft", "filled", "improve", "narrowed", "plan_batch", "question_of", "verified"]

_MOST_ROUNDS: Final = 4


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

        plans.insert(0, filled(index, pods, improve(plans[0], pods, question, solve(question, budget))))
    if states is None:
        return plans[0]
    # Rules between pods are judged against everybody: worth the count only where a pod of the batch has part in them.
    has_company = any(index.company.is_involved(pod) for pod in pods)
    return verified(plans, pods, states, Register(states.values()) if has_company else None).plan


def draft(index: Index, pods: Sequence[Pod], *, in_turn: bool = False) -> Plan:
    """Return the index's plan: pods one by one, the hardest first, each seeing the ones before it as booked.

    Args:
        index: Left as it was.
        pods: The batch; its order does not matter.
        in_turn: The pods are placed in the order given instead: it says who is to have room that does not suffice.
    """
    with index.company.pinning(pods), what_if(index) as booked:
        unplaced = _place_all(index, pods if in_turn else sorted(pods, key=hardest_first), booked)
        unplaced += _settled(index, booked)
        placements = tuple(placement for _, placement in booked)
    cost = sum(placement.score for placement in placements) + price_left_out(pods, unplaced)
    return Plan(placements=placements, unplaced=tuple(unplaced), objective=cost)


def _place_all(index: Index, pods: Iterable[Pod], booked: list[tuple[Pod, Placement]]) -> list[Unplaced]:
    """Book the pods one by one and return those that find no berth.

    One that only others kept from every node (it must join a pod that comes later, say) is tried again as long as
    anybody else finds a place.
    """
    unplaced: list[Unplaced] = []
    waiting = list(pods)
    while waiting:
        before, lonely = len(booked), []
        for pod in waiting:
            answer = index.place(pod)
            if isinstance(answer, Placement):
                index.take(pod, answer.berth)
                booked.append((pod, answer))
            elif answer.reason in COMPANY_REASONS:
                lonely.append((pod, answer))
            else:
                unplaced.append(answer)
        if len(booked) == before:
            unplaced += [answer for _, answer in lonely]
            break
        waiting = [pod for pod, _ in lonely]
    return unplaced


def _settled(index: Index, booked: list[tuple[Pod, Placement]]) -> list[Unplaced]:
    """Place those anew whose topology spread others of the batch broke after them; return who then has no berth.

    kube-scheduler takes the pins in an order of its own: each must hold beside all the others.
    """
    unplaced: list[Unplaced] = []
    for _ in range(_MOST_ROUNDS):
        shaken = [entry for entry in booked if _is_shaken(index, *entry)]
        if not shaken:
            return unplaced
        for pod, placement in shaken:
            index.give_back(pod, placement.berth)
            booked.remove((pod, placement))
        unplaced += _place_all(index, [pod for pod, _ in shaken], booked)
    for pod, placement in [entry for entry in booked if _is_shaken(index, *entry)]:
        index.give_back(pod, placement.berth)
        booked.remove((pod, placement))
        detail = f"others of the batch would break its topology spread on {placement.berth.node}"
        unplaced.append(Unplaced(pod_uid=pod.uid, reason=Reason.INSUFFICIENT, detail=detail))
    return unplaced


def _is_shaken(index: Index, pod: Pod, placement: Placement) -> bool:
    """Return True if the pod's hard spread does not hold any more with everybody booked."""
    has_hard = any(spread.is_hard for spread in pod.guest.spreads)
    return has_hard and not index.company.holds(pod, placement.berth.node)


def filled(index: Index, pods: Sequence[Pod], plan: Plan) -> Plan:
    """Return the plan with every pod it leaves out placed after all, or with the reason that holds beside its others.

    The solver weighs some patterns, not all: a pod it left out may still fit beside the rest, and none is refused that
    fits somewhere. The index is left as it was; where it no longer knows a berth of the plan, so is the plan.
    """
    if not plan.unplaced:
        return plan
    by_uid = {pod.uid: pod for pod in pods}
    added: list[Placement] = []
    with index.company.pinning(pods), what_if(index) as booked:
        try:
            for placement in plan.placements:
                index.take(by_uid[placement.pod_uid], placement.berth)
                booked.append((by_uid[placement.pod_uid], placement))
        except UnknownBerthError:
            return plan
        left_out: list[Pod] = []
        for pod in sorted((by_uid[one.pod_uid] for one in plan.unplaced), key=hardest_first):
            answer = index.place(pod, with_shortfall=False)
            if isinstance(answer, Placement):
                index.take(pod, answer.berth)
                booked.append((pod, answer))
                added.append(answer)
            else:
                left_out.append(pod)
        unplaced = [answer for answer in map(index.place, left_out) if isinstance(answer, Unplaced)]
    if not added:
        return replace(plan, unplaced=tuple(unplaced))
    saved = price_left_out(pods, plan.unplaced) - price_left_out(pods, unplaced)
    return replace(
        plan,
        placements=(*plan.placements, *added),
        unplaced=tuple(unplaced),
        objective=plan.objective - saved + sum(placement.score for placement in added),
        bound=None,
    )


def verified(
    plans: Sequence[Plan],
    pods: Sequence[Pod],
    states: Mapping[str, NodeState],
    register: Register | None = None,
    also: Callable[[Plan, Sequence[Pod]], Sequence[Violation]] = lambda plan, pods: (),
    coming: Collection[tuple[Pod, str]] = (),
) -> Verified:
    """Return the first plan that breaks no rule against `states`; if none, the last one without what breaks them.

    Args:
        plans: The best first; the last is the one to cut down.
        pods: The batch.
        states: What is free now, at least on every node that the plans name.
        register: Who is where in the whole cluster; None = rules between pods are not judged.
        also: Returns what breaks of further rules: those of resource claims.
        coming: Pods that are on their way to a node and not bound yet; the register counts them there.
    """

    def judged(plan: Plan) -> tuple[Violation, ...]:
        order = () if register is None else disorders(register, coming, pods, plan)
        return (*check(states, pods, plan, register=register), *also(plan, pods), *order)

    found: list[Violation] = []
    for plan in plans:
        violations = judged(plan)
        if not violations:
            return Verified(plan=plan, violations=tuple(found))
        found += violations
    plan, violations = plans[-1], judged(plans[-1])
    while violations:
        plan = _without(plan, pods, violations)
        violations = judged(plan)
    return Verified(plan=plan, violations=tuple(found))


def narrowed(plan: Plan, pods: Sequence[Pod]) -> Plan:
    """Return what a plan says of these pods of its batch alone; its berths for the others are nobody's then."""
    uids = {pod.uid for pod in pods}
    placements = tuple(one for one in plan.placements if one.pod_uid in uids)
    unplaced = tuple(one for one in plan.unplaced if one.pod_uid in uids)
    cost = sum(one.score for one in placements) + price_left_out(pods, unplaced)
    return replace(plan, placements=placements, unplaced=unplaced, objective=cost, bound=None)


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
