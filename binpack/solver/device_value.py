"""What the free part of one device is worth: a linear program by column generation, solved off line.

``python -m binpack.solver.device_value > binpack/data/device_value.json`` writes the table that the index ships with.

The cluster is one pool of D devices and the demand 1.05 times as large. With x_g pods served of share size g, w whole
devices given, and y_p devices filled by pattern p (a_gp pods of size g side by side)::

    max  sum_g g/1000 x_g + w     x_g <= demand_g,  w <= whole devices wanted,
                                  x_g <= sum_p a_gp y_p,  sum_p y_p + w <= D

Patterns are priced in by an unbounded knapsack in steps of 10 milli-GPU. With the duals s_g of the third row,
``V(r)`` is 1,000 times the best knapsack value of r, and ``V(1000)`` at least 1,000 times the dual of the last row.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ortools.linear_solver import pywraplp

from binpack.index.mix import Mix, default_mix
from fleet.device import WHOLE_MILLI

VOLUME_RATIO: Final = 1.05
STEP_MILLI: Final = 10
_DEVICES: Final = 1000.0
_ROUNDS: Final = 500
_TOLERANCE: Final = 1e-9

Pattern = tuple[tuple[int, int], ...]  # (size in milli-GPU, how many), sizes descending


@dataclass(frozen=True, slots=True, kw_only=True)
class _Duals:
    sizes: Mapping[int, float]
    device: float


def device_values(mix: Mix) -> tuple[tuple[int, float], ...]:
    """Return V as steps (residual from which it holds, value), both in milli-GPU, ascending; below the first it is 0.

    Raises:
        ValueError: The mix asks for no GPU at all, or the solver failed.
    """
    demand: Counter[int] = Counter()
    whole = 0.0
    for shape, n in mix.shapes:
        if shape.count and 0 < shape.milli_gpu < WHOLE_MILLI:
            demand[shape.milli_gpu] += n * shape.count
        elif shape.count:
            whole += n * shape.count
    if not mix.total_milli_gpu:
        raise ValueError("the mix asks for no GPU")
    scale = VOLUME_RATIO * _DEVICES * WHOLE_MILLI / mix.total_milli_gpu
    duals = _solve({size: n * scale for size, n in demand.items()}, whole * scale)
    values, _ = _knapsack(duals.sizes)
    table = [WHOLE_MILLI * value for value in values]
    table[-1] = max(table[-1], WHOLE_MILLI * duals.device)
    steps: list[tuple[int, float]] = []
    last = 0.0
    for index, value in enumerate(table):
        if value > last + 0.01:
            steps.append((index * STEP_MILLI, round(value, 2)))
            last = value
    return tuple(steps)


def _solve(demand: Mapping[int, float], whole: float) -> _Duals:
    patterns: set[Pattern] = {((size, WHOLE_MILLI // size),) for size in demand}
    for _ in range(_ROUNDS):
        duals = _master(demand, whole, sorted(patterns))
        values, chosen = _knapsack(duals.sizes)
        pattern = tuple(sorted(Counter(chosen).items(), reverse=True))
        if values[-1] <= duals.device + _TOLERANCE or pattern in patterns:
            return duals
        patterns.add(pattern)
    raise ValueError(f"column generation did not end within {_ROUNDS} rounds")


def _master(demand: Mapping[int, float], whole: float, patterns: list[Pattern]) -> _Duals:
    solver: Any = pywraplp.Solver("device value", pywraplp.Solver.GLOP_LINEAR_PROGRAMMING)
    served = {size: solver.NumVar(0.0, most, f"x{size}") for size, most in demand.items()}
    filled = [solver.NumVar(0.0, solver.infinity(), f"y{i}") for i in range(len(patterns))]
    given = solver.NumVar(0.0, whole, "w")
    rows = {
        size: solver.Add(
            served[size] <= sum(dict(pattern).get(size, 0) * y for pattern, y in zip(patterns, filled, strict=True))
        )
        for size in demand
    }
    pool = solver.Add(sum(filled) + given <= _DEVICES)
    solver.Maximize(sum(size / WHOLE_MILLI * x for size, x in served.items()) + given)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        raise ValueError("the linear program has no optimum")
    return _Duals(sizes={size: abs(row.dual_value()) for size, row in rows.items()}, device=abs(pool.dual_value()))


def _knapsack(worth: Mapping[int, float]) -> tuple[list[float], list[int]]:
    """Return the best value for every residual in steps, and the sizes that fill a whole device best."""
    steps = WHOLE_MILLI // STEP_MILLI
    values, last = [0.0] * (steps + 1), [0] * (steps + 1)
    for room in range(1, steps + 1):
        values[room] = values[room - 1]
        for size in sorted(worth, reverse=True):
            need = -(-size // STEP_MILLI)
            if need <= room and values[room - need] + worth[size] > values[room] + _TOLERANCE:
                values[room], last[room] = values[room - need] + worth[size], size
    chosen: list[int] = []
    room = steps
    while room > 0:
        if last[room]:
            chosen.append(last[room])
            room -= -(-last[room] // STEP_MILLI)
        else:
            room -= 1
    return values, chosen


if __name__ == "__main__":
    json.dump({"columns": ["residual_milli", "value_milli"], "steps": device_values(default_mix())}, sys.stdout)
    sys.stdout.write("\n")
