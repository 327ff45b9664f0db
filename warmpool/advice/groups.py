"""Which pools are worth a thought: for each shape, groups of demands that could share its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from warmpool.advice.sizing import Hours, node_share
from warmpool.advice.values import Candidate, Demand, NodeShape

_ALL_UP_TO = 8  # demands of which every group is weighed
_MOST_TOGETHER = 3  # of more, groups up to this size, and those that merging the best pairs comes by


def candidates(demands: Sequence[Demand], shapes: Sequence[NodeShape], most_images: int) -> tuple[Candidate, ...]:
    """Return the pools to choose among; each demand alone on today's shape is one of them.

    Args:
        demands: By unlike names.
        shapes: By unlike names.
        most_images: On one node.
    """
    by_name = {demand.name: demand for demand in demands}
    found: dict[tuple[str, tuple[str, ...]], Candidate] = {}
    hours = Hours(demands)
    for shape in shapes:
        able = [demand for demand in demands if node_share(demand, shape) > 0]
        for group in _groups(able, shape, hours):
            candidate = _candidate(shape, [by_name[name] for name in group], hours)
            if len(group) == 1 or len(candidate.images) <= most_images:
                found[shape.name, group] = candidate
    return tuple(found[key] for key in sorted(found))


def today(demands: Sequence[Demand], shapes: Mapping[str, NodeShape]) -> tuple[Candidate, ...]:
    """Return one pool per demand on the shape that serves it today."""
    hours = Hours(demands)
    return tuple(_candidate(shapes[demand.shape], [demand], hours) for demand in demands)


def _candidate(shape: NodeShape, demands: Sequence[Demand], hours: Hours) -> Candidate:
    goal_ratio = max(demand.goal_ratio for demand in demands)
    return Candidate(
        shape=shape,
        serves=tuple(sorted(demand.name for demand in demands)),
        images=tuple(sorted({image for demand in demands for image in demand.images})),
        cost=hours.cost(demands, shape, goal_ratio),
    )


def _groups(able: Sequence[Demand], shape: NodeShape, hours: Hours) -> Iterator[tuple[str, ...]]:
    names = sorted(demand.name for demand in able)
    most = len(names) if len(names) <= _ALL_UP_TO else _MOST_TOGETHER
    for size in range(1, most + 1):
        yield from combinations(names, size)
    if most < len(names):
        yield from _merged(able, shape, hours)


def _merged(able: Sequence[Demand], shape: NodeShape, hours: Hours) -> Iterator[tuple[str, ...]]:
    """Merge, again and again, the two groups that save most together; yield every group on the way."""
    by_name = {demand.name: demand for demand in able}
    costs: dict[tuple[str, ...], float] = {}

    def cost(group: tuple[str, ...]) -> float:
        if group not in costs:
            costs[group] = _candidate(shape, [by_name[name] for name in group], hours).cost.hour_cost
        return costs[group]

    def saved(pair: tuple[tuple[str, ...], tuple[str, ...]]) -> float:
        return cost(pair[0]) + cost(pair[1]) - cost(tuple(sorted(pair[0] + pair[1])))

    groups: list[tuple[str, ...]] = [(name,) for name in sorted(by_name)]
    while len(groups) > 1:
        one, other = max(combinations(groups, 2), key=saved)
        both = tuple(sorted(one + other))
        groups = [group for group in groups if group not in (one, other)] + [both]
        yield both
