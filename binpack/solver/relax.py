"""Prices of pods, nodes and reserves: the duals of an instance's linear relaxation.

They steer the search for further columns, and they let CP-SAT see the relaxation's bound at once (see `model`).
Any prices are valid there, so rounding them, or having none, costs time and never correctness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ortools.linear_solver import pywraplp

from binpack.solver.instance import Column, Instance

# GLOP, given costs of a million beside costs of one, gives up on some instances; CLP does not.
_SOLVER: Final = "CLP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What one more pod to place, one node and one broken reserve are worth, in the unit of cost, rounded.

    Nodes and reserves are <= 0: using one up is paid for.
    """

    pods: tuple[int, ...]
    nodes: tuple[int, ...]
    reserves: tuple[int, ...]

    def reduced(self, column: Column) -> int:
        """Return what the column costs beyond what its pods are worth; below 0 it would improve the relaxation."""
        worth = sum(self.pods[group] * number for group, number in column.takes) + self.nodes[column.node_group]
        return column.cost - worth - sum(self.reserves[reserve] for reserve in column.breaks)


def no_prices(instance: Instance) -> Prices:
    """Return prices that say nothing."""
    return Prices(
        pods=(0,) * len(instance.pods), nodes=(0,) * len(instance.node_counts), reserves=(0,) * len(instance.spare)
    )


def prices(instance: Instance) -> Prices:
    """Return the duals of the relaxation; none where the linear solver fails. The order of tiers is left aside."""
    solver: Any = pywraplp.Solver.CreateSolver(_SOLVER)  # type: ignore[no-untyped-call]
    if solver is None:
        return no_prices(instance)
    endless = solver.infinity()
    pods = [solver.Constraint(group.count, group.count) for group in instance.pods]
    nodes = [solver.Constraint(-endless, count) for count in instance.node_counts]
    reserves = [solver.Constraint(-endless, spare) for spare in instance.spare]
    goal = solver.Objective()
    for row, group in zip(pods, instance.pods, strict=True):
        left_out = solver.NumVar(0, endless, "")
        row.SetCoefficient(left_out, 1)
        goal.SetCoefficient(left_out, instance.unplaced_price * group.demand)
    for row in reserves:
        overdrawn = solver.NumVar(0, endless, "")
        row.SetCoefficient(overdrawn, -1)
        goal.SetCoefficient(overdrawn, instance.reserve_price)
    for column in instance.columns:
        use = solver.NumVar(0, endless, "")
        nodes[column.node_group].SetCoefficient(use, 1)
        for group_number, number in column.takes:
            pods[group_number].SetCoefficient(use, number)
        for reserve in column.breaks:
            reserves[reserve].SetCoefficient(use, 1)
        goal.SetCoefficient(use, column.cost)
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return no_prices(instance)
    return Prices(
        pods=tuple(round(row.dual_value()) for row in pods),
        nodes=tuple(min(0, round(row.dual_value())) for row in nodes),
        reserves=tuple(max(-instance.reserve_price, min(0, round(row.dual_value()))) for row in reserves),
    )
