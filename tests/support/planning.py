"""A planner's shell without an API: a writer that keeps pods as values, a decider that asks the index."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from prometheus_client import CollectorRegistry

from binpack.config import PlannerSettings
from binpack.controller.allotter import Allotter
from binpack.controller.budget_feed import Budgets
from binpack.controller.claims import Claims
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.repair import Repair
from binpack.controller.turns import Turns
from binpack.controller.waiting import WaitingRoom
from binpack.controller.world import World
from binpack.controller.writer import NO_AID, Aid, Outcome
from binpack.controller.yard import Yard
from binpack.index import Index
from binpack.ledger import Ledger
from fleet import labels
from fleet.kube.claimer import Claimer
from fleet.node import Node
from fleet.plan import Placement, Plan, Unplaced
from fleet.pod import Berth, Pod
from tests.support.claims import Nodes
from tests.support.clock import ManualClock, settle

_TOKENS = itertools.count()
LOST = "lost"  # written, and the answer lost


def a_world(
    *nodes: Node,
    now_s: Callable[[], float] = lambda: 0.0,
    hand_over_after_s: float = 30.0,
    yard: Yard | None = None,
) -> World:
    """Return a world that knows these nodes."""
    world = World(Ledger(), Index(), WaitingRoom(hand_over_after_s=hand_over_after_s), now_s, yard)
    for node in nodes:
        world.ledger.set_node(node)
    world.refresh()
    return world


async def by_index(world: World, batch: Sequence[Pod]) -> Plan:
    """Decide by the index alone, each pod seeing the ones before it as booked."""
    world.refresh()
    placements: list[Placement] = []
    unplaced: list[Unplaced] = []
    for pod in batch:
        answer = world.index.place(pod)
        if isinstance(answer, Placement):
            world.index.take(pod, answer.berth)
            placements.append(answer)
        else:
            unplaced.append(answer)
    pods = {pod.uid: pod for pod in batch}
    for placement in placements:
        world.index.give_back(pods[placement.pod_uid], placement.berth)
    return Plan(placements=tuple(placements), unplaced=tuple(unplaced))


class FakeWriter:
    """Stands for the API: keeps the pods as it has them, answers as told, and tells no watch by itself.

    Attributes:
        pods: The truth, by uid.
        calls: (verb, uid, what) of every write, in order.
        aids: (verb, uid, what) was given beside a berth, where that was anything.
        notes: (uid, annotations) that came with a condition.
        held: Verbs whose writes wait until `let_go`.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.pods: dict[str, Pod] = {}
        self.calls: list[tuple[str, str, Any]] = []
        self.aids: list[tuple[str, str, Aid]] = []
        self.notes: list[tuple[str, dict[str, str]]] = []
        self.reads = 0
        self.on_their_way: dict[str, int] = defaultdict(int)
        self.most_at_once: dict[str, int] = defaultdict(int)
        self._answers: dict[str, deque[Outcome | str | Exception]] = defaultdict(deque)
        self._free: dict[str, asyncio.Event] = {}
        self._clock = clock

    def answer(self, verb: str, *answers: Outcome | str | Exception) -> None:
        """Answer the next calls of this verb so; DONE once they are used up."""
        self._answers[verb].extend(answers)

    def hold(self, verb: str) -> None:
        """Let calls of this verb wait."""
        self._free[verb] = asyncio.Event()

    def let_go(self, verb: str) -> None:
        """Let them go on."""
        self._free.pop(verb).set()

    def said(self, verb: str) -> list[Any]:
        """Return what was asked with this verb."""
        return [what for name, _, what in self.calls if name == verb]

    async def pin(self, pod: Pod, berth: Berth, aid: Aid = NO_AID) -> tuple[Outcome, str]:
        self._note_aid("pin", pod, aid)
        return await self._write("pin", pod, berth, {"pinned_node": berth.node, "devices": berth.devices or None})

    async def steer(self, pod: Pod, candidates: Sequence[Berth], aid: Aid = NO_AID) -> tuple[Outcome, str]:
        self._note_aid("steer", pod, aid)
        return await self._write("steer", pod, tuple(candidates), {"candidates": tuple(candidates)})

    async def seat(self, pod: Pod, berth: Berth) -> tuple[Outcome, str]:
        return await self._call("seat", pod, berth, {"seat": berth})

    async def unseat(self, pod: Pod) -> tuple[Outcome, str]:
        return await self._call("unseat", pod, None, {"seat": None})

    async def evict(self, pod: Pod) -> tuple[Outcome, str]:
        return await self._call("evict", pod, None, {"is_terminating": True})

    async def disrupt(self, pod: Pod, *, message: str, at: str) -> tuple[Outcome, str]:
        return await self._call("disrupt", pod, message, {"is_terminating": True})

    async def ungate(self, pod: Pod) -> tuple[Outcome, str]:
        return await self._write("ungate", pod, None, {})

    async def renew_candidates(self, pod: Pod, candidates: Sequence[Berth]) -> tuple[Outcome, str]:
        return await self._call("renew", pod, tuple(candidates), {"candidates": tuple(candidates)})

    async def read(self, pod: Pod) -> tuple[Outcome, Pod | None]:
        self.reads += 1
        fresh = self.pods.get(pod.uid)
        while "read" in self._free:
            await self._free["read"].wait()
        outcome = self._next("read")
        if outcome is not Outcome.DONE:
            return outcome, None
        return (Outcome.DONE, fresh) if fresh is not None else (Outcome.GONE, None)

    def _note_aid(self, verb: str, pod: Pod, aid: Aid) -> None:
        if aid != NO_AID:
            self.aids.append((verb, pod.uid, aid))

    async def say(
        self,
        pod: Pod,
        *,
        status: bool,
        reason: str,
        message: str,
        at: str,
        notes: Mapping[str, str] | None = None,
    ) -> tuple[Outcome, str]:
        if notes:
            self.notes.append((pod.uid, dict(notes)))
        return await self._call("say", pod, (status, reason, message), {"says_waiting": status})

    async def delete(self, repair: Repair) -> tuple[Outcome, str]:
        answer = await self._call("delete", repair.pod, repair.reason, {})
        if answer[0] is Outcome.DONE:
            self.pods.pop(repair.pod.uid, None)
        return answer

    async def _write(self, verb: str, pod: Pod, what: Any, changes: dict[str, Any]) -> tuple[Outcome, str]:
        """Write only what is still gated, as the patch's tests do."""
        gates = tuple(gate for gate in pod.gates if gate != labels.PLAN_GATE)
        known = self.pods.get(pod.uid)
        if known is not None and labels.PLAN_GATE not in known.gates:
            self._answers[verb].appendleft(Outcome.CHANGED)
        return await self._call(verb, pod, what, {**changes, "gates": gates})

    async def _call(self, verb: str, pod: Pod, what: Any, changes: dict[str, Any]) -> tuple[Outcome, str]:
        self.calls.append((verb, pod.uid, what))
        self.on_their_way[pod.uid] += 1
        self.most_at_once[pod.uid] = max(self.most_at_once[pod.uid], self.on_their_way[pod.uid])
        try:
            while verb in self._free:
                await self._free[verb].wait()
            outcome: Any = self._next(verb)
        finally:
            self.on_their_way[pod.uid] -= 1
        if pod.uid not in self.pods:
            return Outcome.GONE, "gone"
        if outcome in (Outcome.DONE, LOST):
            self.pods[pod.uid] = replace(self.pods[pod.uid], **changes)
        return (Outcome.FAILED, "no answer") if outcome == LOST else (outcome, f"{verb} {pod.name}")

    def _next(self, verb: str) -> Any:
        answers = self._answers[verb]
        outcome = answers.popleft() if answers else Outcome.DONE
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class FakeRecorder:
    """Remembers events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    async def record(self, about: Pod | Node, *, reason: str, note: str, is_warning: bool, action: str = "") -> None:
        self.events.append((about.name, reason, note))

    def reasons(self, name: str) -> list[str]:
        return [reason for about, reason, _ in self.events if about == name]


@dataclass
class Bridge:
    """Turns that run on a manual clock, and the hands to move the world around them."""

    clock: ManualClock
    world: World
    writer: FakeWriter
    recorder: FakeRecorder
    turns: Turns
    registry: CollectorRegistry
    nodes: Nodes
    budgets: Budgets
    plans: list[tuple[str, ...]] = field(default_factory=list)

    def see(self, *pods: Pod) -> None:
        """Let the watch show these pods, which are then the truth."""
        for pod in pods:
            self.writer.pods[pod.uid] = pod
            self._tell(pod)

    def catch_up(self, *uids: str) -> None:
        """Let the watch show these pods as the API has them now; all by default."""
        for uid in uids or tuple(self.writer.pods):
            self._tell(self.writer.pods[uid])

    def show_stale(self, pod: Pod) -> None:
        """Let the watch show an older state of a pod than the API has."""
        self._tell(pod)

    def lose(self, *uids: str) -> None:
        """Delete pods, and let the watch show it."""
        for uid in uids:
            self.writer.pods.pop(uid, None)
            self.world.ledger.remove_pod(uid)
            self.world.pod_gone(uid)
        self.turns.wake()

    def add_nodes(self, *nodes: Node) -> None:
        """Let the watch show new or changed nodes."""
        for node in nodes:
            if node.name not in self.nodes.objects:
                self.nodes.show(node)
            self.world.ledger.set_node(node)
        self.turns.wake()

    def catch_up_nodes(self) -> None:
        """Let the watch show the claims and openness of all pools' nodes as the API has them now."""
        for name in self.world.ledger.names():
            state = self.world.ledger.state(name)
            if state is not None and state.node.pool:
                node = replace(state.node, warm=self.nodes.warm_of(name), claim=self.nodes.claim_of(name))
                self.world.ledger.set_node(node)
        self.turns.wake()

    def lose_node(self, name: str) -> None:
        """Let the watch show that a node is gone."""
        self.world.ledger.remove_node(name)
        self.turns.wake()

    async def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.advance(seconds)
        await settle(200)

    def value(self, name: str, **found: str) -> float:
        """Return a metric's value."""
        return self.registry.get_sample_value(name, found) or 0.0

    def _tell(self, pod: Pod) -> None:
        self.world.ledger.set_pod(pod)
        self.world.pod_seen(pod)
        self.turns.wake()


@asynccontextmanager
async def running(
    nodes: Iterable[Node] = (),
    *,
    decide: Callable[[World, Sequence[Pod]], Any] = by_index,
    settings: PlannerSettings | None = None,
    writer: FakeWriter | None = None,
    api: Nodes | None = None,
    yard: Yard | None = None,
    budgets: Budgets | None = None,
    allotter: Callable[[World, ManualClock], Allotter] | None = None,
) -> AsyncIterator[Bridge]:
    """Run turns over a world with these nodes; planners that share writer's pods and `api` live in one cluster."""
    clock = ManualClock()
    settings = settings or PlannerSettings()
    world = a_world(*nodes, now_s=clock.monotonic_s, hand_over_after_s=settings.hand_over_after_s, yard=yard)
    writer, recorder, registry = writer or FakeWriter(clock), FakeRecorder(), CollectorRegistry()
    plans: list[tuple[str, ...]] = []

    async def noted(world: World, batch: Sequence[Pod]) -> Plan:
        plans.append(tuple(pod.name for pod in batch))
        return await decide(world, batch)

    if api is None:
        api = Nodes()
        for node in nodes:
            api.show(node)
    claims = Claims(Claimer(cast(Any, api), lambda: str(next(_TOKENS))))
    budgets = budgets or Budgets()
    budgets.is_known = True
    hand = None if allotter is None else allotter(world, clock)
    turns = Turns(
        world, writer, recorder, noted, clock, settings, PlannerMetrics(registry), claims, hand, budgets=budgets
    )
    bridge = Bridge(clock, world, writer, recorder, turns, registry, api, budgets, plans)
    task = asyncio.ensure_future(turns.run())
    try:
        yield bridge
    finally:
        if task.done():
            await task
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await settle()
