"""By which way a pod may be moved now, as its workload says; who is left alone for a while after a refusal."""

from __future__ import annotations

from binpack.controller.budget_feed import Budgets
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.moves import Moves
from binpack.controller.workloads import Workloads
from binpack.relocation.candidates import service_of
from binpack.relocation.record import Way
from binpack.relocation.ways import NotYet, NoWay, Refused, way_for
from fleet.clock import Clock
from fleet.errors import ApiError
from fleet.kube.events import EventRecorder
from fleet.pod import Pod

_FORBIDDEN = 403
_BARRED_S = 600.0


class Permits:
    """Asks the API; a refusal that does not pass by itself is told on the pod, and bars its service for ten minutes."""

    def __init__(
        self,
        moves: Moves,
        workloads: Workloads,
        budgets: Budgets,
        recorder: EventRecorder,
        clock: Clock,
        metrics: PlannerMetrics,
    ) -> None:
        self._moves = moves
        self._workloads = workloads
        self._budgets = budgets
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._barred_s: dict[str, float] = {}

    def barred(self) -> frozenset[str]:
        """Return the services that could not be moved a moment ago."""
        now_s = self._clock.monotonic_s()
        self._barred_s = {name: until_s for name, until_s in self._barred_s.items() if until_s > now_s}
        return frozenset(self._barred_s)

    async def way(self, pod: Pod) -> Way | Refused:
        """Return by which way a pod may be moved now, or why by none.

        While another replica of its workload moves its count is not its own, and what its controller makes of that is
        no roll-out: nothing is asked before that move is over.
        """
        if self._moves.is_surging(pod):
            return _TURN
        try:
            way = way_for(pod, await self._workloads.of(pod), self._budgets.of(pod))
        except ApiError as error:
            helps = " (kubectl apply -k manifests/moves gives the rights)" if error.status == _FORBIDDEN else ""
            way = Refused(why=NoWay.NO_WORKLOAD, detail=f"who makes {pod.key} could not be read{helps}: {error}")
        if isinstance(way, Way):
            return _TURN if self._moves.is_surging(pod, way) else way
        if not way.passes:
            await self._refuse(pod, way)
        return way

    async def _refuse(self, pod: Pod, refused: Refused) -> None:
        self._barred_s[service_of(pod)] = self._clock.monotonic_s() + _BARRED_S
        self._metrics.moves.labels(refused.why.value).inc()
        note = f"{refused.why.value}: {refused.detail}"
        await self._recorder.record(pod, reason="NotMoved", note=note, is_warning=False, action="Moving")


_TURN = Refused(why=NotYet.MOVES_ALREADY, detail="another replica of its workload moves")
