"""The independent verifier of seats for which others are to go: it shares no line with the search for them.

It takes away what the victims hold, frees the claims whose last users they are, and has the verifiers of plans and of
device choices judge every seat as if it were given then. Nobody is asked to go for a seat with a violation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from binpack.books import Holding, account
from binpack.check import check
from binpack.dra.check import DeviceRule, Published, check_claims, claims_after, is_card
from binpack.state import NodeState
from fleet.dra import DeviceResult, DeviceSlice
from fleet.node import Node
from fleet.plan import Placement, Plan, Violation
from fleet.pod import Berth, Phase, Pod

_OVER = (Phase.SUCCEEDED, Phase.FAILED)


class SeatRule(StrEnum):
    """The rules beside those of plans and devices."""

    NOT_LESSER = "victim is as important as whom it is to go for"
    NOT_THERE = "victim holds nothing on a node with a seat"
    TWICE = "victim is named twice"
    GANG_TORN = "victim is of a gang that could not do without it, and others of it stay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A gang of which some are to go.

    Attributes:
        members: All there are, waiting and ended ones too, without those who were asked to go already.
        size: How many it needs at once; 0 = it is none, None = nobody says.
    """

    members: tuple[Pod, ...]
    size: int | None


def check_seats(
    seats: Sequence[tuple[Pod, Berth]],
    victims: Sequence[Pod],
    nodes: Mapping[str, Node],
    staying: Mapping[str, Mapping[str, Holding]],
    published: Published,
    gangs: Collection[Gang] = (),
) -> tuple[Violation, ...]:
    """Return every rule that seats break once their victims are gone; empty = the victims may be asked to go.

    Args:
        seats: (pod, berth) of one unit.
        victims: Who is to go for it.
        nodes: Of the seats, as pods see them.
        staying: By node what is held there by uid, without those who leave already.
        published: What is known of devices for claims; its `going` are those who leave already.
        gangs: Of the victims.
    """
    unit = [pod for pod, _ in seats]
    least = min(pod.priority for pod in unit)
    gone = [victim.uid for victim in victims]
    found = [violation for gang in gangs for violation in _torn(gang, gone)]
    along = _along(gangs, victims, staying)
    for victim in victims:
        there = {name for name, held in staying.items() if victim.uid in held}
        node = next(iter(sorted(there)), "")
        if victim.priority >= least:
            found.append(Violation(pod_uid=victim.uid, node=node, rule=SeatRule.NOT_LESSER))
        if not there and victim.uid not in along:
            found.append(Violation(pod_uid=victim.uid, node=node, rule=SeatRule.NOT_THERE))
        if gone.count(victim.uid) > 1:
            found.append(Violation(pod_uid=victim.uid, node=node, rule=SeatRule.TWICE))
    after = replace(published, slices=tuple(published.slices), going=published.going.union(gone))
    cards = _cards(after)
    states: dict[str, NodeState] = {}
    for name, node_of_name in nodes.items():
        left = [holding for uid, holding in staying.get(name, {}).items() if uid not in gone]
        states[name] = _in_use(account(node_of_name, left).state, cards.get(name, frozenset()))
    plan = Plan(placements=tuple(Placement(pod_uid=pod.uid, berth=berth) for pod, berth in seats))
    found += check(states, unit, plan, together=[{pod.uid for pod in unit}])
    found += check_claims(plan, unit, after)
    found += _beside_records(seats, states)
    return tuple(found)


def _is_running(pod: Pod) -> bool:
    is_placed = not pod.gates and bool(pod.node_name or pod.pinned_node)
    return is_placed and not pod.is_terminating and pod.phase not in _OVER


def _torn(gang: Gang, gone: Sequence[str]) -> list[Violation]:
    """Return the victims of a gang that has members left, but fewer than it needs with those that ended well."""
    left = [pod for pod in gang.members if _is_running(pod) and pod.uid not in gone]
    if gang.size == 0 or not left:
        return []
    owners = {pod.owner.uid for pod in gang.members if pod.owner is not None and pod.phase not in _OVER}
    ended = [pod for pod in gang.members if pod.phase is Phase.SUCCEEDED and pod.owner and pod.owner.uid in owners]
    if gang.size is not None and len(left) + len(ended) >= gang.size:
        return []
    lost = [pod for pod in gang.members if pod.uid in gone]
    return [Violation(pod_uid=pod.uid, node=pod.node_name, rule=SeatRule.GANG_TORN) for pod in lost]


def _along(
    gangs: Collection[Gang], victims: Sequence[Pod], staying: Mapping[str, Mapping[str, Holding]]
) -> frozenset[str]:
    """Return the victims that go because others of their gang go from nodes with seats."""
    there = {uid for held in staying.values() for uid in held}
    gone = {victim.uid for victim in victims}
    found: set[str] = set()
    for gang in gangs:
        mine = {pod.uid for pod in gang.members} & gone
        if mine & there:
            found |= mine
    return frozenset(found)


def _cards(published: Published) -> dict[str, frozenset[str]]:
    """Return by node the names of its GPUs that claims hold then."""
    where = {(one.driver, one.pool): one for one in published.slices}
    found: dict[str, set[str]] = {}
    for claim in claims_after(published.claims, published.going).values():
        for result in claim.allocation.results if claim.allocation is not None else ():
            one = where.get((result.driver, result.pool))
            if one is not None and is_card(result):
                found.setdefault(_node_of(one, result), set()).add(result.device)
    return {name: frozenset(ids) for name, ids in found.items()}


def _node_of(one: DeviceSlice, result: DeviceResult) -> str:
    where = one.where or next((device.where for device in one.devices if device.name == result.device), None)
    return "" if where is None else where.node


def _in_use(state: NodeState, cards: frozenset[str]) -> NodeState:
    """Return the state with these cards used as a whole."""
    devices = tuple(
        replace(one, users=one.users + 1, free_milli=0, free_mib=0) if one.device.id in cards else one
        for one in state.devices
    )
    return replace(state, devices=devices)


def _beside_records(seats: Iterable[tuple[Pod, Berth]], states: Mapping[str, NodeState]) -> list[Violation]:
    """Return where a claim would have a card of a sharing node that a pod holds by its record, or a seat names."""
    found: list[Violation] = []
    recorded = {(berth.node, name) for _, berth in seats for name in berth.devices}
    for pod, berth in seats:
        state = states.get(berth.node)
        if state is None or not state.node.is_sharing:
            continue
        used = {one.device.id for one in state.devices if one.users} | {
            name for node, name in recorded if node == berth.node
        }
        results = (result for choice in berth.choices for result in choice.allocation.results)
        if any(is_card(result) and result.device in used for result in results):
            found.append(Violation(pod_uid=pod.uid, node=berth.node, rule=DeviceRule.DEVICE_HELD))
    return found
