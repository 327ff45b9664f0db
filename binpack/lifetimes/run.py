"""Placement policies where pods come and go, and wait for room; with no cluster."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from time import perf_counter
from typing import Protocol

from binpack.arrivals import class_of, milli_gpu_of
from binpack.index import Index, mix_of
from binpack.index.ahead import Ahead, Present, kind_of
from binpack.index.kept import asks_several
from binpack.lifetimes.drawing import Arrival, cut, drawn, mix_by_load, rate_per_s, usual
from binpack.lifetimes.meter import Meter
from binpack.lifetimes.moving import Moving
from binpack.lifetimes.queue import Queue, Waiting, shape_of
from binpack.lifetimes.values import LifeResult, LifeSetting, Lived
from binpack.peers import PEERS
from binpack.simulate import OURS
from binpack.tally import Tally
from binpack.trace import empty_state
from fleet.device import WHOLE_MILLI
from fleet.errors import ConfigError
from fleet.node import Node
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Pod

_DAY_S = 86_400.0
_LOOKED_AT_EVERY = 997  # refusals: the independent search for room takes longer than the refusal itself


class LeavingPolicy(Protocol):
    """What a run in which pods leave asks of a policy."""

    def place(self, pod: Pod, *, with_shortfall: bool = True) -> Placement | Unplaced:
        """Return where the pod goes, or why nowhere; nothing is booked."""

    def take(self, pod: Pod, berth: Berth) -> None:
        """Book the pod on the berth."""

    def give_back(self, pod: Pod, berth: Berth) -> None:
        """Undo `take`."""


def simulate_lifetimes(
    nodes: Sequence[Node],
    lived: Sequence[Lived],
    setting: LifeSetting,
    *,
    on_progress: Callable[[float], None] = lambda _: None,
) -> LifeResult:
    """Run one setting.

    Args:
        nodes: Empty nodes.
        lived: The trace; its order does not matter.
        setting: Policy, load and time.
        on_progress: Called with the simulated part of the time, at every arrival.

    Raises:
        ConfigError: The setting is wrong, the nodes have no GPU, or the pods ask no GPU time; all problems are listed.
    """
    problems = setting.problems()
    devices = sum(len(node.devices) for node in nodes)
    if not devices:
        problems.append("the nodes have no GPU")
    if not any(milli_gpu_of(one.pod) and one.life_s > 0 for one in lived):
        problems.append("the pods ask for no GPU time")
    if problems:
        raise ConfigError(problems)
    return _Run(nodes, cut(lived), setting).result(on_progress)


class _Run:
    """One run; events are arrivals and departures in order of time."""

    def __init__(self, nodes: Sequence[Node], lived: Sequence[Lived], setting: LifeSetting) -> None:
        warm_up_days = setting.warm_up_days
        longest_s = max(one.life_s for one in lived)
        self._from_s = longest_s if warm_up_days is None else warm_up_days * _DAY_S
        self._until_s = self._from_s + setting.days * _DAY_S
        self._setting = setting
        self._lived = lived
        self._gpus = sum(len(node.devices) for node in nodes)
        self._policy = _policy(nodes, lived, setting)
        self._index = self._policy if isinstance(self._policy, Index) else None
        shapes = list(dict.fromkeys(shape_of(one.pod) for one in lived))
        self._queue = Queue(nodes, shapes, is_in_turn=setting.is_in_turn)
        self._tally = Tally(nodes)
        self._meter = Meter(WHOLE_MILLI * self._gpus, self._from_s)
        self._ahead = Ahead(usual(lived, self._gpus) if setting.mix == "given" else ())
        self._several: dict[Hashable, Pod] = {}
        self._running = Counter[Hashable]()
        self._moving = Moving(self._index, setting.moves_ratio) if self._index and setting.moves_ratio > 0 else None
        self._moves_before = 0
        self._leaving: list[tuple[float, int, Pod, Berth]] = []
        self._arrived = self._refused = 0
        self._offered_milli_s = 0.0
        self._faults: list[str] = []
        self._decision_s = 0.0

    def result(self, on_progress: Callable[[float], None]) -> LifeResult:
        started = perf_counter()
        rate = rate_per_s(self._lived, self._gpus, self._setting.load_ratio)
        for number, arrival in enumerate(drawn(self._lived, rate, self._until_s, self._setting.seed)):
            self._leave_until(arrival.at_s)
            self._pass_to(arrival.at_s)
            self._arrive(number, arrival)
            if self._moving is not None:
                self._make_room(self._moving, arrival.at_s)
            on_progress(arrival.at_s / self._until_s)
        self._leave_until(self._until_s)
        self._pass_to(self._until_s)
        pending_gpu_hours, pending_pod_hours = self._meter.pending()
        return LifeResult(
            setting=self._setting,
            gpus=self._gpus,
            arrived=self._arrived,
            offered_ratio=self._offered_milli_s / (WHOLE_MILLI * self._gpus * (self._until_s - self._from_s)),
            unallocated_gpu_ratio=self._meter.unallocated_ratio,
            pending_gpu_hours=pending_gpu_hours,
            pending_pod_hours=pending_pod_hours,
            stranded_gpu_hours=self._meter.stranded_gpu_hours,
            wanted_gpu_hours=self._meter.wanted_gpu_hours,
            waiting_at_end=dict(sorted(Counter(map(class_of, self._queue)).items())),
            moves=self._moving.moves - self._moves_before if self._moving is not None else 0,
            faults=tuple(self._faults + self._tally.faults),
            decision_s=self._decision_s,
            wall_s=perf_counter() - started,
        )

    def _pass_to(self, now_s: float) -> None:
        self._meter.pass_to(now_s)

    def _arrive(self, number: int, arrival: Arrival) -> None:
        pod = arrival.pod
        if arrival.at_s >= self._from_s:
            self._arrived += 1
            self._offered_milli_s += milli_gpu_of(pod) * arrival.life_s
        if self._index is not None and self._setting.mix == "learn":
            self._index.learn([pod])
        waiting = Waiting(number, arrival.at_s, pod, arrival.life_s)
        if self._queue.is_waiting(pod) or not self._start(waiting, arrival.at_s):
            self._refused += 1
            if self._refused % _LOOKED_AT_EVERY == 0 and (node := self._tally.where_it_fits(pod)):
                self._faults.append(f"{pod.name} waits though {node} has room")
            self._queue.add(waiting)
            self._meter.wait(pod, 1)
            self._note(pod, arrival.at_s)

    def _start(self, waiting: Waiting, now_s: float) -> bool:
        at = perf_counter()
        answer = self._policy.place(waiting.pod, with_shortfall=False)
        self._decision_s += perf_counter() - at
        if not isinstance(answer, Placement):
            return False
        self._policy.take(waiting.pod, answer.berth)
        if self._moving is not None:
            self._moving.took(waiting.pod, answer.berth)
        self._started(waiting, answer.berth, now_s)
        return True

    def _started(self, waiting: Waiting, berth: Berth, now_s: float) -> None:
        """Note what the policy has placed and booked."""
        pod = waiting.pod
        self._queue.take(pod, berth)
        self._tally.book(pod, berth)
        self._meter.allocate(pod, 1)
        self._note(pod, now_s, 1)
        heapq.heappush(self._leaving, (now_s + waiting.life_s, waiting.number, pod, berth))

    def _leave_until(self, now_s: float) -> None:
        """Let everything leave that ends by then, and give the room to pods that wait."""
        while self._leaving and self._leaving[0][0] <= now_s:
            at_s, _, pod, berth = heapq.heappop(self._leaving)
            self._pass_to(at_s)
            if self._moving is not None:
                berth = self._moving.berth_of(pod.uid)
            for books in (self._policy, self._queue):
                books.give_back(pod, berth)
            if self._moving is not None:
                self._moving.gave_back(pod.uid)
            self._tally.unbook(pod, berth)
            self._meter.allocate(pod, -1)
            self._note(pod, at_s, -1)
            self._let_in(berth.node, at_s)

    def _let_in(self, node: str, now_s: float) -> None:
        while (waiting := self._queue.pop_fitting(node, now_s)) is not None:
            self._meter.wait(waiting.pod, -1)
            self._note(waiting.pod, now_s)
            if not self._start(waiting, now_s):
                raise AssertionError(f"{waiting.pod.name} fits {node} by one count and not by the other")

    def _make_room(self, moving: Moving, now_s: float) -> None:
        """Move pods for some of those that wait, where it is time for it; then let others onto what was left."""
        if now_s < self._from_s:
            self._moves_before = moving.moves
        if not len(self._queue) or not moving.is_time(now_s):
            return
        for pod in moving.looked_at(self._queue.kinds()):
            while self._queue.is_waiting(pod):
                at = perf_counter()
                found = moving.make_room(self._queue.first(pod), now_s)
                self._decision_s += perf_counter() - at
                if found is None:
                    break
                placement, shifts = found
                waiting = self._queue.pop(pod)
                for shift in shifts:
                    moved, source = shift.movable.pod, shift.movable.berth
                    self._queue.take(moved, shift.target)
                    self._queue.give_back(moved, source)
                    self._tally.move(moved, source, shift.target)
                self._meter.wait(waiting.pod, -1)
                self._started(waiting, placement.berth, now_s)
                for shift in shifts:
                    self._let_in(shift.movable.berth.node, now_s)

    def _note(self, changed: Pod, now_s: float, running: int = 0) -> None:
        """Tell our index who runs and who waits, as the planner does, where it makes a difference."""
        if self._index is None or not asks_several(changed):
            return
        kind = kind_of(changed)
        self._several[kind] = changed
        self._running[kind] += running
        queued = {kind_of(pod): n for pod, n in self._queue.kinds()}
        present = {
            kind: Present(pod=pod, running=self._running[kind], waiting=queued.get(kind, 0))
            for kind, pod in self._several.items()
        }
        self._index.keep_for(self._ahead.expected(present, now_s))


def _policy(nodes: Sequence[Node], lived: Sequence[Lived], setting: LifeSetting) -> LeavingPolicy:
    states = [empty_state(node) for node in nodes]
    if setting.policy == OURS:
        return Index(states, mix=mix_by_load(lived) if setting.mix == "given" else None)
    names = sorted(node.name for node in nodes)
    random.Random(setting.seed).shuffle(names)
    return PEERS[setting.policy](states, names, mix_of([one.pod for one in lived]), setting.seed)
