"""Instance -> Solution by CP-SAT: integer uses per pattern, one function per constraint.

CP-SAT is asked about *reduced* costs: with prices from the relaxation, every row turned into an equation and its price
times the row taken out of the objective, what remains is a constant (the relaxation's bound) plus costs that are hardly
ever negative. So the bound is there from the first moment, and a column that costs more than hint and bound lie apart
is in no better answer and is left out.

Traps this file steps around, all of OR-Tools 9.15: the proto or repr of a variable is never asked for (google/or-tools
#5297); presolve's probing may lose a complete hint and answer UNKNOWN, so probing is off; answers repeat on every
machine only with one worker and a deterministic limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from binpack.solver import rounding
from binpack.solver.instance import Budget, Instance, PodGroup, Solution, left_out, overdrawn, value
from binpack.solver.relax import Prices, no_prices
from fleet.plan import SolveStatus

_STATUS = {
    cp_model.OPTIMAL: SolveStatus.OPTIMAL,
    cp_model.FEASIBLE: SolveStatus.FEASIBLE,
    cp_model.INFEASIBLE: SolveStatus.INFEASIBLE,
    cp_model.UNKNOWN: SolveStatus.UNKNOWN,
}
# Of the deterministic time, at most, for the two small instances that rounding begins with.
_ROUNDING_RATIO = 0.1
_Terms = list[tuple[cp_model.IntVar, int]]
_HAS_ANSWER = (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variables:
    """Uses per column; per pod group, node group and reserve what its row leaves open; reserves broken too often."""

    uses: list[cp_model.IntVar]
    left_out: list[cp_model.IntVar]
    idle: list[cp_model.IntVar]
    spared: list[cp_model.IntVar]
    overdrawn: list[cp_model.IntVar]


def solve(instance: Instance, budget: Budget, prices: Prices | None = None, *, near_enough: int = 0) -> Solution:
    """Return the best uses of the columns found within the deterministic budget.

    Args:
        instance: Its hint must be feasible.
        budget: Wall time is not looked at.
        prices: Of the instance's relaxation; None = none are known.
        near_enough: An answer proven to lie no further from the optimum counts as optimal.

    Raises:
        ValueError: CP-SAT refuses the model (an integer overflow, say): an error of whoever built the instance.
    """
    prices = prices or no_prices(instance)
    *higher, _ = _open_tiers(instance)
    spent_s, rounded = 0.0, None
    if not higher:
        hint, spent_s = _rounded(instance, budget, prices, near_enough)
        instance = replace(instance, hint=hint)
        gap = _gap(instance, prices)
        rounded = Solution(
            status=SolveStatus.OPTIMAL if gap <= near_enough else SolveStatus.FEASIBLE,
            uses=hint,
            bound=value(instance, hint) - gap,
            deterministic_s=spent_s,
        )
        # The whole is harder than its parts: with less time left than they took it is not begun.
        if gap <= near_enough or budget.deterministic_s - spent_s < spent_s:
            return rounded
    kept = list(range(len(instance.columns))) if higher else _worth_keeping(instance, prices)
    small = replace(
        instance,
        columns=tuple(instance.columns[column] for column in kept),
        hint=tuple(instance.hint[column] for column in kept),
    )
    solution = _solve(small, budget, prices, higher, near_enough, spent_s)
    if not solution.uses:
        if rounded is None or solution.status is not SolveStatus.UNKNOWN:
            return solution
        return replace(rounded, deterministic_s=solution.deterministic_s)
    uses = [0] * len(instance.columns)
    for column, times in zip(kept, solution.uses, strict=True):
        uses[column] = times
    return replace(solution, uses=tuple(uses))


def _rounded(instance: Instance, budget: Budget, prices: Prices, near_enough: int) -> tuple[tuple[int, ...], float]:
    """Return the hint, or what rounding the relaxation makes better, and the deterministic time that it took.

    First everything that the relaxation uses in full is settled. What that leaves out, or pays for that the relaxation
    does not, is mended with more left open: the patterns of the kinds of pods left out, then those of all kinds that
    the relaxation places in part.
    """
    best, spent_s = instance.hint, 0.0
    whole = rounding.floors(prices.uses)
    start, kinds = whole, frozenset[int]()
    is_last = not whole
    while not is_last:
        part = rounding.part(instance, rounding.freed(instance, whole, kinds), start)
        if part is None:
            break
        is_last = bool(kinds) and kinds == rounding.open_kinds(instance, prices.uses)
        left_s = budget.deterministic_s - spent_s
        within_s = left_s if is_last else min(left_s, _ROUNDING_RATIO * budget.deterministic_s)
        solution = _solve(part.instance, replace(budget, deterministic_s=within_s), prices, (), near_enough)
        spent_s += solution.deterministic_s
        if not solution.uses:
            break
        start = part.whole(solution.uses)
        missing = left_out(instance, start)
        is_allowed = not any(n and group.tier for group, n in zip(instance.pods, missing, strict=True))
        if is_allowed and value(instance, start) < value(instance, best):
            best = start
        if _gap(replace(instance, hint=best), prices) <= near_enough:
            break
        still_out = frozenset(group for group, n in enumerate(missing) if n)
        kinds = still_out if not kinds and still_out else rounding.open_kinds(instance, prices.uses)
        is_last = is_last or not kinds
    return best, spent_s


def _gap(instance: Instance, prices: Prices) -> int:
    """Return how far the hint may lie above the optimum, as the relaxation alone proves it."""
    return value(instance, instance.hint) - _constant(instance, prices) - _floor(instance, prices)


def _solve(
    instance: Instance,
    budget: Budget,
    prices: Prices,
    higher: Sequence[int],
    near_enough: int,
    spent_s: float = 0.0,
) -> Solution:
    model = cp_model.CpModel()
    variables = _variables(model, instance)
    _each_node_takes_one_column(model, variables, instance)
    _each_pod_stands_once(model, variables, instance)
    _reserves_are_spared_or_paid(model, variables, instance)
    _hint(model, variables, instance)
    for group, pods_out in zip(instance.pods, variables.left_out, strict=True):
        if group.tier > max(higher, default=0):
            model.add(pods_out == 0)

    is_proven = True
    for tier in higher:
        demand = _sum(_demand_left_out(variables, instance, tier))
        model.minimize(demand)
        solver, status = _run(model, budget.seed, (budget.deterministic_s - spent_s) / 2)
        spent_s += solver.response_proto.deterministic_time
        if status not in _HAS_ANSWER:
            return Solution(status=status, deterministic_s=spent_s)
        is_proven = is_proven and status is SolveStatus.OPTIMAL
        model.add(demand <= round(solver.objective_value))
        model.clear_hints()  # type: ignore[no-untyped-call]
        instance = replace(instance, hint=_values(solver, variables))
        _hint(model, variables, instance)
    terms, constant = _reduced_cost(variables, instance, prices)
    floor = _floor(instance, prices, max(higher, default=0))
    goal = model.new_int_var(floor, max(floor, value(instance, instance.hint) - constant), "")
    model.add(_sum([*terms, (goal, -1)]) == 0)
    model.add_hint(goal, value(instance, instance.hint) - constant)
    model.minimize(goal)
    solver, status = _run(model, budget.seed, budget.deterministic_s - spent_s, near_enough=near_enough)
    spent_s += solver.response_proto.deterministic_time
    if status not in _HAS_ANSWER:
        return Solution(status=status, deterministic_s=spent_s)
    return Solution(
        status=status if is_proven else SolveStatus.FEASIBLE,
        uses=_values(solver, variables),
        bound=max(floor, round(solver.best_objective_bound)) + constant if is_proven else None,
        deterministic_s=spent_s,
    )


def _open_tiers(instance: Instance) -> list[int]:
    """Return the tiers to settle one after another: from the highest in which the hint leaves pods out, down to 0.

    Above that one nothing is left out, and nothing may be.
    """
    missing = left_out(instance, instance.hint)
    top = max((group.tier for group, n in zip(instance.pods, missing, strict=True) if n), default=0)
    return [*sorted({group.tier for group in instance.pods if 0 < group.tier <= top}, reverse=True), 0]


def _worth_keeping(instance: Instance, prices: Prices) -> list[int]:
    """Return the columns that may be in an answer better than the hint, and the hint's own."""
    gap = _gap(instance, prices)
    return [
        number
        for number, column in enumerate(instance.columns)
        if prices.reduced(column) <= gap or instance.hint[number]
    ]


def _floor(instance: Instance, prices: Prices, top: int = 0) -> int:
    """Return below what the reduced cost of no answer falls: nearly 0, and how far below is rounding.

    Args:
        instance: The instance.
        prices: Of its relaxation.
        top: No pod of a higher tier may be left out.
    """
    of_columns = sum(
        min(0, prices.reduced(column)) * _most(instance, number) for number, column in enumerate(instance.columns)
    )
    of_pods = sum(
        min(0, _price_left_out(instance, group) - price) * group.count
        for group, price in zip(instance.pods, prices.pods, strict=True)
        if group.tier <= top
    )
    return of_columns + of_pods


def _price_left_out(instance: Instance, group: PodGroup) -> int:
    return instance.unplaced_price * group.demand if group.tier == 0 else 0


def _constant(instance: Instance, prices: Prices) -> int:
    """Return the prices times the right-hand sides of their rows."""
    return (
        sum(price * group.count for price, group in zip(prices.pods, instance.pods, strict=True))
        + sum(price * count for price, count in zip(prices.nodes, instance.node_counts, strict=True))
        + sum(price * spare for price, spare in zip(prices.reserves, instance.spare, strict=True))
    )


def _reduced_cost(variables: _Variables, instance: Instance, prices: Prices) -> tuple[_Terms, int]:
    """Return the objective as terms and a constant: cost, and the price of what the lowest tier leaves out."""
    terms = [(use, prices.reduced(column)) for use, column in zip(variables.uses, instance.columns, strict=True)]
    for pods_out, group, price in zip(variables.left_out, instance.pods, prices.pods, strict=True):
        terms.append((pods_out, _price_left_out(instance, group) - price))
    terms += [(idle, -price) for idle, price in zip(variables.idle, prices.nodes, strict=True)]
    terms += [(spared, -price) for spared, price in zip(variables.spared, prices.reserves, strict=True)]
    for excess, price in zip(variables.overdrawn, prices.reserves, strict=True):
        terms.append((excess, instance.reserve_price + price))
    return [(variable, factor) for variable, factor in terms if factor], _constant(instance, prices)


def _most(instance: Instance, column: int) -> int:
    """Return how often a column can be used."""
    one = instance.columns[column]
    by_pods = min(instance.pods[group].count // number for group, number in one.takes)
    return min(instance.node_counts[one.node_group], by_pods)


def _variables(model: cp_model.CpModel, instance: Instance) -> _Variables:
    often = sum(instance.node_counts)
    return _Variables(
        uses=[model.new_int_var(0, _most(instance, column), "") for column in range(len(instance.columns))],
        left_out=[model.new_int_var(0, group.count, "") for group in instance.pods],
        idle=[model.new_int_var(0, count, "") for count in instance.node_counts],
        spared=[model.new_int_var(0, spare, "") for spare in instance.spare],
        overdrawn=[model.new_int_var(0, often, "") for _ in instance.spare],
    )


def _each_node_takes_one_column(model: cp_model.CpModel, variables: _Variables, instance: Instance) -> None:
    rows: list[_Terms] = [[(idle, 1)] for idle in variables.idle]
    for column, use in zip(instance.columns, variables.uses, strict=True):
        rows[column.node_group].append((use, 1))
    for count, row in zip(instance.node_counts, rows, strict=True):
        model.add(_sum(row) == count)


def _each_pod_stands_once(model: cp_model.CpModel, variables: _Variables, instance: Instance) -> None:
    rows: list[_Terms] = [[(pods_out, 1)] for pods_out in variables.left_out]
    for column, use in zip(instance.columns, variables.uses, strict=True):
        for group, number in column.takes:
            rows[group].append((use, number))
    for pods, row in zip(instance.pods, rows, strict=True):
        model.add(_sum(row) == pods.count)


def _reserves_are_spared_or_paid(model: cp_model.CpModel, variables: _Variables, instance: Instance) -> None:
    rows: list[_Terms] = [
        [(spared, 1), (excess, -1)] for spared, excess in zip(variables.spared, variables.overdrawn, strict=True)
    ]
    for column, use in zip(instance.columns, variables.uses, strict=True):
        for reserve in column.breaks:
            rows[reserve].append((use, 1))
    for spare, row in zip(instance.spare, rows, strict=True):
        model.add(_sum(row) == spare)


def _demand_left_out(variables: _Variables, instance: Instance, tier: int) -> _Terms:
    return [
        (pods_out, group.demand)
        for group, pods_out in zip(instance.pods, variables.left_out, strict=True)
        if group.tier == tier
    ]


def _sum(terms: _Terms) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.weighted_sum([variable for variable, _ in terms], [factor for _, factor in terms])


def _hint(model: cp_model.CpModel, variables: _Variables, instance: Instance) -> None:
    """Hint every variable: a partial hint has to be completed by search and is easily lost."""
    uses, idle = instance.hint, list(instance.node_counts)
    times_broken = [0] * len(instance.spare)
    for column, times in zip(instance.columns, uses, strict=True):
        idle[column.node_group] -= times
        for reserve in column.breaks:
            times_broken[reserve] += times
    spared = [max(0, spare - times) for spare, times in zip(instance.spare, times_broken, strict=True)]
    for group, values in (
        (variables.uses, uses),
        (variables.left_out, left_out(instance, uses)),
        (variables.idle, idle),
        (variables.spared, spared),
        (variables.overdrawn, overdrawn(instance, uses)),
    ):
        for variable, hint in zip(group, values, strict=True):
            model.add_hint(variable, hint)


def _run(
    model: cp_model.CpModel, seed: int, deterministic_s: float, *, near_enough: int = 0
) -> tuple[cp_model.CpSolver, SolveStatus]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = max(0.001, deterministic_s)
    solver.parameters.absolute_gap_limit = near_enough
    # One light round of presolve and the whole relaxation: more presolve eats small budgets and loses the hint.
    solver.parameters.max_presolve_iterations = 1
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    solver.parameters.linearization_level = 2
    outcome = solver.solve(model)
    if outcome not in _STATUS:
        raise ValueError(f"CP-SAT refuses the model: {model.validate()}")
    return solver, _STATUS[outcome]


def _values(solver: cp_model.CpSolver, variables: _Variables) -> tuple[int, ...]:
    return tuple(solver.value(use) for use in variables.uses)
