"""The independent verifier of moves: it shares no line with the index, the search or the solver.

Every move is booked as it would be carried out, the new berth first, on states of its own making; the plan checker
judges each berth. A plan with a violation is never carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum

from binpack.check import check
from binpack.dra.check import Published, check_claims
from binpack.dra.wishes import imagined
from binpack.repack.values import Movable, Move, MoveBudget, MovePlan
from binpack.state import DeviceState, NodeState
from fleet.berths import locate
from fleet.device import AskKind, DeviceAsk, Partition
from fleet.dra import ClaimChoice, PodClaim
from fleet.plan import Placement, Plan, Violation
from fleet.pod import Berth, Pod
from fleet.resources import Resources, extended_of


class MoveRule(StrEnum):
    """The rules beside those of a plan."""

    NOT_MOVABLE = "pod may not be moved"
    MOVED_TWICE = "pod is moved more than once"
    NOT_THERE = "pod does not hold the berth that it is to leave"
    SAME_NODE = "pod is moved to the node that it is on"
    TOO_MANY = "more moves than the budget allows"
    SERVICE = "more replicas of one service moved than its budget allows"


def check_moves(
    states: Mapping[str, NodeState],
    movables: Iterable[Movable],
    waiting: Iterable[Pod],
    plan: MovePlan,
    budget: MoveBudget | None = None,
    published: Published | None = None,
) -> tuple[Violation, ...]:
    """Return every rule that the moves break; empty = they may be carried out in their order.

    Args:
        states: What is free before the first move, at least on every node that the plan names.
        movables: All that may be moved.
        waiting: The pods that the plan places or leaves out.
        plan: The plan.
        budget: None = as many moves as there are.
        published: What is known of devices for resource claims; None = no claims are judged.
    """
    by_uid = {movable.pod.uid: movable for movable in movables}
    now = dict(states)
    claims = None if published is None else _Claims(published)
    found: list[Violation] = []
    for move in plan.moves:
        movable = by_uid.pop(move.pod_uid, None)
        wrong = _wrong(move, movable, plan)
        if wrong is None and movable is not None:
            found += _carried_out(now, movable.pod, move)
            found += () if claims is None else claims.carried_out(movable.pod, move)
        elif wrong is not None:
            found.append(Violation(pod_uid=move.pod_uid, node=move.source.node, rule=wrong))
    if plan.placements:
        after = Plan(placements=plan.placements, unplaced=plan.unplaced)
        found += check(now, tuple(waiting), after)
        found += () if claims is None else check_claims(after, tuple(waiting), claims.now)
    return tuple(found) + (() if budget is None else _beyond(budget, plan, movables))


class _Claims:
    """Resource claims while moves are carried out: the successor's are made anew, the pod's own go with it."""

    def __init__(self, published: Published) -> None:
        self.now = replace(published, slices=tuple(published.slices))

    def carried_out(self, pod: Pod, move: Move) -> tuple[Violation, ...]:
        """Give the successor's claims their devices beside those of the pod, then free these."""
        if not pod.resource_claims:
            return ()
        claims = dict(self.now.claims)
        old = {(claim.namespace, claim.name): claim for claim in claims.values()}
        made: list[PodClaim] = []
        given = {choice.claim_uid: choice for choice in move.target.choices}
        choices: list[ClaimChoice] = []
        for one in pod.resource_claims:
            before = old.get((pod.namespace, one.like))
            if one.is_none or before is None:
                made.append(one)
                continue
            new = replace(before, uid=f"new {before.uid}", name=f"new {before.name}", allocation=None, reserved_for=())
            claims[new.uid] = new
            made.append(PodClaim(name=one.name, claim=new.name))
            choice = given.pop(imagined(before.uid), None)
            choices += [] if choice is None else [replace(choice, claim_uid=new.uid)]
        choices += given.values()
        self.now = replace(self.now, claims=claims)
        berth = replace(move.target, choices=tuple(choices))
        plan = Plan(placements=(Placement(pod_uid=pod.uid, berth=berth),))
        found = check_claims(plan, (replace(pod, resource_claims=tuple(made)),), self.now)
        for choice in choices:
            if choice.claim_uid in claims:
                claims[choice.claim_uid] = replace(claims[choice.claim_uid], allocation=choice.allocation)
        for choice in move.source.choices:
            claims.pop(choice.claim_uid, None)
        return found


def _wrong(move: Move, movable: Movable | None, plan: MovePlan) -> MoveRule | None:
    if movable is None:
        moved = sum(other.pod_uid == move.pod_uid for other in plan.moves)
        return MoveRule.MOVED_TWICE if moved > 1 else MoveRule.NOT_MOVABLE
    if movable.berth != move.source:
        return MoveRule.NOT_THERE
    return MoveRule.SAME_NODE if move.source.node == move.target.node else None


def _carried_out(now: dict[str, NodeState], pod: Pod, move: Move) -> list[Violation]:
    """Book the new berth, then free the old one; a pod that is marked where it is may be where it is."""
    placement = Placement(pod_uid=pod.uid, berth=move.target)
    found = check(now, (pod,), Plan(placements=(placement,)))
    if found:
        return list(found)
    now[move.target.node] = _booked(now[move.target.node], pod, move.target, 1)
    if move.source.node in now:
        now[move.source.node] = _booked(now[move.source.node], pod, move.source, -1)
    return []


def _booked(state: NodeState, pod: Pod, berth: Berth, sign: int) -> NodeState:
    """Return the node with the pod on it (sign 1) or off it (-1)."""
    free, asked = state.free, pod.requests
    amounts = Counter(dict(free.extended))
    for name, amount in asked.extended:
        amounts[name] -= sign * amount
    devices = state.devices if pod.ask is None else _devices(state.devices, pod.ask, berth, sign)
    return replace(
        state,
        free=Resources(
            milli_cpu=free.milli_cpu - sign * asked.milli_cpu,
            memory_bytes=free.memory_bytes - sign * asked.memory_bytes,
            pod_slots=free.pod_slots - sign * asked.pod_slots,
            extended=extended_of(amounts),
        ),
        devices=devices,
    )


def _devices(devices: tuple[DeviceState, ...], ask: DeviceAsk, berth: Berth, sign: int) -> tuple[DeviceState, ...]:
    if ask.kind is AskKind.CLASSIC:
        wanted = [one.device.id for one in devices if (one.users == 0) == (sign > 0) and one.device.is_healthy]
        return tuple(_given(one, ask, sign) if one.device.id in wanted[: ask.count] else one for one in devices)
    inventory = [one.device for one in devices]
    held = dict(locate(name, inventory) for name in berth.devices)
    return tuple(_given(one, ask, sign, held[one.device.id]) if one.device.id in held else one for one in devices)


def _given(one: DeviceState, ask: DeviceAsk, sign: int, partition: Partition | None = None) -> DeviceState:
    if partition is not None:
        kept = [other for other in one.partitions if other != partition] + [partition] * (sign > 0)
        return replace(one, users=one.users + sign, partitions=tuple(sorted(kept)))
    mib = one.free_mib
    if mib is not None:
        whole = one.device.memory_mib or mib
        mib -= sign * (whole if ask.kind is not AskKind.SHARE else ask.memory_mib)
    return replace(one, users=one.users + sign, free_milli=one.free_milli - sign * ask.milli_gpu, free_mib=mib)


def _beyond(budget: MoveBudget, plan: MovePlan, movables: Iterable[Movable]) -> tuple[Violation, ...]:
    services = {movable.pod.uid: movable.service for movable in movables}
    moved = Counter[str]()
    found: list[Violation] = []
    for number, move in enumerate(plan.moves):
        service = services.get(move.pod_uid, "")
        moved[service] += 1
        if service and moved[service] > budget.allowed.get(service, budget.per_service):
            found.append(Violation(pod_uid=move.pod_uid, node=move.source.node, rule=MoveRule.SERVICE))
        if number >= budget.pods_per_hour:
            found.append(Violation(pod_uid=move.pod_uid, node=move.source.node, rule=MoveRule.TOO_MANY))
    return tuple(found)
