"""Large neighbourhood: free the movable pods of a few nodes and ask the solver to seat all of them anew.

What the search of the index found is the solver's starting point, a move costs its price, and a pod that stays where
it is costs nothing, so the answer is never worse than the search's and comes with a bound. Pods that the solver's
patterns cannot describe stay where they are. Pure: the solver is a function that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from binpack.demand import UNPLACED_PRICE, demand_milli, hardest_first
from binpack.fit import mismatch, model_rank, serves
from binpack.index import Index
from binpack.index.excerpt import Excerpt
from binpack.repack.nearest import Nearest, Prices
from binpack.repack.occupants import kind_of
from binpack.repack.room import Effort
from binpack.repack.trial import Seating, Shift, Step, Trial
from binpack.repack.values import Movable
from binpack.solver.question import Answer, Kind, Question, Seat
from fleet.device import AskKind
from fleet.plan import Placement, SolveStatus
from fleet.pod import Berth, Pod

Solve = Callable[[Question], Answer]

_MOST_KINDS: Final = 128
_NODES: Final = 6
_MOST_NODES: Final = 16
_NEIGHBOURHOODS: Final = 3
_WAITING_TIER, _PRESENT_TIER = 0, 1
_LEAST_SAVING_MILLI: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """How the solver ended, and what it says of the steps that it was asked about.

    Attributes:
        gap_milli_gpu: By how much any other answer over the same nodes and patterns could cost less; None = not known.
    """

    status: SolveStatus
    gap_milli_gpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Freed:
    """Pods that are seated anew: in groups that share what they ask and, if they have one, the node they are on."""

    movables: tuple[Movable, ...]
    waiting: tuple[Pod, ...]
    kinds: tuple[tuple[Pod, ...], ...]
    home: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What the steps of a trial are to lead to.

    Attributes:
        waiting: Pods to seat; those that the steps leave out may stay out.
        is_gang: Of whom none may be seated unless all are.
        shut: Nodes on which no movable pod may be in the end.
    """

    waiting: tuple[Pod, ...] = ()
    is_gang: bool = False
    shut: frozenset[str] = frozenset()


def improved(trial: Trial, nodes: Iterable[str], aim: Aim, effort: Effort, solve: Solve) -> Proof:
    """Replace the trial's steps by better ones where the solver finds any.

    Args:
        trial: Steps that lead to the aim, or a part of the way.
        nodes: The neighbourhood; nodes that the steps touch belong to it in any case.
        aim: See `Aim`.
        effort: Says what a move costs.
        solve: The solver.
    """
    steps = trial.undo(0)
    names = sorted({*nodes, *_touched(steps)})
    freed = _freed(trial, names, aim.waiting, steps)
    if freed is None:
        trial.redo(steps)
        return Proof(status=SolveStatus.NOT_ASKED)
    question = _question(trial.index, freed, names, steps, aim.shut, effort)
    answer = solve(question)
    trial.redo(steps)
    before = _value(trial, aim, effort)
    proof = Proof(status=answer.status, gap_milli_gpu=answer.gap_milli_gpu)
    if not answer.seats:
        return proof
    trial.undo(0)
    found = _carried_out(trial, freed, question, answer)
    after = _value(trial, aim, effort) if found else before
    if after > before - _LEAST_SAVING_MILLI:
        trial.undo(0)
        trial.redo(steps)
        saved = max(0.0, answer.draft_cost - answer.cost)
        gap = None if answer.gap_milli_gpu is None else answer.gap_milli_gpu + saved
        return Proof(status=answer.status, gap_milli_gpu=gap)
    return proof


def _touched(steps: Iterable[Step]) -> set[str]:
    names: set[str] = set()
    for step in steps:
        if isinstance(step, Shift):
            names |= {step.movable.berth.node, step.target.node}
        else:
            names.add(step.placement.berth.node)
    return names


def _freed(trial: Trial, names: Sequence[str], waiting: tuple[Pod, ...], steps: Sequence[Step]) -> _Freed | None:
    """Return who is seated anew; None where there is nothing that patterns can describe."""
    moved = {step.movable.pod.uid for step in steps if isinstance(step, Shift)}
    services: set[str] = set()
    movables: list[Movable] = []
    present = [one for name in names for one in trial.occupants.on(name)]
    for one in sorted(present, key=lambda one: one.pod.uid not in moved):
        if one.pod.uid not in moved:
            if not trial.allowance.may_leave(one) or one.service in services or _is_beyond(trial.index, one.pod):
                continue
            if not could_come(trial.index, one):
                continue  # no pattern has it where it is
        elif _is_beyond(trial.index, one.pod):
            return None
        services |= {one.service} if one.service else set()
        movables.append(one)
    if not movables or any(_is_beyond(trial.index, pod) for pod in waiting):
        return None
    groups: dict[object, list[Pod]] = {}
    for pod in waiting:
        groups.setdefault((kind_of(pod), ""), []).append(pod)
    kept: list[Movable] = []
    for one in movables:
        group = kind_of(one.pod), one.berth.node
        if group in groups or len(groups) < _MOST_KINDS:
            groups.setdefault(group, []).append(one.pod)
            kept.append(one)
        elif one.pod.uid in moved:
            return None
    homes = {one.pod.uid: one.berth.node for one in kept}
    kinds = tuple(map(tuple, groups.values()))
    return _Freed(
        movables=tuple(kept),
        waiting=waiting,
        kinds=kinds,
        home=tuple(homes.get(kind[0].uid, "") for kind in kinds),
    )


def _is_beyond(index: Index, pod: Pod) -> bool:
    """Return True for a pod that patterns cannot describe."""
    ask = pod.ask
    is_special = ask is not None and (ask.kind is AskKind.PARTITION or bool(ask.alternatives))
    return is_special or bool(pod.resource_claims) or bool(pod.problems) or index.company.is_involved(pod)


def could_come(index: Index, one: Movable) -> bool:
    """Return True if the pod would be let onto its own berth today: nodes are cordoned, pods grow, cards fall ill."""
    arrays, slot = index.arrays, index.arrays.slots.get(one.berth.node)
    node = None if slot is None else arrays.nodes[slot]
    if slot is None or node is None or mismatch(one.pod, node) is not None:
        return False
    free = (arrays.milli_cpu[slot], arrays.memory_bytes[slot], arrays.pod_slots[slot])
    if min(free) < 0 or int(arrays.free_milli[slot].min()) < 0 or int(arrays.free_mib[slot].min()) < 0:
        return False
    ask, there = one.pod.ask, {device.id: device for device in node.devices}
    if ask is None:
        return True
    held = [there[name] for name in one.berth.devices if name in there]
    return serves(ask, node) and all(
        device.is_healthy and device.partitions is None and model_rank(ask, device.model) is not None for device in held
    )


def _question(
    index: Index,
    freed: _Freed,
    names: Sequence[str],
    steps: Sequence[Step],
    shut: frozenset[str],
    effort: Effort,
) -> Question:
    for one in freed.movables:
        index.give_back(one.pod, one.berth)
    excerpt = index.excerpt([(kind[0], 1) for kind in freed.kinds], 0, names)
    for one in freed.movables:
        index.take(one.pod, one.berth)
    assert excerpt is not None
    excerpt = _with_moves_priced(excerpt, freed.home, shut, effort.move_price)
    place = {name: number for number, name in enumerate(excerpt.names)}
    number_of = {pod.uid: number for number, kind in enumerate(freed.kinds) for pod in kind}
    berths = {one.pod.uid: one.berth for one in freed.movables}
    for step in steps:
        pod, berth = (step.movable.pod, step.target) if isinstance(step, Shift) else (step.pod, step.placement.berth)
        berths[pod.uid] = berth
    return Question(
        excerpt=excerpt,
        kinds=tuple(
            Kind(
                pod=Pod(uid="", name="", requests=kind[0].requests, ask=kind[0].ask),
                uids=tuple(pod.uid for pod in kind),
                tier=_PRESENT_TIER if home else _WAITING_TIER,
                demand=demand_milli(kind[0]),
            )
            for kind, home in zip(freed.kinds, freed.home, strict=True)
        ),
        seats=tuple(_seat(excerpt, place, number_of[uid], berth) for uid, berth in berths.items()),
        unplaced_price=UNPLACED_PRICE,
    )


def _seat(excerpt: Excerpt, place: Mapping[str, int], kind: int, berth: Berth) -> Seat:
    node = place[berth.node]
    return Seat(kind=kind, node=node, positions=tuple(map(excerpt.device_ids[node].index, berth.devices)))


def _with_moves_priced(excerpt: Excerpt, home: Sequence[str], shut: frozenset[str], price: float) -> Excerpt:
    """Return the excerpt with the price of a move on every node but the one that a pod is on, and no way to shut ones.

    Where it is a pod may stay, whatever the node would say to it as a new one.
    """
    surcharge = excerpt.surcharges().copy()
    for row, node in enumerate(home):
        if node:
            is_home = np.array([name == node for name in excerpt.names])
            surcharge[row] = np.where(is_home, np.nan_to_num(surcharge[row], posinf=0.0), surcharge[row] + price)
    surcharge[:, [name in shut for name in excerpt.names]] = np.inf
    return replace(excerpt, surcharge=surcharge.tobytes())


def _value(trial: Trial, aim: Aim, effort: Effort) -> float:
    """Return what the trial's state costs: potential, moves, and waiting pods left out, milli-GPU."""
    seated = {step.pod.uid for step in trial.steps if isinstance(step, Seating)}
    missing = [pod for pod in aim.waiting if pod.uid not in seated]
    if aim.is_gang and 0 < len(missing) < len(aim.waiting):
        return np.inf
    left_out = sum(UNPLACED_PRICE * demand_milli(pod) for pod in missing)
    return trial.index.potential() + effort.move_price * len(trial.shifts) + left_out


def _carried_out(trial: Trial, freed: _Freed, question: Question, answer: Answer) -> bool:
    """Book the answer in an order in which every move has room; False where there is none, or beyond the allowance."""
    waiting = [list(kind) for kind in freed.kinds]
    by_uid = {one.pod.uid: one for one in freed.movables}
    moves: list[tuple[Movable, int]] = []
    seats: list[tuple[Pod, int]] = []
    for seat in answer.seats:
        name = question.excerpt.names[seat.node]
        pod = waiting[seat.kind].pop(0)
        if not freed.home[seat.kind]:
            seats.append((pod, trial.index.slot(name)))
        elif name != freed.home[seat.kind]:
            moves.append((by_uid[pod.uid], trial.index.slot(name)))
    while moves:
        remaining = [move for move in moves if not _shifted(trial, *move)]
        if len(remaining) == len(moves):
            return False
        moves = remaining
    for pod, slot in seats:
        placement = trial.berth_for(pod, only=slot)
        if placement is None:
            return False
        trial.seat(pod, placement)
    return True


def _shifted(trial: Trial, movable: Movable, slot: int) -> bool:
    if not trial.allowance.may_leave(movable) or slot in trial.closed():
        return False
    placement: Placement | None = trial.berth_for(movable.pod, only=slot)
    if placement is None:
        return False
    trial.shift(movable, placement.berth)
    return True


def neighbourhoods(trial: Trial, aim: Aim, effort: Effort) -> Iterator[tuple[str, ...]]:
    """Yield nodes to look at together: those nearest to fitting a waiting pod, and where their pods could go.

    Each further neighbourhood holds the next nearest ones; without waiting pods there is one, of no further nodes.
    """
    if not aim.waiting:
        yield ()
        return
    seated = {step.pod.uid for step in trial.steps if isinstance(step, Seating)}
    pod = min(aim.waiting, key=lambda one: (one.uid in seated, hardest_first(one)))
    prices = Prices.of(trial.index, trial.occupants)
    nearest = Nearest(trial.index, trial.occupants, prices, pod, move_price=effort.move_price, is_deep=True)
    clearings = nearest.clearings(_NODES * _NEIGHBOURHOODS)
    for start in range(0, max(1, len(clearings)), _NODES):
        chosen = clearings[start : start + _NODES]
        names = [trial.index.arrays.name(clearing.slot) for clearing in chosen]
        members = {kind_of(one.pod): one.pod for clearing in chosen for one in clearing.members}
        for example in members.values():
            names += [option.berth.node for option in trial.index.options(example, 1)]
        yield tuple(dict.fromkeys(names))[:_MOST_NODES]
