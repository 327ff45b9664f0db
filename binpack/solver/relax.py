"""Prices of pods, nodes and reserves: the duals of an instance's linear relaxation.

They steer the search for further columns, and they let CP-SAT see the relaxation's bound at once (see `model`).
Any prices are valid there, so rounding them, or having none, costs time and never correctness.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    Attributes:
        uses: How often the relaxation uses each column; empty where it was not solved.
    """

    pods: tuple[int, ...]
    nodes: tuple[int, ...]
    reserves: tuple[int, ...]
    uses: tuple[float, ...] = ()

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
    return Relaxation().prices(instance)


class Relaxation:
    """The linear program of an instance that gains columns: what was solved before is where the next solve begins."""

    def __init__(self) -> None:
        self._solver: Any = pywraplp.Solver.CreateSolver(_SOLVER)  # type: ignore[no-untyped-call]
        self._uses: list[Any] = []
        self._costs: list[int] = []
        self._pods: list[Any] = []
        self._nodes: list[Any] = []
        self._reserves: list[Any] = []

    def prices(self, instance: Instance) -> Prices:
        """Return the duals.

        Args:
            instance: Pods, nodes and reserves as at the first call, and its columns first; their costs may differ.
        """
        if self._solver is None:
            return no_prices(instance)
        if not self._pods:
            self._lay(instance)
        self._add(instance.columns)
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
            return no_prices(instance)
        return Prices(
            pods=tuple(round(row.dual_value()) for row in self._pods),
            nodes=tuple(min(0, round(row.dual_value())) for row in self._nodes),
            reserves=tuple(max(-instance.reserve_price, min(0, round(row.dual_value()))) for row in self._reserves),
            uses=tuple(use.solution_value() for use in self._uses),
        )

    def _lay(self, instance: Instance) -> None:
        solver = self._solver
        endless, goal = solver.infinity(), solver.Objective()
        self._pods = [solver.Constraint(group.count, group.count) for group in instance.pods]
        self._nodes = [solver.Constraint(-endless, count) for count in instance.node_counts]
        self._reserves = [solver.Constraint(-endless, spare) for spare in instance.spare]
        for row, group in zip(self._pods, instance.pods, strict=True):
            left_out = solver.NumVar(0, endless, "")
            row.SetCoefficient(left_out, 1)
            goal.SetCoefficient(left_out, instance.unplaced_price * group.demand)
        for row in self._reserves:
            overdrawn = solver.NumVar(0, endless, "")
            row.SetCoefficient(overdrawn, -1)
            goal.SetCoefficient(overdrawn, instance.reserve_price)

    def _add(self, columns: Sequence[Column]) -> None:
        endless, goal = self._solver.infinity(), self._solver.Objective()
        for number, (use, column) in enumerate(zip(self._uses, columns, strict=False)):
            if column.cost != self._costs[number]:
                goal.SetCoefficient(use, column.cost)
                self._costs[number] = column.cost
        for column in columns[len(self._uses) :]:
            use = self._solver.NumVar(0, endless, "")
            self._nodes[column.node_group].SetCoefficient(use, 1)
            for group_number, number in column.takes:
                self._pods[group_number].SetCoefficient(use, number)
            for reserve in column.breaks:
                self._reserves[reserve].SetCoefficient(use, 1)
            goal.SetCoefficient(use, column.cost)
            self._uses.append(use)
            self._costs.append(column.cost)
