"""The planner's turns: collect, plan, write, and everything that waits in between. The shell; rules live elsewhere."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from binpack.batch import arrived, wait_s
from binpack.config import PlannerSettings
from binpack.controller.allotter import Allotter
from binpack.controller.budget_feed import Budgets
from binpack.controller.carrier import CANDIDATES, FIRST_PAUSE_S, LONGEST_PAUSE_S, Carrier, backoff_s
from binpack.controller.claims import Claims
from binpack.controller.herald import Herald
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.retrying import look_again, requeue_waiting
from binpack.controller.rolls import call_rolls
from binpack.controller.shares import contended_order
from binpack.controller.speaker import Speaker
from binpack.controller.triage import can_be_handed_over
from binpack.controller.usher import Usher
from binpack.controller.world import World
from binpack.controller.writer import PodWriter
from fleet.clock import Clock
from fleet.kube.events import EventRecorder
from fleet.loop import Rhythm, every
from fleet.plan import Plan, Reason, Unplaced
from fleet.pod import Berth, Pod

log = logging.getLogger(__name__)

_MOST_UNWRITTEN = 512
_HOUSEKEEPING_S = 1.0
# Waiting pods are planned again when room appears, but a burst of departures is one occasion, not hundreds.
_REPLAN_EVERY_S = 0.1
# A batch on which planning fails is halved until the pod that is to blame stands alone.
_MOST_FAULTS = 24
_TRIES_AT_ONCE = 3
_FAULT_PAUSE_S = 10.0
# Reasons are renewed now and then: numbers grow old, and what a missed event hid comes to light.
_LOOK_AGAIN_S = 30.0
_LOOK_AGAIN_WISHES = 25

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
        claims: Claims | None = None,
        allotter: Allotter | None = None,
        budgets: Budgets | None = None,
    ) -> None:
        self._world = world
        self._speaker = Speaker(writer, recorder, clock)
        self._herald = Herald(world, self._speaker, recorder, clock, metrics, self._start)
        self._decide = decide
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
                group.create_task(self._keep_house())
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
            await self._plan(batch)
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

    def _seated(self, batch: Sequence[Pod]) -> list[Pod]:
        """Send successors of pods that move to the seats that are kept for them; return the others."""
        others: list[Pod] = []
        for pod in batch:
            try:
                seat = self._world.moves.seat_for(pod)
            except Exception:
                # Broad on purpose: one move that we fail on must not stop everybody's planning.
                self._metrics.faults.labels("move").inc()
                log.exception("whether a seat waits for %s cannot be told", pod.key)
                seat = None
            if seat is None:
                others.append(pod)
            else:
                self._world.depart(*seat)
                self._start(self._carrier.carry(*seat))
        return others

    async def _plan(self, batch: Sequence[Pod]) -> None:
        """Decide on the batch and carry it out; where that fails, halve it until who is to blame stands alone."""
        batch = self._seated(batch)
        parts, faults = [batch] if batch else [], 0
        while parts:
            part = parts.pop()
            try:
                plan = await self._decided(part)
            except Exception as error:
                # Broad on purpose: one pod, or one fault of the planner, must not stop all the others.
                faults += 1
                self._metrics.faults.labels("plan").inc()
                log.exception("planning %d pods failed, the first is %s", len(part), part[0].key)
                if len(part) > 1 and faults <= _MOST_FAULTS:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                else:
                    self._blame(part, error)
                continue
            self._carry_out(part, plan)

    async def _decided(self, batch: Sequence[Pod]) -> Plan:
        started_s = self._clock.monotonic_s()
        # Serving nodes come first: only pods that would wait are placed on warm ones.
        plan = self._world.yard.drawn(await self._decide(self._world, batch), batch)
        self._metrics.plan_s.observe(self._clock.monotonic_s() - started_s)
        self._metrics.batch.observe(len(batch))
        self._metrics.plans.labels(plan.source.value).inc()
        self._metrics.solves.labels(plan.solve_status.value).inc()
        if plan.gap_ratio is not None:
            self._metrics.gap.set(plan.gap_ratio)
        return plan

    def _blame(self, pods: Sequence[Pod], error: Exception) -> None:
        """Let pods wait on which planning failed, and try them again later."""
        detail = f"{type(error).__name__}: {error}"[:200]
        for planned in pods:
            pod = self._world.decided(planned)
            if pod is not None:
                tries = self._world.rest(pod.uid, is_written=False)
                self._world.wait(Unplaced(pod_uid=pod.uid, reason=Reason.PLANNER_FAULT, detail=detail))
                self._start(self._again_after(pod.uid, backoff_s(_FAULT_PAUSE_S, tries)))

    async def _again_after(self, uid: str, pause_s: float) -> None:
        await self._clock.sleep(pause_s)
        self._world.again(uid)
        self._wake.set()

    def _carry_out(self, batch: Sequence[Pod], plan: Plan) -> None:
        world = self._world
        # A pod may have changed or gone while the solver thought: then what was decided is no longer about it.
        now = {pod.uid: pod for planned in batch if (pod := world.decided(planned)) is not None}
        draws: dict[str, list[tuple[Pod, Berth]]] = {}
        for placement in plan.placements:
            pod, berth = now.pop(placement.pod_uid, None), placement.berth
            if pod is None:
                continue
            world.note_draw(pod, berth)
            world.depart(pod, berth)
            if world.yard.is_warm(berth.node):
                draws.setdefault(berth.node, []).append((pod, berth))
            else:
                self._start(self._carrier.carry(pod, berth))
        for name, placed in draws.items():
            self._draw(name, placed)
        left_out: list[Pod] = []
        for unplaced in plan.unplaced:
            pod = now.pop(unplaced.pod_uid, None)
            if pod is None:
                continue
            if unplaced.reason is Reason.INSUFFICIENT and unplaced.shortfall is None:
                left_out.append(pod)
            else:
                world.wait(unplaced)
        if now:
            log.error("the plan says nothing of %d pods, the first is %s", len(now), next(iter(now.values())).key)
        self._reconsider([*left_out, *now.values()])

    def _draw(self, name: str, placed: Sequence[tuple[Pod, Berth]]) -> None:
        """Have a warm node claimed for pods, and the pods sent there."""
        state = self._world.ledger.state(name)
        if state is not None:
            self._start(self._carrier.draw(state.node, placed))
            return
        for pod, _ in placed:  # it went while the plan was made
            self._world.again(pod.uid)

    def _reconsider(self, pods: Sequence[Pod]) -> None:
        """Plan pods again that were left out though they may fit: for the sake of others, say."""
        if pods:
            self._world.refresh()
        for pod in pods:
            answer = self._world.index.place(pod)
            if isinstance(answer, Unplaced):
                self._world.wait(answer)
                continue
            tries = self._world.rest(pod.uid, is_written=False)
            if tries <= _TRIES_AT_ONCE:
                self._world.again(pod.uid)
            else:
                detail = f"{answer.berth.node} has room, and no plan that uses it holds"
                self._world.wait(Unplaced(pod_uid=pod.uid, reason=Reason.PLANNER_FAULT, detail=detail))
                self._start(self._again_after(pod.uid, backoff_s(FIRST_PAUSE_S, tries - _TRIES_AT_ONCE)))

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

    # -- waiting, hand-over, repair ----------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        def failed(_: Exception) -> None:
            self._metrics.faults.labels("housekeeping").inc()

        await every(
            Rhythm(period_s=_HOUSEKEEPING_S, jitter_ratio=0.0, longest_backoff_s=LONGEST_PAUSE_S),
            self._look_around,
            self._clock,
            name="housekeeping",
            failed=failed,
        )

    async def _look_around(self) -> None:
        now_s, world = self._clock.monotonic_s(), self._world
        for uid in world.waiting.due_for_hand_over(now_s):
            pod = world.pods.get(uid)
            if pod is not None and uid not in world.away and can_be_handed_over(pod):
                world.depart(pod, None)
                self._start(self._carrier.hand_over(pod))
        for claim in world.take_loose():
            self._start(self._carrier.free(claim))
        for repair in world.unbound.repairs(now_s):
            self._start(self._carrier.repair(repair))
        for pod, candidates in world.unbound.steered_anew(now_s, CANDIDATES):
            self._start(self._carrier.steer_anew(pod, candidates))
        world.forgive()
        if world.refresh():
            self._wake.set()
        look_again(world, now_s, most_wishes=_LOOK_AGAIN_WISHES, older_than_s=_LOOK_AGAIN_S)
        world.together.called |= world.together.short
        call_rolls(world)
        self._usher.settle()
        self._usher.preempt()
        if world.queue or world.together.due:
            self._wake.set()
        self._herald.tell()
