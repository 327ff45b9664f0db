"""One batch's decision: the index drafts, the solver may improve, the verifier has the last word."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from binpack.config import PlannerSettings
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.world import World
from binpack.planner import draft, verified
from binpack.solver.process import SolverProcess
from fleet.plan import Plan
from fleet.pod import Pod

log = logging.getLogger(__name__)


class Decider:
    """Joins the pure planner with the solver's child process."""

    def __init__(self, solver: SolverProcess, settings: PlannerSettings, metrics: PlannerMetrics) -> None:
        self._solver = solver
        self._settings = settings
        self._metrics = metrics

    async def __call__(self, world: World, batch: Sequence[Pod]) -> Plan:
        """Return the plan of one batch; it breaks no rule against the cluster as the index knows it now."""
        world.refresh()
        plans = [draft(world.index, batch)]
        names = {placement.berth.node for plan in plans for placement in plan.placements}
        result = verified(plans, batch, world.states(names))
        for violation in result.violations:
            self._metrics.violations.inc()
            log.error(
                "a plan was not used: %s", violation.rule, extra={"node": violation.node, "device": violation.device}
            )
        return result.plan
