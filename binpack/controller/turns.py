"""The planner's turns: news are taken in, seats seen to, a batch collected, planned. A shell; rules live elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from binpack.batch import arrived, wait_s
from binpack.config import PlannerSettings
from binpack.controller.allotter import Allotter
from binpack.controller.batches import Batches, Decide
from binpack.controller.budget_feed import Budgets
from binpack.controller.carrier import FIRST_PAUSE_S, Carrier, backoff_s
from binpack.controller.claims import Claims
from binpack.controller.herald import Herald
from binpack.controller.housekeeping import Housekeeping
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.retrying import requeue_waiting
from binpack.controller.shares import contended_order
from binpack.controller.speaker import Speaker
from binpack.controller.usher import Usher
from binpack.controller.world import World
from binpack.controller.writer import PodWriter
from fleet.clock import Clock
from fleet.kube.events import EventRecorder

log = logging.getLogger(__name__)

_MOST_UNWRITTEN = 512
# Waiting pods are planned again when room appears, but a burst of departures is one occasion, not hundreds.
_REPLAN_EVERY_S = 0.1


class Turns:
    """Runs the planner of one leadership: nothing here survives it, everything can be read again from the API."""

    def __init__(
        self,
        world: World,
        writer: PodWriter,
        recorder: EventRecorder,
        decide: Decide,
        clock: Clock,
        settings: PlannerSettings,
        metrics: PlannerMetrics,
        claims: Claims | None = None,
        allotter: Allotter | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        self._world = world
        self._speaker = Speaker(writer, recorder, clock)
        self._herald = Herald(world, self._speaker, recorder, clock, metrics, self._start)
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._carrier = Carrier(
            world, writer, self._speaker, recorder, clock, metrics, self._wake.set, claims, allotter
        )
        self._usher = Usher(
            world,
            writer,
            self._carrier,
            recorder,
            budgets or Budgets(),
            clock,
            metrics,
            self._start,
            self._wake.set,
            preempts=settings.preempts,
            may_break=settings.preempts_past_budgets,
        )
        self._batches = Batches(world, decide, self._carrier, clock, metrics, self._start, self._wake.set)
        self._house = Housekeeping(
            world, self._carrier, self._usher, self._herald, clock, metrics, self._start, self._wake.set
        )
        self._tasks: set[asyncio.Future[object]] = set()
        self._replanned_at_s = float("-inf")

    def wake(self) -> None:
        """Note that something changed; called after every watch event."""
        self._wake.set()

    async def run(self) -> None:
        """Plan until cancelled; writes still under way are then dropped, they are safe to lose."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._plan_for_ever())
                group.create_task(self._house.run())
                group.create_task(self._speaker.run())
        finally:
            for task in self._tasks:
                task.cancel()

    # -- planning ----------------------------------------------------------------------------------------------

    async def _plan_for_ever(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._turn()
                failures = 0
            except Exception:
                # Broad on purpose: a fault of one turn must not end the process that every pod waits for.
                failures += 1
                self._metrics.faults.labels("turn").inc()
                log.exception("a turn failed, %d in a row", failures)
                self._world.recall()
                self._wake.set()
                await self._clock.sleep(backoff_s(FIRST_PAUSE_S, failures))

    async def _turn(self) -> None:
        world = self._world
        if world.refresh():
            await self._requeue_waiting()
        world.moves.keep_devices()
        self._usher.settle()
        self._usher.gangs(above=max((pod.priority for pod in world.queue.values()), default=None))
        self._herald.tell()
        if not world.queue:
            return
        await self._collect()
        while world.unwritten > _MOST_UNWRITTEN:
            await self._clock.sleep(max(0.001, self._settings.batch.idle_s))
        batch = world.take_batch(self._settings.batch.most_pods, order=lambda pods: contended_order(world, tuple(pods)))
        if batch:
            await self._batches.plan(batch)
            self._usher.gangs()
            self._herald.tell()
        if world.queue:
            self._wake.set()

    async def _requeue_waiting(self) -> None:
        if len(self._world.waiting):
            pause_s = self._replanned_at_s + _REPLAN_EVERY_S - self._clock.monotonic_s()
            if pause_s > 0:
                await self._clock.sleep(pause_s)
            self._replanned_at_s = self._clock.monotonic_s()
        requeue_waiting(self._world)

    async def _collect(self) -> None:
        """Wait until the batch window closes."""
        policy = self._settings.batch
        seen = len(self._world.queue)
        window = arrived(None, self._clock.monotonic_s(), seen)
        while (pause_s := wait_s(window, policy, self._clock.monotonic_s())) > 0:
            await self._clock.sleep(pause_s)
            more = len(self._world.queue) - seen
            if more > 0:
                seen += more
                window = arrived(window, self._clock.monotonic_s(), more)

    # -- writing -----------------------------------------------------------------------------------------------

    def _start(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._metrics.faults.labels("write").inc()
            log.error("a write ended with a fault of ours", exc_info=error)
