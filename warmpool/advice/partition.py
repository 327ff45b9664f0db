"""The choice of pools: each demand in exactly one of them, at the least cost. The only file here that knows OR-Tools.

Set partitioning: min sum c_p y_p with sum over the pools p that serve d of y_p = 1 for every demand d, y binary.
"""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from warmpool.advice.values import Candidate

_UNITS = 1_000_000  # costs become integers: in millionths of the dearest candidate


def choose(
    candidates: Sequence[Candidate], demands: Sequence[str], *, most_pools: int, pool_cost: float, budget_s: float
) -> tuple[tuple[int, ...], bool]:
    """Return which candidates to take, and whether that is proven best; none where no choice serves all demands.

    Args:
        candidates: Pools that there could be.
        demands: Names; each must be served by one pool.
        most_pools: At most this many.
        pool_cost: What one more pool must save per hour to be worth having.
        budget_s: Deterministic time for the solver.
    """
    prices = [candidate.cost.hour_cost + pool_cost for candidate in candidates]
    scale = _UNITS / max([*prices, 1e-9])
    model = cp_model.CpModel()
    taken = [model.new_bool_var(f"pool_{number}") for number in range(len(candidates))]
    for demand in demands:
        serving = [taken[number] for number, candidate in enumerate(candidates) if demand in candidate.serves]
        model.add_exactly_one(serving)
    model.add(sum(taken) <= most_pools)
    model.minimize(sum(round(price * scale) * used for price, used in zip(prices, taken, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = budget_s
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return (), False
    return tuple(number for number, used in enumerate(taken) if solver.value(used)), status == cp_model.OPTIMAL
