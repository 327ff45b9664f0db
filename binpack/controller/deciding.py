"""One batch's decision: the index drafts, the solver may improve, the verifier has the last word."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from binpack.config import PlannerSettings
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.queueing import turn_order
from binpack.controller.world import World
from binpack.planner import draft, filled, improve, question_of, verified
from binpack.solver.instance import Budget
from binpack.solver.process import SolverProcess
from binpack.state import NodeState
from fleet.plan import Plan, SolveStatus
from fleet.pod import Pod

log = logging.getLogger(__name__)

# The solver's time is deterministic; on a busy machine a second of it can take several, and pods wait meanwhile.
_WALL_S_PER_SOLVE_S = 5.0
_LEAST_WALL_S = 2.0


class Decider:
    """Joins the pure planner with the solver's child process.

    At every step there is a complete plan: a solver that is late, dead or without an answer costs its wall time only.
    """

    def __init__(self, solver: SolverProcess, settings: PlannerSettings, metrics: PlannerMetrics) -> None:
        self._solver = solver
        self._metrics = metrics
        self._budget: Budget | None = None
        if settings.solve_s > 0:
            self._budget = Budget(
                deterministic_s=settings.solve_s, wall_s=max(_LEAST_WALL_S, _WALL_S_PER_SOLVE_S * settings.solve_s)
            )

    async def __call__(self, world: World, batch: Sequence[Pod]) -> Plan:
        """Return the plan of one batch; it breaks no rule against the cluster as it is known when this returns."""
        world.refresh()
        # Each pod teaches the demand mix once: those that wait were counted when they came.
        world.index.learn(pod for pod in batch if pod.uid not in world.waiting)
        plans = [draft(world.index, batch)]
        in_turn = turn_order(world, batch) if plans[0].unplaced else None
        if in_turn is not None:
            # Who is left out is a matter of fairness now: the solver would seat as much demand as fits, whoever asks.
            plans, improved = [draft(world.index, in_turn, in_turn=True)], None
        else:
            improved = await self._improved(world, batch, plans[0])
        if improved is not None:
            world.refresh()  # the cluster went on while the solver thought
            plans.insert(0, filled(world.index, batch, improved))
        result = verified(
            plans, batch, _states(world, plans), world.register, world.desk.violations, world.ledger.coming
        )
        for violation in result.violations:
            self._metrics.violations.inc()
            where = f"{violation.node}/{violation.device}" if violation.device else violation.node
            log.warning("a placement was not used: %s", violation.rule, extra={"where": where})
        if not result.violations:
            return result.plan
        # What did not hold may have room elsewhere, and nothing else would wake it up.
        plans = [filled(world.index, batch, result.plan), result.plan]
        return verified(
            plans, batch, _states(world, plans), world.register, world.desk.violations, world.ledger.coming
        ).plan

    async def _improved(self, world: World, batch: Sequence[Pod], plan: Plan) -> Plan | None:
        question = question_of(world.index, batch, plan) if self._budget is not None else None
        if question is None or self._budget is None:
            return None
        answer = await self._solver.solve(question, self._budget)
        if answer.status is SolveStatus.LATE_OR_DEAD:
            log.warning("the index's plan stands: %s", answer.detail)
        return improve(plan, batch, question, answer)


def _states(world: World, plans: Sequence[Plan]) -> dict[str, NodeState]:
    return world.states({placement.berth.node for plan in plans for placement in plan.placements})
