"""provisional"""

from __future__ import annotations

from collections.abc import Sequence

from binpack.check import check
from binpack.config import PlannerSettings
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.world import World
from binpack.solver.process import SolverProcess
from fleet.plan import Placement, Plan
from fleet.pod import Pod


class Decider:
    def __init__(self, solver: SolverProcess, settings: PlannerSettings, metrics: PlannerMetrics) -> None:
        self._metrics = metrics

    async def __call__(self, world: World, batch: Sequence[Pod]) -> Plan:
        world.refresh()
        placements, unplaced = [], []
        pods = {pod.uid: pod for pod in batch}
        for pod in batch:
            answer = world.index.place(pod)
            if isinstance(answer, Placement):
                world.index.take(pod, answer.berth)
                placements.append(answer)
            else:
                unplaced.append(answer)
        for placement in placements:
            world.index.give_back(pods[placement.pod_uid], placement.berth)
        plan = Plan(placements=tuple(placements), unplaced=tuple(unplaced))
        states = world.states({p.berth.node for p in placements})
        violations = check(states, batch, plan)
        if violations:
            raise RuntimeError(violations)
        return plan
