"""Asks which moves would help, on schedule and when pods wait, and proposes them to people or has them made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from binpack.config import MovesSettings
from binpack.controller.aside import Aside, aside
from binpack.controller.budget_feed import Budgets
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.move_search import MoveSearch
from binpack.controller.mover import Mover, Order
from binpack.controller.prospect import Terms
from binpack.controller.rolls import gangs_without_room
from binpack.controller.workloads import Workloads
from binpack.controller.world import World
from binpack.fit import refusal
from binpack.moving import afresh
from binpack.relocation.candidates import openings_to_free, service_of
from binpack.relocation.ways import NoWay, Refused, way_for
from binpack.repack.values import Goal, MakeRoom, Move, MovePlan, PastMove, Verdict
from binpack.solver.here import solver
from binpack.solver.instance import Budget
from fleet.clock import Clock
from fleet.errors import ApiError
from fleet.kube.events import EventRecorder
from fleet.loop import Rhythm, every
from fleet.pod import Pod

log = logging.getLogger(__name__)

_PERIOD_S = 2.0
_FORBIDDEN = 403
_ASK_AGAIN_S = 60.0  # for the same pods, unless a move has ended since
_BARRED_S = 600.0
_TRIES = 4
_MOST_WAITING = 16
_ORDER_WAITS_S = 1800.0
_HOUR_S = 3600.0
# Of one neighbourhood; three are looked at, and loading OR-Tools takes half a second.
_SOLVE = Budget(deterministic_s=1.0)


class Proposer:
    """Runs while this planner leads. It remembers moves of the last hour, and services that could not be moved."""

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
        self._workloads = workloads
        self._mover = mover
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        solve = solver(_SOLVE) if solves else None
        self._search = MoveSearch(world, self._terms, clock, metrics, solve, aside)
        self._scheduled_s = clock.monotonic_s() + settings.every_s
        self._asked_s: dict[str, float] = {}
        self._barred_s: dict[str, float] = {}
        self._past: dict[str, PastMove] = {}
        self._orders: list[tuple[Order, float]] = []

    async def run(self) -> None:
        """Propose until cancelled."""

        def failed(_: Exception) -> None:
            self._metrics.faults.labels("propose").inc()

        await every(Rhythm(period_s=_PERIOD_S), self.turn, self._clock, name="proposing moves", failed=failed)

    async def turn(self) -> None:
        """Begin the moves whose room is there; look for others where there is a reason to."""
        now_s = self._clock.monotonic_s()
        self._note_ends(now_s)
        if self._orders:
            await self._begin(now_s)
            return
        if not self._budgets.is_known:
            return
        goal, why = self._goal(now_s)
        if goal is not None:
            await self._pursue(goal, why)

    # -- what for ------------------------------------------------------------------------------------------------

    def _goal(self, now_s: float) -> tuple[Goal | None, str]:
        self._asked_s = {uid: at_s for uid, at_s in self._asked_s.items() if now_s - at_s < _ASK_AGAIN_S}
        unit = self._waiting_gang() or self._waiting_pods(now_s)
        if unit:
            self._asked_s.update(dict.fromkeys((pod.uid for pod in unit), now_s))
            is_gang = bool(unit[0].gang)
            what = f"gang {unit[0].gang}" if is_gang else unit[0].key
            others = f" and {len(unit) - 1} others" if len(unit) > 1 and not is_gang else ""
            return MakeRoom(pods=tuple(unit), is_gang=is_gang), f"makes room for {what}{others}"
        if now_s < self._scheduled_s:
            return None, ""
        self._scheduled_s = now_s + self._settings.every_s
        states = self._world.nodes.serving().values()
        goal = openings_to_free(states, self._settings.free_openings, self._settings.free_devices)
        return goal, "" if goal is None else f"frees {goal.devices} devices of one node"

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

    async def _pursue(self, goal: Goal, why: str) -> None:
        """Find moves; have them made where they may be, each by a way that its workload allows."""
        for _ in range(_TRIES):
            plan = await self._search.moves_for(goal)
            if plan is None:
                return
            if why_not := self._search.why_outdated(goal, plan):
                log.info("moves were found, and the cluster had gone on: %s", why_not)
                continue
            if not plan.moves:
                log.info("no moves: %s, %s", plan.verdict.value, plan.detail)
                return
            tenants = self._world.tenants
            pods = {pod.uid: pod for move in plan.moves if (pod := tenants.get(move.pod_uid)) is not None}
            if self._settings.mode != "act":
                await self._tell(plan, pods, why)
                return
            orders, refused = await self._orders_for(plan, pods, why)
            if not refused:
                self._orders = [(order, self._clock.monotonic_s()) for order in orders]
                return

    def _terms(self) -> Terms:
        now_s = self._clock.monotonic_s()
        self._barred_s = {name: until_s for name, until_s in self._barred_s.items() if until_s > now_s}
        return Terms(
            settings=self._settings,
            budgets_of=self._budgets.of,
            barred=frozenset(self._barred_s),
            past=tuple(self._past.values()),
        )

    async def _tell(self, plan: MovePlan, pods: dict[str, Pod], why: str) -> None:
        log.info("%d moves proposed (%s, %s): %s", len(plan.moves), plan.verdict.value, _proof(plan), why)
        for move in plan.moves:
            self._metrics.moves_proposed.labels(move.reason.value).inc()
            note = f"could move to {move.target.node}: {_why(move, plan, why)}"
            await self._recorder.record(
                pods[move.pod_uid], reason="MoveProposed", note=note, is_warning=False, action="Moving"
            )

    async def _orders_for(self, plan: MovePlan, pods: dict[str, Pod], why: str) -> tuple[list[Order], bool]:
        """Return what to begin, and whether a workload allows no way: then the whole plan is void."""
        orders: list[Order] = []
        is_refused = False
        for move in plan.moves:
            pod = pods[move.pod_uid]
            try:
                way = way_for(pod, await self._workloads.of(pod), self._budgets.of(pod))
            except ApiError as error:
                helps = " (kubectl apply -k manifests/moves gives the rights)" if error.status == _FORBIDDEN else ""
                way = Refused(why=NoWay.NO_WORKLOAD, detail=f"who makes {pod.key} could not be read{helps}: {error}")
            if isinstance(way, Refused):
                self._barred_s[service_of(pod)] = self._clock.monotonic_s() + _BARRED_S
                self._metrics.moves.labels(way.why.value).inc()
                await self._recorder.record(
                    pod, reason="NotMoved", note=f"{way.why.value}: {way.detail}", is_warning=False, action="Moving"
                )
                is_refused = True
                continue
            orders.append(Order(pod=pod, target=move.target, way=way, why=_why(move, plan, why)))
        return orders, is_refused

    # -- when ----------------------------------------------------------------------------------------------------

    async def _begin(self, now_s: float) -> None:
        """Begin the moves whose target has room now: later ones take what earlier ones leave."""
        later: list[tuple[Order, float]] = []
        for order, since_s in self._orders:
            pod = self._world.tenants.get(order.pod.uid)
            is_there = pod is not None and pod.node_name == order.pod.node_name and not pod.is_terminating
            if pod is None or not is_there or now_s - since_s > _ORDER_WAITS_S:
                self._orders = []  # what it was planned with is gone, and so is what the others would lead to
                return
            if not self._has_room(pod, order) or not self._may_begin(pod):
                later.append((order, since_s))
            elif await self._mover.begin(replace(order, pod=pod)):
                self._past[pod.uid] = PastMove(
                    started_at_s=now_s,
                    service=service_of(pod),
                    source=pod.node_name,
                    target=order.target.node,
                    is_over=False,
                )
                self._metrics.moves_proposed.labels("Begun").inc()
        self._orders = later

    def _has_room(self, pod: Pod, order: Order) -> bool:
        self._world.refresh()
        state = self._world.node(order.target.node)
        wish, target = afresh(pod), order.target
        return state is not None and not refusal(wish, target, state) and self._world.moves.has_devices(wish, target)

    def _may_begin(self, pod: Pod) -> bool:
        """Return False while as many replicas of the service are moved as may be at a time."""
        service = service_of(pod)
        under_way = sum(one.service == service and not one.is_over for one in self._past.values())
        budgets = self._budgets.of(pod)
        most = max([self._settings.per_service, *(one.allowed for one in budgets)])
        return under_way < most

    def _note_ends(self, now_s: float) -> None:
        opened = {move.uid for move in self._world.moves.open(now_s)}
        for uid, one in list(self._past.items()):
            if not one.is_over and uid not in opened and now_s - one.started_at_s > _PERIOD_S:
                self._past[uid] = replace(one, is_over=True)
                self._asked_s.clear()  # what could not be moved beside it may be now
            elif one.is_over and now_s - one.started_at_s > _HOUR_S:
                del self._past[uid]


def _why(move: Move, plan: MovePlan, why: str) -> str:
    reached = "" if plan.verdict is Verdict.REACHED else f", {plan.verdict.value}"
    return f"{why}; {move.reason.value}, gain {move.gain_milli:.0f} milli-GPU{reached}; all of it {_proof(plan)}"


def _proof(plan: MovePlan) -> str:
    proof = "no bound proven" if plan.bound is None else f"bound {plan.bound:.0f}, gap {plan.gap_ratio:.1%}"
    return f"objective {plan.objective:.0f} milli-GPU, {proof}"
