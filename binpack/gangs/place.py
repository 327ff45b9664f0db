"""Places a gang: the index first, for the best berths; where members are left over, a search, for any at all. Pure.

All or nothing: the answer names a berth for every member, or says why there is none, with the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from binpack.demand import hardest_first
from binpack.gangs.apart import misfit, shaken
from binpack.gangs.claims import GangClaims, clashes, pending
from binpack.gangs.room import KNOWN_KINDS
from binpack.gangs.search import seek
from binpack.index import Index
from binpack.state import NodeState
from binpack.wording import amount, plural, sentence
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
        unit: The members to place together, in any order. Berths of those who share a resource claim come in an order
            in which the first that uses it is the one that gets it its devices.
        effort: None = the usual one.
    """
    claims: GangClaims | None = None
    if index.desk is not None and any(pod.resource_claims for pod in unit):
        why = pending(index.desk, unit)
        if why is not None:
            return _refused(unit, why.detail, 0, is_proven=True, reason=why.reason)
        claims = GangClaims(index.desk, unit)
    order, fitted = sorted(unit, key=hardest_first), 0
    for _ in range(_ORDERS):
        placements, left_over, broken = _in_turn(index, order)
        if not (left_over or broken) and not (claims is not None and clashes(placements)):
            return tuple(placements)
        fitted = max(fitted, len(placements))
        if broken and not left_over:  # where they come last they see all the others
            order = [*(pod for pod in order if pod not in broken), *broken]
            continue
        first = {pod.uid for pod in left_over}
        if first == {pod.uid for pod in order[: len(left_over)]}:
            break
        order = [*left_over, *(pod for pod in order if pod.uid not in first)]
    kinds = _kinds(unit, claims)
    hopeless = _alone(index, [members[0] for members in kinds])
    if hopeless is not None:
        return _refused(unit, hopeless.detail, fitted, is_proven=True, reason=hopeless.reason)
    states, is_all = _nodes(index, state_of, kinds, claims)
    is_proven = False
    if all(pod.ask is None or pod.ask.kind in KNOWN_KINDS for pod in unit):
        sought = seek(unit, states, (effort or Effort()).steps, claims)
        stranger = misfit(index.company, [(pod, berth.node) for pod, berth in sought.berths])
        if stranger is not None:  # the search knows nothing of such rules
            text = f"no way was found in which the rules between its members hold: {stranger.name} has no place"
            return _refused(unit, text, fitted, is_proven=False)
        if sought.berths:
            return tuple(Placement(pod_uid=pod.uid, berth=berth) for pod, berth in sought.berths)
        is_proven = sought.is_proven and is_all
    text = _sums(unit, states, fitted, is_proven=is_proven, claims=claims)
    return _refused(unit, text, fitted, is_proven=is_proven)


def _in_turn(index: Index, order: Sequence[Pod]) -> tuple[list[Placement], list[Pod], list[Pod]]:
    """Place the pods one after another by the index.

    Returns:
        The placements, the pods left over, and those placed whose rules do not hold beside the ones after them.
    """
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
        broken = shaken(index.company, [(pod, placement.berth.node) for pod, placement in booked])
    finally:
        for pod, placement in reversed(booked):
            index.give_back(pod, placement.berth)
    return [placement for _, placement in booked], left_over, broken


def _kinds(unit: Sequence[Pod], claims: GangClaims | None) -> list[list[Pod]]:
    """Return the members in groups that fit on the same nodes."""
    kinds: dict[tuple[object, ...], list[Pod]] = {}
    for pod in unit:
        claimed = claims.kind(pod) if claims is not None else ()
        kinds.setdefault((pod.requests, pod.ask, pod.constraints, claimed), []).append(pod)
    return list(kinds.values())


def _alone(index: Index, members: Sequence[Pod]) -> Unplaced | None:
    """Return why a member fits nowhere even alone; None if each of them does."""
    for pod in members:
        answer = index.place(pod)
        if isinstance(answer, Unplaced):
            text = f"member {pod.name} fits nowhere, even alone: {sentence(pod, answer)}"
            # What only kube-scheduler can allocate is not left to it here: it would place members one by one.
            is_unmodelled = answer.reason is Reason.LEFT_TO_SCHEDULER
            reason = Reason.UNMODELLED_CONSTRAINT if is_unmodelled else Reason.GANG_DOES_NOT_FIT
            return Unplaced(pod_uid=pod.uid, reason=reason, detail=text)
    return None


def _nearest(index: Index, pod: Pod, most: int) -> list[str]:
    """Return the nodes for a pod that cost least; its claims are looked for on a few more at every question."""
    before, found = -1, index.nearest(pod, most)
    while pod.resource_claims and before < len(found) < most:
        before, found = len(found), index.nearest(pod, most)
    return found


def _nodes(
    index: Index, state_of: StateOf, kinds: Sequence[Sequence[Pod]], claims: GangClaims | None
) -> tuple[list[NodeState], bool]:
    """Return the nodes to search, and whether these are all that could take any member."""
    names: dict[str, None] = {}
    is_all = True
    for members in kinds:
        most = len(members) + _SPARE_NODES
        found = _nearest(index, members[0], most)
        is_all = is_all and len(found) < most
        names.update(dict.fromkeys(found))
    if claims is not None:
        unit = [pod for members in kinds for pod in members]
        joined = claims.as_one(unit)
        for pod in joined:
            names.update(dict.fromkeys(_nearest(index, pod, len(joined) + _SPARE_NODES)))
    states = [state for state in map(state_of, names) if state is not None]
    return states, is_all and len(states) == len(names)


def _refused(
    unit: Sequence[Pod], text: str, fitted: int, *, is_proven: bool, reason: Reason = Reason.GANG_DOES_NOT_FIT
) -> Refusal:
    return Refusal(
        unplaced=tuple(Unplaced(pod_uid=pod.uid, reason=reason, detail=text) for pod in unit),
        fitted=fitted,
        is_proven=is_proven,
    )


def _sums(
    unit: Sequence[Pod], states: Sequence[NodeState], fitted: int, *, is_proven: bool, claims: GangClaims | None
) -> str:
    """Say how much is asked and free in sum, and how many fit at once: it is the pieces that are wrong."""
    asked, free = [], []
    wanted, there = (0, 0) if claims is None else claims.sums(state.node.name for state in states)
    if not wanted or any(pod.ask is not None for pod in unit):
        asked.append(_gpus(sum(pod.ask.total_milli_gpu for pod in unit if pod.ask is not None)))
        free.append(_gpus(sum(_free_milli(state) for state in states if not state.blocked)))
    if wanted:
        asked.append(f"{plural(wanted, 'device')} by resource claim")
        free.append(plural(there, "such device"))
    asked.append(amount("milli_cpu", sum(pod.requests.milli_cpu for pod in unit)))
    free.append(amount("milli_cpu", sum(max(0, state.free.milli_cpu) for state in states)))
    proof = "" if is_proven else " (no way was found within the time given to the search)"
    pieces = "not in these pieces" + (
        ", or their resource claims get no devices beside each other" if claims is not None else ""
    )
    return (
        f"{fitted} of {len(unit)} members fit at once: {_listed(asked)} asked, {_listed(free)} free "
        f"on nodes that could take one, {pieces}{proof}"
    )


def _free_milli(state: NodeState) -> int:
    return sum(max(0, device.free_milli) for device in state.devices if device.device.is_healthy)


def _listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _gpus(milli: int) -> str:
    return f"{milli / WHOLE_MILLI:g} GPU{'s' if milli != WHOLE_MILLI else ''}"
