"""All that is known of one pool in one term of leadership: its nodes, what was measured, what it earned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from warmpool.controller.ledger import Ledger
from warmpool.controller.needs import nodes_for, share_of
from warmpool.controller.pods import PodView
from warmpool.controller.store import Memory, mark
from warmpool.controller.turn import Turn
from warmpool.nodes.action import Drawn
from warmpool.nodes.limits import StepTimes
from warmpool.nodes.reconcile import PoolPlan
from warmpool.resource import Spec
from warmpool.sizing import Rule, Size
from warmpool.values import NodeState, Objective, PoolNode, Static

_WAITING = frozenset({NodeState.CLAIMED, NodeState.RELEASING, NodeState.FAILED})


@dataclass(slots=True)
class Book:
    """One pool.

    Attributes:
        spec: In force.
        rule: Sizes it.
        nodes: By the name of their machine.
        times: Step and lead times.
        ledger: Draws, misses, idle time.
        counted: Marks of pods whose draws were counted.
        size: The last decision; None = none yet.
        plan: What the last look wanted; None = there was none.
        failed: Nodes given up in this term.
        failures: The last of them, for people.
        backlog: Nodes that pods wait for which missed.
        looked_at_s: Monotonic time of the last look; -inf = never.
        problem: Why it could not be looked at or ordered for; "" = it could.
        is_restored: What it remembers of earlier terms was asked for.
        is_changed: Something is to be stored.
        waits: A node is being given up, or a claim stands: time alone will change that.
    """

    spec: Spec
    rule: Rule
    nodes: dict[str, PoolNode] = field(default_factory=dict)
    times: StepTimes = StepTimes()
    ledger: Ledger = field(default_factory=Ledger)
    counted: set[bytes] = field(default_factory=set)
    size: Size | None = None
    sized_at_s: float = float("-inf")
    plan: PoolPlan | None = None
    failed: int = 0
    failures: tuple[PoolNode, ...] = ()
    backlog: int = 0
    looked_at_s: float = float("-inf")
    problem: str = ""
    is_restored: bool = False
    is_changed: bool = False
    waits: bool = False

    def apply(self, spec: Spec, rule: Rule | None = None) -> None:
        """Take a changed spec; `rule` where the objective asks for another."""
        self.spec = spec
        if rule is not None:
            self.rule = rule
        else:
            self.rule.apply(spec.pool)
        self.sized_at_s = float("-inf")

    def remember(self, memory: Memory) -> None:
        """Take what an earlier term stored."""
        self.ledger, self.times, self.counted = memory.ledger, memory.times, set(memory.counted)
        self.is_restored = True

    def memory(self, alive: Iterable[str]) -> Memory:
        """Return what is to be stored; of the pods that were counted only those still there are of any use."""
        self.counted &= {mark(uid) for uid in alive}  # the others never come again
        return Memory(ledger=self.ledger, times=self.times, counted=frozenset(self.counted), history=self.rule.stored())

    def count(self, state: NodeState) -> int:
        """Return how many nodes are in a state."""
        return sum(node.state is state for node in self.nodes.values())

    @property
    def warm(self) -> int:
        """Return how many a draw would get now."""
        return sum(node.is_claimable for node in self.nodes.values())

    @property
    def coming(self) -> int:
        """Return how many are ordered and not proven warm."""
        return sum(node.is_coming for node in self.nodes.values())

    def passed(self, wall_s: float, now_s: float) -> float:
        """Let the time since the last look count, and return the node-seconds that stood idle: warm and unclaimed."""
        elapsed_s = max(0.0, now_s - self.looked_at_s) if self.looked_at_s > float("-inf") else 0.0
        self.looked_at_s = now_s
        if not elapsed_s:
            return 0.0
        idle_s = self.warm * elapsed_s
        self.ledger.idled(wall_s, idle_s, elapsed_s)
        return idle_s

    def take(self, turn: Turn) -> None:
        """Take what a look brought, but for draws."""
        self.nodes = dict(turn.nodes)
        self.times, self.plan = turn.times, turn.plan
        self.waits = any(node.close_why is not None or node.state in _WAITING for node in turn.nodes.values())
        self.failed += len(turn.failures)
        self.failures = (*self.failures, *turn.failures)[-8:]
        for lead_s in turn.leads_s:
            self.rule.led(lead_s)
        self.is_changed |= bool(turn.leads_s)

    def draw(self, drawn: Iterable[Drawn], noted: Iterable[PodView], wall_s: float) -> tuple[int, int]:
        """Count draws, each pod once; returns draws and misses, in replicas.

        Args:
            drawn: Nodes that were spoken for: what is known where nobody noted anything on the pods.
            noted: Pods on which the planner noted how their draw ended; that word counts first.
            wall_s: Time since the epoch.
        """
        shape = self.spec.pool.shape
        missed: list[float] = []
        hits: dict[str, int] = {}
        for pod in noted:
            draw = pod.draw
            if draw is None or draw.pool != self.spec.pool.name or not self._is_new(pod.uid):
                continue
            if draw.is_hit:
                hits[draw.why or pod.uid] = hits.get(draw.why or pod.uid, 0) + 1
            else:
                missed.append(share_of(pod.requests, shape))
        for one in drawn:
            new = [uid for uid in one.pods if self._is_new(uid)]
            if not new:
                continue
            if one.was_warm:
                hits[one.node] = hits.get(one.node, 0) + len(new)
            else:
                missed += [1.0 / len(new)] * len(new)  # together they drew this one node
        replicas = sum(hits.values()) + len(missed)
        if not replicas:
            return 0, 0
        nodes_missed = nodes_for(missed)
        self.ledger.drew(wall_s, replicas, len(missed))
        self.rule.drew(wall_s, len(hits) + nodes_missed, nodes_missed)
        self.is_changed = True
        return replicas, len(missed)

    def forget_release(self, name: str) -> None:
        """Take note that a release was not asked for after all."""
        node = self.nodes.get(name)
        if node is not None:
            self.nodes[name] = replace(node, release_told_s=None)

    def _is_new(self, uid: str) -> bool:
        text = mark(uid)
        if text in self.counted:
            return False
        self.counted.add(text)
        return True


def is_same_rule(one: Objective, other: Objective) -> bool:
    """Return True if one rule can serve both."""
    return isinstance(one, Static) == isinstance(other, Static)


def by_state(nodes: Mapping[str, PoolNode]) -> dict[NodeState, int]:
    """Return how many nodes are in each state."""
    found: dict[NodeState, int] = {}
    for node in nodes.values():
        found[node.state] = found.get(node.state, 0) + 1
    return found
