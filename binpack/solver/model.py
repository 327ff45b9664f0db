"""Instance -> Solution by CP-SAT: integer uses per pattern, one function per constraint.

Traps this file steps around, all of OR-Tools 9.15: the proto or repr of a variable is never asked for (google/or-tools
#5297); presolve's probing may lose a complete hint and answer UNKNOWN, so probing is off; answers repeat on every
machine only with one worker and a deterministic limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model

from binpack.solver.instance import Budget, Instance, Solution, left_out
from fleet.plan import SolveStatus

_STATUS = {
    cp_model.OPTIMAL: SolveStatus.OPTIMAL,
    cp_model.FEASIBLE: SolveStatus.FEASIBLE,
    cp_model.INFEASIBLE: SolveStatus.INFEASIBLE,
    cp_model.UNKNOWN: SolveStatus.UNKNOWN,
}
_Term = tuple[cp_model.IntVar, int]
_HAS_ANSWER = (SolveStatus.OPTIMAL, SolveStatus.FEASIBLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variables:
    """Uses per column, pods left out per pod group."""

    uses: list[cp_model.IntVar]
    left_out: list[cp_model.IntVar]


def solve(instance: Instance, budget: Budget) -> Solution:
    """Return the best uses of the columns found within the deterministic budget.

    Raises:
        ValueError: CP-SAT refuses the model (an integer overflow, say): an error of whoever built the instance.
    """
    model = cp_model.CpModel()
    variables = _variables(model, instance)
    _each_node_takes_one_column(model, variables, instance)
    _each_pod_stands_once(model, variables, instance)
    _hint(model, variables, instance, instance.hint)

    spent_s, is_proven = 0.0, True
    *higher, lowest = _tiers_left_out(model, variables, instance)
    for tier in higher:
        weight = _sum(_weights_left_out(variables, instance, tier))
        model.minimize(weight)
        solver, status = _run(model, budget.seed, (budget.deterministic_s - spent_s) / 2)
        spent_s += solver.response_proto.deterministic_time
        if status not in _HAS_ANSWER:
            return Solution(status=status, deterministic_s=spent_s)
        is_proven = is_proven and status is SolveStatus.OPTIMAL
        model.add(weight <= round(solver.objective_value))
        model.clear_hints()  # type: ignore[no-untyped-call]
        _hint(model, variables, instance, _values(solver, variables))
    price = instance.unplaced_price
    model.minimize(
        _sum(
            [(use, column.cost) for use, column in zip(variables.uses, instance.columns, strict=True)]
            + [(pods_out, price * weight) for pods_out, weight in _weights_left_out(variables, instance, lowest)]
        )
    )
    solver, status = _run(model, budget.seed, budget.deterministic_s - spent_s)
    spent_s += solver.response_proto.deterministic_time
    if status not in _HAS_ANSWER:
        return Solution(status=status, deterministic_s=spent_s)
    return Solution(
        status=status if is_proven else SolveStatus.FEASIBLE,
        uses=_values(solver, variables),
        objective=round(solver.objective_value),
        bound=round(solver.best_objective_bound) if is_proven else None,
        deterministic_s=spent_s,
    )


def _variables(model: cp_model.CpModel, instance: Instance) -> _Variables:
    uses = [
        model.new_int_var(
            0,
            min(
                instance.node_counts[column.node_group],
                *(instance.pods[group].count // number for group, number in column.takes),
            ),
            "",
        )
        for column in instance.columns
    ]
    return _Variables(uses=uses, left_out=[model.new_int_var(0, group.count, "") for group in instance.pods])


def _each_node_takes_one_column(model: cp_model.CpModel, variables: _Variables, instance: Instance) -> None:
    of_group: list[list[cp_model.IntVar]] = [[] for _ in instance.node_counts]
    for column, use in zip(instance.columns, variables.uses, strict=True):
        of_group[column.node_group].append(use)
    for count, uses in zip(instance.node_counts, of_group, strict=True):
        if uses:
            model.add(cp_model.LinearExpr.sum(uses) <= count)


def _each_pod_stands_once(model: cp_model.CpModel, variables: _Variables, instance: Instance) -> None:
    terms: list[list[cp_model.IntVar]] = [[left_out] for left_out in variables.left_out]
    numbers: list[list[int]] = [[1] for _ in instance.pods]
    for column, use in zip(instance.columns, variables.uses, strict=True):
        for group, number in column.takes:
            terms[group].append(use)
            numbers[group].append(number)
    for pods, uses, weights in zip(instance.pods, terms, numbers, strict=True):
        model.add(_sum(list(zip(uses, weights, strict=True))) == pods.count)


def _tiers_left_out(model: cp_model.CpModel, variables: _Variables, instance: Instance) -> list[int]:
    """Return the tiers in which the hint leaves pods out, highest first; above the first, nothing may be left out.

    A tier that the hint places whole below another one is not given up lightly: it counts as open. The last entry is
    the tier that is priced against the columns' cost.
    """
    missing = left_out(instance, instance.hint)
    top = max((group.tier for group, n in zip(instance.pods, missing, strict=True) if n), default=-1)
    for group, pods_out in zip(instance.pods, variables.left_out, strict=True):
        if group.tier > top:
            model.add(pods_out == 0)
    return sorted({group.tier for group in instance.pods if group.tier <= top}, reverse=True) or [0]


def _weights_left_out(variables: _Variables, instance: Instance, tier: int) -> list[_Term]:
    return [
        (pods_out, group.weight)
        for group, pods_out in zip(instance.pods, variables.left_out, strict=True)
        if group.tier == tier
    ]


def _sum(terms: list[_Term]) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.weighted_sum([variable for variable, _ in terms], [factor for _, factor in terms])


def _hint(model: cp_model.CpModel, variables: _Variables, instance: Instance, uses: tuple[int, ...]) -> None:
    """Hint every variable: a partial hint has to be completed by search and is easily lost."""
    for use, times in zip(variables.uses, uses, strict=True):
        model.add_hint(use, times)
    for pods_out, missing in zip(variables.left_out, left_out(instance, uses), strict=True):
        model.add_hint(pods_out, missing)


def _run(model: cp_model.CpModel, seed: int, deterministic_s: float) -> tuple[cp_model.CpSolver, SolveStatus]:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = max(0.001, deterministic_s)
    solver.parameters.cp_model_probing_level = 0
    outcome = solver.solve(model)
    if outcome not in _STATUS:
        raise ValueError(f"CP-SAT refuses the model: {model.validate()}")
    return solver, _STATUS[outcome]


def _values(solver: cp_model.CpSolver, variables: _Variables) -> tuple[int, ...]:
    return tuple(solver.value(use) for use in variables.uses)
