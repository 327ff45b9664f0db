"""The solver as a plain function, for whoever may be held up as long as it takes."""

from __future__ import annotations

from collections.abc import Callable

from binpack.solver.instance import Budget
from binpack.solver.question import Answer, Question


def solver(budget: Budget) -> Callable[[Question], Answer]:
    """Return what answers each question within this budget, in this process; OR-Tools is loaded by the first one."""

    def answer(question: Question) -> Answer:
        from binpack.solver.solve import solve

        return solve(question, budget)

    return answer
