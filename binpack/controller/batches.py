"""One batch of pods: decided on, carried out, and nobody lost where deciding fails. The shell; rules live elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from binpack.controller.carrier import FIRST_PAUSE_S, Carrier, backoff_s
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.world import World
from fleet.clock import Clock
from fleet.plan import Plan, Reason, Unplaced
from fleet.pod import Berth, Pod

log = logging.getLogger(__name__)

# A batch on which planning fails is halved until the pod that is to blame stands alone.
_MOST_FAULTS = 24
_TRIES_AT_ONCE = 3
_FAULT_PAUSE_S = 10.0

Decide = Callable[[World, Sequence[Pod]], Awaitable[Plan]]


class Batches:
    """Every pod that is taken out of the queue is on its way, waits, rests or is queued again when `plan` returns."""

    def __init__(
        self,
        world: World,
        decide: Decide,
        carrier: Carrier,
        clock: Clock,
        metrics: PlannerMetrics,
        start: Callable[[Awaitable[object]], None],
        wake: Callable[[], None],
    ) -> None:
        self._world = world
        self._decide = decide
        self._carrier = carrier
        self._clock = clock
        self._metrics = metrics
        self._start = start
        self._wake = wake

    async def plan(self, batch: Sequence[Pod]) -> None:
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
        self._wake()

    def _carry_out(self, batch: Sequence[Pod], plan: Plan) -> None:
        world = self._world
        # A pod may have changed or gone while the solver thought: then what was decided is no longer about it.
        now = {pod.uid: pod for planned in batch if (pod := world.decided(planned)) is not None}
        draws: dict[str, list[tuple[Pod, Berth]]] = {}
        for placement in plan.placements:
            pod, berth = now.pop(placement.pod_uid, None), placement.berth
            if pod is None:
                continue
            world.nodes.note_draw(pod, berth)
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
            with self._world.company.pinning([pod]):
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
