"""One batch's decision: the index drafts, the solver may improve, the verifier has the last word."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from binpack.config import PlannerSettings
from binpack.controller.asked import Asked, nodes_of, verified_now
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.queueing import turn_order
from binpack.controller.world import World
from binpack.planner import draft, filled, improve, narrowed, question_of
from binpack.solver.instance import Budget
from binpack.solver.process import SolverProcess
from binpack.solver.question import Question
from fleet.plan import Plan, SolveStatus, Violation
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
        """Return the plan of one batch; it breaks no rule against the cluster as it is known when this returns.

        Pods that went while the solver was thinking, or wish something else now, stand nowhere in it.
        """
        world.refresh()
        # Each pod teaches the demand mix once: those that wait were counted when they came.
        world.index.learn(pod for pod in batch if pod.uid not in world.waiting)
        plan = draft(world.index, batch)
        in_turn = turn_order(world, batch) if plan.unplaced else None
        if in_turn is not None:
            # Who is left out is a matter of fairness now: the solver would seat as much demand as fits, whoever asks.
            return self._judged(world, batch, [draft(world.index, in_turn, in_turn=True)])
        question = question_of(world.index, batch, plan) if self._budget is not None else None
        if question is None or self._budget is None:
            return self._judged(world, batch, [plan])
        return await self._improved(world, batch, plan, question, self._budget)

    async def _improved(
        self, world: World, batch: Sequence[Pod], plan: Plan, question: Question, budget: Budget
    ) -> Plan:
        """Let the solver improve a draft; the cluster goes on while it thinks."""
        asked = Asked.now(world, batch, nodes_of([plan]).union(question.excerpt.names))
        answer = await self._solver.solve(question, budget)
        if answer.status is SolveStatus.LATE_OR_DEAD:
            log.warning("the index's plan stands: %s", answer.detail)
        improved = improve(plan, batch, question, answer)
        world.refresh()
        there = [pod for pod in batch if world.asks_still(pod)]
        if len(there) == len(batch) and asked.holds(world, batch, [improved, plan]):
            return self._judged(world, batch, [filled(world.index, batch, improved), plan])
        sound = asked.verified(world, batch, [improved, plan])
        self._report(sound.violations)
        # Who went keeps nobody from the room that was meant for it.
        return self._renewed(world, there, narrowed(sound.plan, there))

    def _judged(self, world: World, batch: Sequence[Pod], plans: Sequence[Plan]) -> Plan:
        """Return the first of the plans that breaks no rule; they were made for the world as it is now."""
        result = verified_now(world, batch, plans)
        self._report(result.violations)
        if not result.violations:
            return result.plan
        # What did not hold may have room elsewhere, and nothing else would wake it up.
        return verified_now(world, batch, [filled(world.index, batch, result.plan), result.plan]).plan

    def _renewed(self, world: World, batch: Sequence[Pod], plan: Plan) -> Plan:
        """Return a plan that held when it was asked for with those planned again whose berths have gone since."""
        kept = verified_now(world, batch, [plan]).plan
        dropped = _placed(plan) - _placed(kept)
        renewed = filled(world.index, batch, kept)
        if _placed(renewed) != _placed(kept):
            renewed = self._judged(world, batch, [renewed, kept])
        again = len(dropped & _placed(renewed))
        self._metrics.stale.labels("placed-again").inc(again)
        self._metrics.stale.labels("waits").inc(len(dropped) - again)
        return renewed

    def _report(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            self._metrics.violations.inc()
            where = f"{violation.node}/{violation.device}" if violation.device else violation.node
            log.warning("a placement was not used: %s", violation.rule, extra={"where": where})


def _placed(plan: Plan) -> set[str]:
    return {placement.pod_uid for placement in plan.placements}
