"""Question -> Answer: patterns, prices, CP-SAT, and back to seats. Runs wherever OR-Tools may be loaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from binpack.solver.instance import Budget, PodGroup, cost, overdrawn, value
from binpack.solver.model import solve as solve_instance
from binpack.solver.patterns import UNIT, Columns, Effort, Seating, generate
from binpack.solver.question import Answer, Question, Seat
from binpack.solver.sketch import Sketch
from fleet.device import AskKind

# Of the cost: to prove the last ten-thousandth of a batch of hundreds of pods took as long as all before it.
_NEAR_ENOUGH_RATIO = 1e-4


def solve(question: Question, budget: Budget, effort: Effort | None = None) -> Answer:
    """Return the best answer found within the deterministic budget; the same on every machine.

    Raises:
        ValueError: CP-SAT refuses the model.
    """
    kinds = question.kinds
    sketch = Sketch(question.excerpt, [kind.pod for kind in kinds], [len(kind.uids) for kind in kinds])
    columns = Columns(
        sketch,
        [PodGroup(count=len(kind.uids), tier=kind.tier, demand=kind.demand) for kind in kinds],
        question.excerpt.reserves,
        question.excerpt.reserve_price,
        question.unplaced_price,
    )
    prices, draft_cost = generate(
        columns, sketch, _draft(question, sketch), effort or Effort.for_batch(sum(len(kind.uids) for kind in kinds))
    )
    instance = columns.instance()
    near_enough = max(UNIT, int(_NEAR_ENOUGH_RATIO * abs(value(instance, instance.hint))))
    solution = solve_instance(instance, budget, prices, near_enough=near_enough)
    answer = Answer(status=solution.status, patterns=len(instance.columns), deterministic_s=solution.deterministic_s)
    if not solution.uses:
        return answer
    return Answer(
        status=solution.status,
        seats=_seats(question, sketch, columns, solution.uses),
        cost=cost(instance, solution.uses) / UNIT,
        draft_cost=draft_cost + instance.reserve_price * sum(overdrawn(instance, instance.hint)) / UNIT,
        gap_milli_gpu=None
        if solution.bound is None
        else max(0, value(instance, solution.uses) - solution.bound) / UNIT,
        patterns=answer.patterns,
        deterministic_s=solution.deterministic_s,
    )


def _draft(question: Question, sketch: Sketch) -> list[Seating]:
    """Return the index's answer by node, in the terms of the sketch."""
    by_node: dict[int, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    for seat in question.seats:
        by_node[seat.node].append((seat.kind, sketch.sketched(seat.node, seat.positions)))
    return [(sketch.group_of(node), tuple(pods)) for node, pods in sorted(by_node.items())]


def _seats(question: Question, sketch: Sketch, columns: Columns, uses: Sequence[int]) -> tuple[Seat, ...]:
    """Return the used columns as seats: the nodes of a group in order of name, the columns in order of number."""
    waiting = [iter(nodes) for nodes in sketch.members]
    found: list[Seat] = []
    for column, trail, times in zip(columns.columns, columns.trails, uses, strict=True):
        for _ in range(times):
            node = next(waiting[column.node_group])
            for kind, positions, price in trail:
                ask = question.kinds[kind].pod.ask
                is_counted = ask is not None and ask.kind is AskKind.CLASSIC
                real = () if is_counted else sketch.positions(node, positions)
                found.append(Seat(kind=kind, node=node, positions=real, cost=price))
    return tuple(found)
