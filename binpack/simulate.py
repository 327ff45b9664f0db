"""Placement policies on the openb protocol, with no cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Final, Protocol

from binpack.arrivals import Arrivals, arrivals, class_of, milli_gpu_of
from binpack.index import Index, Mix, mix_of
from binpack.peers import PEERS
from binpack.planner import plan_batch
from binpack.repack.rescue import Rescue
from binpack.repack.trial import Shift
from binpack.solver.instance import Budget
from binpack.tally import Tally
from binpack.trace import empty_state
from fleet.device import WHOLE_MILLI
from fleet.errors import ConfigError
from fleet.node import Node
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Pod

MILESTONES: Final = (90, 95, 100, 110, 120, 130)
OURS: Final = "berthmaster"
_CPU_ASKED_EVERY: Final = 16  # asking for processor time costs as much as a decision on some machines
POLICIES: Final = (OURS, *PEERS)
MIXES: Final = ("given", "learn")


class Policy(Protocol):
    """What a simulation asks of a policy."""

    def place(self, pod: Pod, *, with_shortfall: bool = True) -> Placement | Unplaced:
        """Return where the pod goes, or why nowhere; nothing is booked."""

    def take(self, pod: Pod, berth: Berth) -> None:
        """Book the pod on the berth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What to simulate.

    Attributes:
        policy: One of `POLICIES`.
        arrive_ratio: Arrivals end when the GPU demand reaches this part of the capacity.
        batch: Pods planned together, by the index and then the solver; 1 is the published online protocol.
        mix: "given" = the policy knows the trace's demand mix (not the sequence); "learn" = it starts from the default
            mix and learns from what has arrived. The published peers always know it.
        moves_ratio: Pods moved in all, at most this part of the pods placed so far; 0 = placed pods stay.
    """

    policy: str = OURS
    seed: int = 42
    arrive_ratio: float = 1.3
    batch: int = 1
    mix: str = "given"
    moves_ratio: float = 0.0

    def problems(self) -> list[str]:
        """Return everything that is wrong with the setting."""
        wrong = []
        if self.policy not in POLICIES:
            wrong.append(f"policy {self.policy!r} is none of {', '.join(POLICIES)}")
        if not 0 < self.arrive_ratio <= 100:
            wrong.append(f"arrive is {self.arrive_ratio}, wanted more than 0 and at most 100")
        if self.batch < 1:
            wrong.append(f"batch is {self.batch}, wanted at least 1")
        if self.batch > 1 and self.policy != OURS:
            wrong.append(f"the published policy {self.policy} places one pod at a time: batch must be 1")
        if self.mix not in MIXES:
            wrong.append(f"mix {self.mix!r} is none of {', '.join(MIXES)}")
        if not 0 <= self.moves_ratio <= 1:
            wrong.append(f"moves is {self.moves_ratio}, wanted 0 to 1")
        if self.moves_ratio > 0 and (self.policy != OURS or self.batch > 1):
            wrong.append(f"only {OURS} with a batch of 1 moves pods")
        return wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one arrival; `berth` None = refused, with the reason; `moves` were made to make room for it."""

    pod: Pod
    berth: Berth | None
    reason: str = ""
    moves: tuple[Shift, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run measured.

    Attributes:
        arrived_ratio: Arrived GPU demand over capacity; None where the nodes have no GPU, like all ratios here.
        unallocated_gpu_ratio: Free part of the capacity at the end.
        unallocated_at: The same when the arrived demand was last within each milestone (% of capacity); None where the
            arrivals ended before it.
        failed_pods: Refused pods by class; failed_pods_at_100: those of them refused within 100 % of arrived demand.
        refused_but_fits: Refused pods that an independent count could have placed; more than 0 is a fault.
        faults: Over-allocations found by that count; more than none is a fault.
        moves: Pods moved after they were placed.
        bound_ratio: Proven lower limit of unallocated_gpu_ratio; None where none was proved.
        decision_s: Time in the policy and its books, decision_cpu_s: of it on a processor, as others may use the
            machine too; wall_s: the whole run, with the independent count.
    """

    setting: Setting
    arrived: int
    arrived_ratio: float | None
    unallocated_gpu_ratio: float | None
    unallocated_at: Mapping[int, float | None]
    failed_pods: Mapping[str, int]
    failed_pods_at_100: Mapping[str, int]
    refused_but_fits: int
    faults: tuple[str, ...]
    decision_s: float
    decision_cpu_s: float
    wall_s: float
    moves: int = 0
    bound_ratio: float | None = None

    @property
    def pods_per_s(self) -> float:
        """Return arrivals per second of deciding."""
        return self.arrived / self.decision_s if self.decision_s > 0 else 0.0


def simulate(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    setting: Setting,
    *,
    on_outcome: Callable[[Outcome], None] = lambda _: None,
) -> Result:
    """Run one setting.

    Args:
        nodes: Empty nodes.
        pods: The trace; its order does not matter.
        setting: Policy, seed and protocol.
        on_outcome: Called once per arrival, in order of arrival.

    Raises:
        ConfigError: The setting is wrong; all problems are listed.
    """
    problems = setting.problems()
    if problems:
        raise ConfigError(problems)
    started = perf_counter()
    capacity = WHOLE_MILLI * sum(len(node.devices) for node in nodes)
    sequence = arrivals(pods, [node.name for node in nodes], capacity, setting.arrive_ratio, setting.seed)
    run = _Run(nodes, capacity, setting.moves_ratio)
    decision_s = decision_cpu_s = 0.0
    for outcomes, spent_s, spent_cpu_s in _decide(nodes, sequence, setting, mix_of(pods)):
        decision_s += spent_s
        decision_cpu_s += spent_cpu_s
        run.note(outcomes)
        for outcome in outcomes:
            on_outcome(outcome)
    return run.result(setting, decision_s, decision_cpu_s, perf_counter() - started)


def _decide(
    nodes: Sequence[Node], sequence: Arrivals, setting: Setting, mix: Mix
) -> Iterator[tuple[list[Outcome], float, float]]:
    """Yield what became of each batch, in order of arrival, with the seconds spent on it, all and on a processor."""
    states = [empty_state(node) for node in nodes]
    if setting.policy != OURS:
        peer = PEERS[setting.policy](states, sequence.node_order, mix, setting.seed)
        yield from _timed(sequence, 1, lambda pods: _one_by_one(peer, pods))
        return
    index = Index(states, mix=mix if setting.mix == "given" else None)

    moving = _Moving(index, setting.moves_ratio) if setting.moves_ratio > 0 else None

    def decide(pods: Sequence[Pod]) -> list[Outcome]:
        outcomes = _one_by_one(index, pods) if setting.batch == 1 else _together(index, pods)
        if moving is not None:
            outcomes = [moving.seen(outcome) for outcome in outcomes]
        if setting.mix == "learn":
            index.learn(pods)
        return outcomes

    yield from _timed(sequence, setting.batch, decide)


def _timed(
    sequence: Arrivals, batch: int, decide: Callable[[Sequence[Pod]], list[Outcome]]
) -> Iterator[tuple[list[Outcome], float, float]]:
    every = _CPU_ASKED_EVERY if batch == 1 else 1
    for number, start in enumerate(range(0, len(sequence.pods), batch)):
        is_asked = number % every == 0
        at, cpu_at = perf_counter(), process_time() if is_asked else 0.0
        outcomes = decide(sequence.pods[start : start + batch])
        yield outcomes, perf_counter() - at, every * (process_time() - cpu_at) if is_asked else 0.0


def _one_by_one(policy: Policy, pods: Iterable[Pod]) -> list[Outcome]:
    outcomes = []
    for pod in pods:
        answer = policy.place(pod, with_shortfall=False)
        if isinstance(answer, Placement):
            policy.take(pod, answer.berth)
            outcomes.append(Outcome(pod=pod, berth=answer.berth))
        else:
            outcomes.append(Outcome(pod=pod, berth=None, reason=answer.reason.value))
    return outcomes


def _together(index: Index, pods: Sequence[Pod]) -> list[Outcome]:
    """Plan the batch as the planner does, index first, then the solver, and carry the plan out."""
    plan = plan_batch(index, pods, Budget())
    berths = {placement.pod_uid: placement.berth for placement in plan.placements}
    reasons = {unplaced.pod_uid: unplaced.reason.value for unplaced in plan.unplaced}
    for pod in pods:
        if pod.uid in berths:
            index.take(pod, berths[pod.uid])
    return [Outcome(pod=pod, berth=berths.get(pod.uid), reason=reasons.get(pod.uid, "")) for pod in pods]


class _Moving:
    """Moves placed pods when an arrival fails, within a part of the pods placed so far."""

    def __init__(self, index: Index, ratio: float) -> None:
        self._rescue = Rescue(index)
        self._ratio = ratio
        self._placed = 0
        self._moved = 0

    def seen(self, outcome: Outcome) -> Outcome:
        """Return what becomes of an arrival that the policy has placed or refused."""
        if outcome.berth is not None:
            self._rescue.took(outcome.pod, outcome.berth)
            self._placed += 1
            return outcome
        found = self._rescue.make_room(outcome.pod, int(self._ratio * self._placed) - self._moved)
        if found is None:
            return outcome
        placement, shifts = found
        self._placed += 1
        self._moved += len(shifts)
        return Outcome(pod=outcome.pod, berth=placement.berth, moves=shifts)


class _Run:
    """Counts outcomes as they come."""

    def __init__(self, nodes: Sequence[Node], capacity_milli_gpu: int, moves_ratio: float) -> None:
        self._tally = Tally(nodes)
        self._moves_ratio = moves_ratio
        self._capacity = capacity_milli_gpu
        self._demand = 0
        self._pods = 0
        self._at: dict[int, float | None] = dict.fromkeys(MILESTONES)
        self._failed: Counter[str] = Counter()
        self._failed_at_100: Counter[str] | None = None
        self._wrongly_refused = 0
        self._placed = 0
        self._moves = 0

    def note(self, batch: Sequence[Outcome]) -> None:
        """Count a batch in order of arrival; only then can be said which refused pods would have fitted."""
        for outcome in batch:
            self._note(outcome)
        for outcome in batch:
            if outcome.berth is None:
                self._wrongly_refused += self._tally.where_it_fits(outcome.pod) is not None

    def _note(self, outcome: Outcome) -> None:
        demand = self._demand + milli_gpu_of(outcome.pod)
        self._pass_milestones(demand)
        self._demand = demand
        self._pods += 1
        for shift in outcome.moves:
            self._tally.move(shift.movable.pod, shift.movable.berth, shift.target)
        self._moves += len(outcome.moves)
        if outcome.moves and self._moves > self._moves_ratio * self._placed:
            self._tally.faults.append(f"{outcome.pod.name}: {self._moves} moves for {self._placed} pods placed")
        if outcome.berth is not None:
            self._placed += 1
            self._tally.book(outcome.pod, outcome.berth)
        else:
            self._failed[class_of(outcome.pod)] += 1

    def _pass_milestones(self, demand: int) -> None:
        for milestone in MILESTONES:
            if self._at[milestone] is None and demand * 100 > milestone * self._capacity:
                self._at[milestone] = self._unallocated()
                if milestone == 100:
                    self._failed_at_100 = self._failed.copy()

    def _unallocated(self) -> float | None:
        return 1 - self._tally.allocated_milli_gpu / self._capacity if self._capacity else None

    def result(self, setting: Setting, decision_s: float, decision_cpu_s: float, wall_s: float) -> Result:
        reached = 100 * setting.arrive_ratio
        for milestone in MILESTONES:
            if self._at[milestone] is None and milestone <= reached + 1e-9:
                self._at[milestone] = self._unallocated()
        failed = dict(sorted(self._failed.items()))
        return Result(
            setting=setting,
            arrived=self._pods,
            arrived_ratio=self._demand / self._capacity if self._capacity else None,
            unallocated_gpu_ratio=self._unallocated(),
            unallocated_at=self._at,
            failed_pods=failed,
            failed_pods_at_100=failed if self._failed_at_100 is None else dict(sorted(self._failed_at_100.items())),
            refused_but_fits=self._wrongly_refused,
            faults=tuple(self._tally.faults),
            decision_s=decision_s,
            decision_cpu_s=decision_cpu_s,
            wall_s=wall_s,
            moves=self._moves,
        )
