"""The planner's turns: collect, plan, write, and everything that waits in between. The shell; rules live elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from binpack.batch import arrived, wait_s
from binpack.config import PlannerSettings
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.repair import Repair
from binpack.controller.triage import Handling, can_be_handed_over, handling
from binpack.controller.world import World
from binpack.controller.writer import Outcome, PodWriter
from fleet.clock import Clock
from fleet.kube.events import EventRecorder
from fleet.plan import Placement, Plan
from fleet.pod import Berth, Pod

log = logging.getLogger(__name__)

_PATCHES_IN_FLIGHT = 32
_SAYINGS_IN_FLIGHT = 4
_MOST_UNWRITTEN = 512
_CANDIDATES = 16
_RETRY_AFTER_S = 1.0
_HOUSEKEEPING_S = 1.0
# Waiting pods are planned again when room appears, but a burst of departures is one occasion, not hundreds.
_REPLAN_EVERY_S = 0.1

Decide = Callable[[World, Sequence[Pod]], Awaitable[Plan]]


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
    ) -> None:
        self._world = world
        self._writer = writer
        self._recorder = recorder
        self._decide = decide
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._wake = asyncio.Event()
        self._patches = asyncio.Semaphore(_PATCHES_IN_FLIGHT)
        self._sayings = asyncio.Semaphore(_SAYINGS_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._replanned_at_s = float("-inf")

    def wake(self) -> None:
        """Note that something changed; called after every watch event."""
        self._wake.set()

    async def run(self) -> None:
        """Plan until cancelled; writes still under way are then dropped, they are safe to lose."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._plan_for_ever())
                group.create_task(self._keep_house())
        finally:
            for task in self._tasks:
                task.cancel()

    # -- planning ----------------------------------------------------------------------------------------------

    async def _plan_for_ever(self) -> None:
        world = self._world
        while True:
            await self._wake.wait()
            self._wake.clear()
            if world.refresh() and len(world.waiting):
                await self._requeue_waiting()
            if not world.queue:
                continue
            await self._collect()
            while len(world.in_flight) > _MOST_UNWRITTEN:
                await self._clock.sleep(self._settings.batch.idle_s)
            batch = world.take_batch(self._settings.batch.most_pods)
            if batch:
                await self._plan(batch)
            if world.queue:
                self._wake.set()

    async def _requeue_waiting(self) -> None:
        pause_s = self._replanned_at_s + _REPLAN_EVERY_S - self._clock.monotonic_s()
        if pause_s > 0:
            await self._clock.sleep(pause_s)
        self._replanned_at_s = self._clock.monotonic_s()
        self._world.requeue_waiting()

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

    async def _plan(self, batch: Sequence[Pod]) -> None:
        world, started_s = self._world, self._clock.monotonic_s()
        plan = await self._decide(world, batch)
        self._metrics.plan_s.observe(self._clock.monotonic_s() - started_s)
        self._metrics.batch.observe(len(batch))
        self._metrics.plans.labels(plan.source.value).inc()
        self._metrics.solves.labels(plan.solve_status.value).inc()
        if plan.gap_ratio is not None:
            self._metrics.gap.set(plan.gap_ratio)
        pods = {pod.uid: pod for pod in batch}
        for placement in plan.placements:
            # The pod may have changed or gone while the solver thought.
            pod = world.pods.get(placement.pod_uid)
            if pod is not None and handling(pod) is handling(pods[pod.uid]):
                self._send(pod, placement)
        for unplaced in plan.unplaced:
            world.wait(unplaced)
        self._speak()

    def _send(self, pod: Pod, placement: Placement) -> None:
        world, berth = self._world, placement.berth
        world.depart(pod, berth)
        if handling(pod) is Handling.STEER:
            world.refresh()
            others = (option.berth for option in world.index.options(pod, _CANDIDATES))
            candidates = (berth, *(other for other in others if other.node != berth.node))
            self._start(self._steer(pod, candidates))
        else:
            self._start(self._pin(pod, berth))

    # -- writing -----------------------------------------------------------------------------------------------

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a write ended with a fault of ours", exc_info=error)

    async def _pin(self, pod: Pod, berth: Berth) -> None:
        async with self._patches:
            outcome, detail = await self._writer.pin(pod, berth)
        await self._settle(pod, outcome, detail, "pinned")

    async def _steer(self, pod: Pod, candidates: Sequence[Berth]) -> None:
        async with self._patches:
            outcome, detail = await self._writer.steer(pod, candidates)
        await self._settle(pod, outcome, detail, "steered")

    async def _settle(self, pod: Pod, outcome: Outcome, detail: str, how: str) -> None:
        world = self._world
        self._metrics.patches.labels(outcome.value).inc()
        if outcome is Outcome.DONE:
            if pod.uid in world.waiting:
                self._start(self._unsay(pod))
            world.arrived(pod.uid)
            self._metrics.placed.labels(how).inc()
            self._metrics.wait_s.observe(max(0.0, self._clock.now_s() - pod.created_at_s))
            return
        log.info("%s was not %s: %s (%s)", pod.key, how, outcome.value, detail)
        world.failed(pod.uid)
        if outcome is Outcome.GONE:
            world.pod_gone(pod.uid)
        elif outcome is Outcome.CHANGED:
            await self._read_again(pod)
        else:
            await self._clock.sleep(_RETRY_AFTER_S)
            world.again(pod.uid)
        self._wake.set()

    async def _read_again(self, pod: Pod) -> None:
        fresh = await self._writer.read(pod)
        if fresh is None:
            await self._clock.sleep(_RETRY_AFTER_S)
            self._world.again(pod.uid)
        elif fresh.uid != pod.uid:
            self._world.pod_gone(pod.uid)
        else:
            self._world.ledger.set_pod(fresh)
            self._world.pod_seen(fresh)

    # -- waiting, hand-over, repair ----------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        while True:
            await self._clock.sleep(_HOUSEKEEPING_S)
            now_s, world = self._clock.monotonic_s(), self._world
            for uid in world.waiting.due_for_hand_over(now_s):
                pod = world.pods.get(uid)
                if pod is not None and uid not in world.in_flight and can_be_handed_over(pod):
                    world.in_flight[uid] = now_s
                    self._start(self._hand_over(pod))
            for repair in world.shop.due(world.unbound, world.node_names, now_s):
                self._start(self._repair(repair))
            for pod, candidates in world.steered_anew(now_s, _CANDIDATES):
                self._start(self._steer_anew(pod, candidates))
            self._speak()

    def _speak(self) -> None:
        to_say, self._world.to_say = self._world.to_say, {}
        for uid in to_say:
            pod = self._world.pods.get(uid)
            if pod is not None:
                self._start(self._say(pod))

    async def _say(self, pod: Pod) -> None:
        async with self._sayings:
            record = self._world.waiting.get(pod.uid)
            if record is None:
                return
            reason, text = record.reason.value, record.text
            if not can_be_handed_over(pod) and pod.ask is not None:
                text += "; shares and chosen devices cannot be handed over to a node autoscaler"
            self._world.waiting.said(pod.uid, self._clock.monotonic_s())
            await self._writer.say(pod, status=True, reason=reason, message=text, at=self._now_text())
            await self._recorder.record(pod, reason=reason, note=text, is_warning=True)

    async def _unsay(self, pod: Pod) -> None:
        async with self._sayings:
            await self._writer.say(pod, status=False, reason="Placed", message="has a berth", at=self._now_text())

    async def _hand_over(self, pod: Pod) -> None:
        world = self._world
        record = world.waiting.get(pod.uid)
        text = (
            f"{record.text if record else 'no room'}; handed over un-pinned, so that a node autoscaler can order a node"
        )
        async with self._patches:
            outcome, detail = await self._writer.ungate(pod)
        world.in_flight.pop(pod.uid, None)
        self._metrics.patches.labels(outcome.value).inc()
        if outcome is not Outcome.DONE:
            log.info("%s was not handed over: %s (%s)", pod.key, outcome.value, detail)
            if outcome is Outcome.CHANGED:
                await self._read_again(pod)
            return
        self._metrics.handed_over.inc()
        world.arrived(pod.uid)
        await self._writer.say(pod, status=True, reason="HandedOver", message=text, at=self._now_text())
        await self._recorder.record(pod, reason="HandedOver", note=text, is_warning=False)

    async def _steer_anew(self, pod: Pod, candidates: Sequence[Berth]) -> None:
        async with self._patches:
            outcome, detail = await self._writer.renew_candidates(pod, candidates)
        self._metrics.patches.labels(outcome.value).inc()
        if outcome is not Outcome.DONE:
            log.info("%s was not steered anew: %s (%s)", pod.key, outcome.value, detail)

    async def _repair(self, repair: Repair) -> None:
        pod = repair.pod
        async with self._sayings:
            outcome, detail = await self._writer.delete(repair)
        log.warning(
            "%s pinned to %s is given up (%s): %s %s",
            pod.key,
            pod.pinned_node,
            repair.reason.value,
            outcome.value,
            detail,
        )
        if outcome is Outcome.DONE:
            self._metrics.repairs.labels(repair.reason.value).inc()
            note = (
                f"pinned to {pod.pinned_node}, where it can never start; deleted so that its controller makes a new one"
            )
            await self._recorder.record(pod, reason=repair.reason.value, note=note, is_warning=True)

    def _now_text(self) -> str:
        return datetime.fromtimestamp(self._clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
