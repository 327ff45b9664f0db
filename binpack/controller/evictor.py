"""Asks pods to go for others that have their seat, and tells both sides. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable

from binpack.controller.metrics import PlannerMetrics
from binpack.controller.world import World
from binpack.controller.writer import Outcome, PodWriter, guarded
from binpack.tenants import node_of
from fleet.clock import Clock
from fleet.condition import stamp
from fleet.kube.events import EventRecorder
from fleet.pod import Pod

log = logging.getLogger(__name__)


class Evictor:
    """One call per pod and try; how it ended is noted in the world.

    Args:
        may_break: Whether a pod may be deleted past a budget that does not let it go.
    """

    def __init__(
        self,
        world: World,
        writer: PodWriter,
        recorder: EventRecorder,
        clock: Clock,
        metrics: PlannerMetrics,
        wake: Callable[[], None],
        *,
        may_break: bool,
    ) -> None:
        self._world = world
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._wake = wake
        self._may_break = may_break

    async def ask(self, victim: Pod, preemptor: Pod) -> None:
        """Ask a pod to go for another that has its seat; past its budget only where that is allowed."""
        seat = preemptor.seat
        where = f"on {seat.node}" if seat is not None else ""
        note = f"makes room for {preemptor.key} of priority {preemptor.priority} {where}"
        if seat is not None and victim.gang and node_of(victim) != seat.node:
            note = f"goes with others of its gang, of which one {note}"
        outcome, detail = await guarded(lambda: self._writer.evict(victim), victim.key, self._metrics)
        if outcome is Outcome.REFUSED and self._may_break:
            at = stamp(self._clock.now_s())
            outcome, detail = await guarded(
                lambda: self._writer.disrupt(victim, message=note, at=at), victim.key, self._metrics
            )
        self._metrics.evictions.labels(outcome.value).inc()
        now_s = self._clock.monotonic_s()
        if outcome in (Outcome.DONE, Outcome.GONE):
            self._world.together.goes(victim.uid, now_s)
            if outcome is Outcome.DONE:
                await self._recorder.record(victim, reason="Preempted", note=note, is_warning=True)
                text = f"{victim.key} of priority {victim.priority} goes for it {where}"
                await self._recorder.record(preemptor, reason="Preempting", note=text, is_warning=False)
        elif outcome is not Outcome.NOT_LEADING:  # a budget, or whoever else says no: the seat is not kept for ever
            self._world.together.refused(victim.uid, now_s)
            log.info("%s does not go for %s: %s", victim.key, preemptor.key, detail)
        self._wake()
