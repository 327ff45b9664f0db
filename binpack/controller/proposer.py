"""Asks which moves would help, on schedule and when pods wait, and proposes them to people or has them made."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from binpack.config import MovesSettings
from binpack.controller.aside import Aside, aside
from binpack.controller.budget_feed import Budgets
from binpack.controller.made_for import MadeFor
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.move_search import MoveSearch
from binpack.controller.mover import Mover, Order
from binpack.controller.past_moves import PastMoves
from binpack.controller.permits import Permits
from binpack.controller.prospect import Terms, Wanted, still_wanted
from binpack.controller.rolls import gangs_without_room
from binpack.controller.workloads import Workloads
from binpack.controller.world import World
from binpack.fit import refusal
from binpack.moving import afresh
from binpack.relocation.candidates import openings_to_free, service_of
from binpack.relocation.record import Way
from binpack.relocation.ways import Refused
from binpack.repack.values import FreeDevices, MakeRoom, Move, MovePlan, Verdict
from binpack.solver.here import solver
from binpack.solver.instance import Budget
from binpack.wording import plural
from fleet.clock import Clock
from fleet.kube.events import EventRecorder
from fleet.loop import Rhythm, every
from fleet.pod import Berth, Pod

log = logging.getLogger(__name__)

_PERIOD_S = 2.0
_ASK_AGAIN_S = 60.0  # for the same pods, unless a move has ended since
_TRIES = 4
_WALL_S = 120.0  # for all tries together: nothing else is looked for meanwhile
_MOST_WAITING = 16
_ORDER_WAITS_S = 1800.0
# Of one neighbourhood; three are looked at, and loading OR-Tools takes half a second.
_SOLVE = Budget(deterministic_s=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """A move of a plan that is to begin as soon as it can.

    Attributes:
        pod: As it was when the plan was made.
        why: For people: what it is for, with the numbers.
        since_s: When it was ordered.
    """

    pod: Pod
    target: Berth
    why: str
    since_s: float


class Proposer:
    """Runs while this planner leads. It remembers moves of the last hour, and whom they are made for."""

    def __init__(
        self,
        world: World,
        budgets: Budgets,
        workloads: Workloads,
        mover: Mover,
        recorder: EventRecorder,
        clock: Clock,
        metrics: PlannerMetrics,
        settings: MovesSettings,
        *,
        solves: bool = True,
        aside: Aside = aside,
    ) -> None:
        """Begin with nothing remembered.

        Args:
            world: The planner's; searched in a copy.
            budgets: Who may be missing.
            workloads: Who sets the count of whose replicas.
            mover: Who makes the moves.
            recorder: Of events.
            clock: The clock.
            metrics: The planner's.
            settings: What the operator allows.
            solves: Whether the solver may improve what the search finds, and prove how good it is.
            aside: Where the search is done.
        """
        self._world = world
        self._budgets = budgets
        self._mover = mover
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        solve = solver(_SOLVE) if solves else None
        self._search = MoveSearch(world, self._terms, clock, metrics, solve, aside)
        self._scheduled_s = clock.monotonic_s() + settings.every_s
        self._asked_s: dict[str, float] = {}
        self._permits = Permits(world.moves, workloads, budgets, recorder, clock, metrics)
        self._past = PastMoves(_PERIOD_S)
        self._orders: list[Ordered] = []
        self._made_for = MadeFor(world.ledger)

    async def run(self) -> None:
        """Propose until cancelled; that moves are over is seen however long others are looked for."""

        def failed(_: Exception) -> None:
            self._metrics.faults.labels("propose").inc()

        rhythm = Rhythm(period_s=_PERIOD_S)
        async with asyncio.TaskGroup() as group:
            group.create_task(every(rhythm, self.turn, self._clock, name="proposing moves", failed=failed))
            group.create_task(every(rhythm, self.watch, self._clock, name="watching moves", failed=failed))

    async def turn(self) -> None:
        """Begin the moves whose room is there; look for others where there is a reason to."""
        await self.watch()
        try:
            await self._go_on(self._clock.monotonic_s())
        finally:
            self._world.waiting.expect(self._awaited())

    async def watch(self) -> None:
        """See which moves are over; pods that none is made for any more need not be held back from a hand-over."""
        now_s = self._clock.monotonic_s()
        if self._past.look(self._world.moves.open(now_s), now_s):
            self._asked_s.clear()  # what could not be moved beside one that has ended may be now
        self._world.waiting.expect(self._awaited())

    async def _go_on(self, now_s: float) -> None:
        if self._orders:
            await self._begin(now_s)
            return
        if not self._budgets.is_known:
            return
        goal = self._goal(now_s)
        if goal is not None:
            await self._pursue(goal)

    def _awaited(self) -> frozenset[str]:
        """Return the waiting pods that moves are being made for, or will be: nobody else need make room for them."""
        going = self._past.under_way() | {order.pod.uid for order in self._orders}
        opened = self._world.moves.open(self._clock.monotonic_s())
        return self._made_for.awaited(going, opened, self._world.waiting_for_room() if opened else ())

    # -- what for ------------------------------------------------------------------------------------------------

    def _goal(self, now_s: float) -> Wanted | None:
        self._asked_s = {uid: at_s for uid, at_s in self._asked_s.items() if now_s - at_s < _ASK_AGAIN_S}
        unit = self._waiting_gang() or self._waiting_pods(now_s)
        if unit:
            self._asked_s.update(dict.fromkeys((pod.uid for pod in unit), now_s))
            return MakeRoom(pods=tuple(unit), is_gang=bool(unit[0].gang))
        if now_s < self._scheduled_s:
            return None
        self._scheduled_s = now_s + self._settings.every_s
        states = self._world.nodes.serving().values()
        return openings_to_free(states, self._settings.free_openings, self._settings.free_devices)

    def _waiting_pods(self, now_s: float) -> Sequence[Pod]:
        found = [
            pod
            for pod in self._world.waiting_for_room()
            if not pod.gang
            and pod.uid not in self._asked_s
            and (record := self._world.waiting.get(pod.uid)) is not None
            and now_s - record.since_s >= self._settings.waits_s
        ]
        found.sort(key=lambda pod: (-pod.priority, pod.created_at_s, pod.uid))
        return found[:_MOST_WAITING]

    def _waiting_gang(self) -> Sequence[Pod]:
        for unit in gangs_without_room(self._world):
            if unit and all(pod.uid not in self._asked_s for pod in unit):
                return unit
        return ()

    # -- which ---------------------------------------------------------------------------------------------------

    async def _pursue(self, aim: Wanted) -> None:
        """Find moves; have them made where they may be, each by a way that its workload allows."""
        until_s = self._clock.monotonic_s() + _WALL_S
        for _ in range(_TRIES):
            goal = still_wanted(self._world, aim)
            plan = await self._search.moves_for(goal, until_s) if goal is not None else None
            if goal is None or plan is None:
                return
            if why_not := self._search.why_outdated(goal, plan):
                log.info("moves were found, and the cluster had gone on: %s", why_not)
                continue
            why = _purpose(goal)
            if not plan.moves:
                log.info("no moves: %s, %s", plan.verdict.value, plan.detail)
                return
            tenants = self._world.tenants
            pods = {pod.uid: pod for move in plan.moves if (pod := tenants.get(move.pod_uid)) is not None}
            if self._settings.mode != "act":
                await self._tell(plan, pods, why)
                return
            if not await self._is_refused(list(pods.values())):
                now_s = self._clock.monotonic_s()
                self._orders = [
                    Ordered(pod=pods[move.pod_uid], target=move.target, why=_why(move, plan, why), since_s=now_s)
                    for move in plan.moves
                ]
                self._made_for.planned(pods, (placement.pod_uid for placement in plan.placements))
                return

    def _terms(self) -> Terms:
        return Terms(
            settings=self._settings,
            budgets_of=self._budgets.of,
            barred=self._permits.barred(),
            past=self._past.all(),
        )

    async def _tell(self, plan: MovePlan, pods: dict[str, Pod], why: str) -> None:
        log.info("%s proposed (%s, %s): %s", plural(len(plan.moves), "move"), plan.verdict.value, _proof(plan), why)
        for move in plan.moves:
            self._metrics.moves_proposed.labels(move.reason.value).inc()
            note = f"could move to {move.target.node}: {_why(move, plan, why)}"
            await self._recorder.record(
                pods[move.pod_uid], reason="MoveProposed", note=note, is_warning=False, action="Moving"
            )

    async def _is_refused(self, pods: Sequence[Pod]) -> bool:
        """Return True if the workload of one of them allows no way: then the whole plan is void. All are asked."""
        found = [await self._permits.way(pod) for pod in pods]
        return any(isinstance(way, Refused) and not way.passes for way in found)

    # -- when ----------------------------------------------------------------------------------------------------

    async def _begin(self, now_s: float) -> None:
        """Begin the moves whose turn it is and whose target has room now: later ones take what earlier ones leave."""
        later: list[Ordered] = []
        for order in self._orders:
            if self._as_it_is(order) is None or now_s - order.since_s > _ORDER_WAITS_S:
                self._orders = []  # what it was planned with is gone, and so is what the others would lead to
                return
            way = await self._permits.way(order.pod) if self._is_due(order) else None
            pod = self._as_it_is(order)
            if isinstance(way, Refused) and not way.passes:
                self._orders = []
                return
            if pod is None or not isinstance(way, Way) or not self._is_due(order):
                later.append(order)
            elif await self._mover.begin(Order(pod=pod, target=order.target, way=way, why=order.why)):
                self._past.began(pod, order.target.node, self._clock.monotonic_s())
                self._metrics.moves_proposed.labels("Begun").inc()
            else:
                self._orders = []  # the others may wait for the room that it was to leave
                return
        self._orders = later

    def _as_it_is(self, order: Ordered) -> Pod | None:
        """Return the pod of an order as it is now; None = it is gone, or elsewhere."""
        pod = self._world.tenants.get(order.pod.uid)
        is_there = pod is not None and pod.node_name == order.pod.node_name and not pod.is_terminating
        return pod if is_there else None

    def _is_due(self, order: Ordered) -> bool:
        pod = self._as_it_is(order)
        return pod is not None and self._has_room(pod, order) and self._may_begin(pod)

    def _has_room(self, pod: Pod, order: Ordered) -> bool:
        self._world.refresh()
        state = self._world.node(order.target.node)
        wish, target = afresh(pod), order.target
        return state is not None and not refusal(wish, target, state) and self._world.moves.has_devices(wish, target)

    def _may_begin(self, pod: Pod) -> bool:
        """Return False while as many replicas of the service are moved as may be at a time."""
        most = max([self._settings.per_service, *(one.allowed for one in self._budgets.of(pod))])
        return self._past.count(service_of(pod)) < most and not self._world.moves.is_surging(pod)


def _purpose(goal: Wanted) -> str:
    if isinstance(goal, FreeDevices):
        return f"frees {goal.devices} devices of one node"
    first, others = goal.pods[0], len(goal.pods) - 1
    if goal.is_gang:
        return f"makes room for gang {first.gang}"
    return f"makes room for {first.key}" + (f" and {others} others" if others else "")


def _why(move: Move, plan: MovePlan, why: str) -> str:
    reached = "" if plan.verdict is Verdict.REACHED else f", {plan.verdict.value}"
    return f"{why}; {move.reason.value}, gain {move.gain_milli:z.0f} milli-GPU{reached}; all of it {_proof(plan)}"


def _proof(plan: MovePlan) -> str:
    proof = "no bound proven" if plan.bound is None else f"bound {plan.bound:z.0f}, gap {plan.gap_ratio:.1%}"
    return f"objective {plan.objective:z.0f} milli-GPU, {proof}"
