"""The linear programme over fillings of nodes that the bound grows column by column.

With x_kP nodes of kind k filled as P says, worth w_P milli-GPU and holding a_iP pods of kind i::

    max  sum w_P x_kP      sum_P x_kP <= nodes_k      sum_kP a_iP x_kP <= pods_i      x >= 0

It only proposes prices. Whether a limit is proved by them is decided elsewhere, in whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ortools.linear_solver import pywraplp

_SOLVER = "GLOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The optimum over the columns so far, milli-GPU, and the prices of one pod more and one node more, >= 0."""

    objective: float
    of_pods: tuple[float, ...]
    of_nodes: tuple[float, ...]


class FillingsProgram:
    """Grows by columns and keeps them when the numbers of pods change."""

    def __init__(self, nodes: Sequence[int], kinds: int) -> None:
        """Start with no column.

        Args:
            nodes: Nodes of each kind.
            kinds: Kinds of pods.

        Raises:
            RuntimeError: This build of OR-Tools has no linear solver.
        """
        solver: Any = pywraplp.Solver.CreateSolver(_SOLVER)  # type: ignore[no-untyped-call]
        if solver is None:
            raise RuntimeError(f"OR-Tools has no {_SOLVER}")
        self._solver = solver
        self._nodes = [solver.Constraint(0, count) for count in nodes]
        self._pods = [solver.Constraint(0, 0) for _ in range(kinds)]
        solver.Objective().SetMaximization()

    def set_pods(self, counts: Sequence[int]) -> None:
        """Set how many pods of each kind there are."""
        for row, count in zip(self._pods, counts, strict=True):
            row.SetUb(count)

    def add(self, node: int, filling: Sequence[tuple[int, int]], worth_milli: int) -> None:
        """Add a filling of a node kind."""
        use = self._solver.NumVar(0, self._solver.infinity(), "")
        self._nodes[node].SetCoefficient(use, 1)
        for kind, number in filling:
            self._pods[kind].SetCoefficient(use, number)
        self._solver.Objective().SetCoefficient(use, worth_milli)

    def solve(self) -> Proposal | None:
        """Return the optimum, None where the solver finds none."""
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
            return None
        return Proposal(
            objective=self._solver.Objective().Value(),
            of_pods=tuple(max(0.0, row.dual_value()) for row in self._pods),
            of_nodes=tuple(max(0.0, row.dual_value()) for row in self._nodes),
        )
