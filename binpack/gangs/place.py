"""Places a gang: the index first, for the best berths; where members are left over, a search, for any at all. Pure.

All or nothing: the answer names a berth for every member, or says why there is none, with the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from binpack.controller.wording import sentence
from binpack.demand import hardest_first
from binpack.gangs.room import KNOWN_KINDS
from binpack.gangs.search import seek
from binpack.index import Index
from binpack.state import NodeState
from fleet.device import WHOLE_MILLI
from fleet.plan import Placement, Reason, Unplaced
from fleet.pod import Pod

# The index goes through the members again with those first that were left over: mostly that is all it takes.
_ORDERS: Final = 4
# Nodes looked at per kind beyond one for every member: more only matter where the kinds want the same few nodes.
_SPARE_NODES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard to try.

    Attributes:
        steps: Of the search; a tenth of a millisecond of CPU each, more or less.
    """

    steps: int = 8_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a gang is not placed.

    Attributes:
        unplaced: One per member, all with the same reason; `detail` is the sentence.
        fitted: The most members that were seated beside each other.
        is_proven: Nothing was left untried, as far as members and nodes are what they seem.
    """

    unplaced: tuple[Unplaced, ...]
    fitted: int
    is_proven: bool


StateOf = Callable[[str], NodeState | None]


def place(
    index: Index, state_of: StateOf, unit: Sequence[Pod], effort: Effort | None = None
) -> tuple[Placement, ...] | Refusal:
    """Return berths for all members of the unit, or why there are none; nothing is booked.

    Args:
        index: Left as it was.
        state_of: What is free on a node that the index knows.
        unit: The members to place together, in any order.
        effort: None = the usual one.
    """
    order, fitted = sorted(unit, key=hardest_first), 0
    for _ in range(_ORDERS):
        placements, left_over = _in_turn(index, order)
        if not left_over:
            return tuple(placements)
        fitted = max(fitted, len(placements))
        first = {pod.uid for pod in left_over}
        if first == {pod.uid for pod in order[: len(left_over)]}:
            break
        order = [*left_over, *(pod for pod in order if pod.uid not in first)]
    hopeless = _alone(index, unit)
    if hopeless is not None:
        return _refused(unit, hopeless, fitted, is_proven=True)
    states, is_all = _nodes(index, state_of, unit)
    is_proven = False
    if all(pod.ask is None or pod.ask.kind in KNOWN_KINDS for pod in unit):
        sought = seek(unit, states, (effort or Effort()).steps)
        if sought.berths:
            return tuple(Placement(pod_uid=pod.uid, berth=berth) for pod, berth in sought.berths)
        is_proven = sought.is_proven and is_all
    return _refused(unit, _sums(unit, states, fitted, is_proven=is_proven), fitted, is_proven=is_proven)


def _in_turn(index: Index, order: Sequence[Pod]) -> tuple[list[Placement], list[Pod]]:
    """Place the pods one after another by the index; return the placements and the pods left over."""
    booked: list[tuple[Pod, Placement]] = []
    left_over: list[Pod] = []
    try:
        for pod in order:
            answer = index.place(pod, with_shortfall=False)
            if isinstance(answer, Placement):
                index.take(pod, answer.berth)
                booked.append((pod, answer))
            else:
                left_over.append(pod)
    finally:
        for pod, placement in reversed(booked):
            index.give_back(pod, placement.berth)
    return [placement for _, placement in booked], left_over


def _alone(index: Index, unit: Sequence[Pod]) -> str | None:
    """Return why a member fits nowhere even alone; None if each of them does."""
    known: set[tuple[object, ...]] = set()
    for pod in unit:
        kind = (pod.requests, pod.ask, pod.constraints)
        if kind not in known:
            known.add(kind)
            answer = index.place(pod)
            if isinstance(answer, Unplaced):
                return f"member {pod.name} fits nowhere, even alone: {sentence(pod, answer)}"
    return None


def _nodes(index: Index, state_of: StateOf, unit: Sequence[Pod]) -> tuple[list[NodeState], bool]:
    """Return the nodes to search, and whether these are all that could take any member."""
    counts: dict[tuple[object, ...], tuple[Pod, int]] = {}
    for pod in unit:
        kind = (pod.requests, pod.ask, pod.constraints)
        counts[kind] = (pod, counts.get(kind, (pod, 0))[1] + 1)
    names: dict[str, None] = {}
    is_all = True
    for pod, count in counts.values():
        options = index.options(pod, count + _SPARE_NODES)
        is_all = is_all and len(options) < count + _SPARE_NODES
        names.update(dict.fromkeys(option.berth.node for option in options))
    found = [state for state in map(state_of, names) if state is not None]
    return found, is_all and len(found) == len(names)


def _refused(unit: Sequence[Pod], text: str, fitted: int, *, is_proven: bool) -> Refusal:
    return Refusal(
        unplaced=tuple(Unplaced(pod_uid=pod.uid, reason=Reason.GANG_DOES_NOT_FIT, detail=text) for pod in unit),
        fitted=fitted,
        is_proven=is_proven,
    )


def _sums(unit: Sequence[Pod], states: Sequence[NodeState], fitted: int, *, is_proven: bool) -> str:
    """Say how much is asked and free in sum, and how many fit at once: it is the pieces that are wrong."""
    asked = sum(pod.ask.total_milli_gpu for pod in unit if pod.ask is not None)
    cores = sum(pod.requests.milli_cpu for pod in unit)
    free = sum(
        max(0, device.free_milli)
        for state in states
        if not state.blocked
        for device in state.devices
        if device.device.is_healthy
    )
    free_cores = sum(max(0, state.free.milli_cpu) for state in states)
    sums = f"{_gpus(asked)} and {cores / 1000:g} cores asked, {_gpus(free)} and {free_cores / 1000:g} cores free"
    proof = "" if is_proven else " (no way was found within the time given to the search)"
    return (
        f"{fitted} of {len(unit)} members fit at once: {sums} on nodes that could take one, not in these pieces{proof}"
    )


def _gpus(milli: int) -> str:
    return f"{milli / WHOLE_MILLI:g} GPU{'s' if milli != WHOLE_MILLI else ''}"
