"""A pool with no cluster: nodes as facts, machines as values, and a controller's tick that writes what was decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fleet import labels
from fleet.constraints import Taint
from warmpool.nodes.action import Action, Drawn, Evict, Forget, Lead, Mark, Outcome, Pull, Release, Step, Tell, Unclaim
from warmpool.nodes.advance import advance
from warmpool.nodes.limits import Limits
from warmpool.nodes.reconcile import PoolPlan, carried, reconcile
from warmpool.nodes.seen import NodeFacts, NodeSeen, Puller
from warmpool.providers.breaker import Breakers
from warmpool.providers.provider import Capabilities, Machine, MachinePhase, Refusal
from warmpool.values import Image, NodeState, Offer, PoolNode, PoolSpec, Shape, Why

EXACT = Capabilities(can_order=True, can_release_exactly=True, tells_failure=True, taints_at_birth=True)
IMAGE = Image(reference="reg/rt", digest="sha256:aaa")


def a_pool(**changes: object) -> PoolSpec:
    """Return a pool of one-GPU nodes with one image."""
    given: dict[str, object] = {"name": "g1", "shape": Shape(instance_type="g", devices=1), "images": (IMAGE,)}
    return PoolSpec(**(given | changes))  # type: ignore[arg-type]


def proven(name: str, pool: PoolSpec, **changes: object) -> NodeFacts:
    """Return a node on which everything is there and nothing is marked yet."""
    facts = NodeFacts(
        name=name,
        uid=f"uid-{name}",
        is_ready=True,
        devices=pool.shape.devices,
        images=frozenset(image.pinned for image in pool.images),
        taints=(pool.pool_taint, pool.readiness_taint),
        shape=pool.shape.fingerprint,
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


@dataclass(kw_only=True)
class World:
    """One pool, its nodes and its controller's memory.

    Attributes:
        order: What the provider does with an order of so many; None = the machines stay ordered until the test moves.
        after_mark: Called with each Mark once it is written; for accidents.
        fails: Whether the write of an action comes to nothing.
    """

    pool: PoolSpec
    target: int = 0
    limits: Limits = Limits()
    capabilities: Capabilities = EXACT
    facts: dict[str, NodeFacts] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    pods: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pullers: dict[str, Puller] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    ages_s: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, PoolNode] = field(default_factory=dict)
    breakers: Breakers = Breakers()
    order: Callable[[float, Offer, int], None] | None = None
    after_mark: Callable[[Mark], None] | None = None
    fails: Callable[[Action], bool] = lambda action: False
    actions: list[tuple[float, Action]] = field(default_factory=list)
    orders: list[tuple[float, Offer, int]] = field(default_factory=list)
    plan: PoolPlan | None = None
    ordered: int = 0

    def add(self, *nodes: NodeFacts) -> None:
        """Put registered nodes there, machine and all."""
        for node in nodes:
            self.facts[node.name] = node
            self.machines[node.name] = Machine(
                name=node.name,
                pool=self.pool.name,
                node_name=node.name,
                phase=MachinePhase.REGISTERED,
                shape=self.pool.shape.fingerprint,
            )

    def change(self, name: str, **changes: object) -> None:
        self.facts[name] = replace(self.facts[name], **changes)  # type: ignore[arg-type]

    def tick(self, now_s: float) -> PoolPlan:
        """Look, advance every node, decide for the pool, and carry it all out."""
        for name in self.machines.keys() | self.facts.keys():
            if name not in self.nodes:
                self.nodes[name] = PoolNode.found(name, now_s, age_s=self.ages_s.get(name))
        for name in sorted(self.nodes):
            self._turn(name, now_s)
        self.plan = self._decide(now_s)
        self.nodes = {node.name: node for node in carried(tuple(self.nodes.values()), self.plan)}
        for close in self.plan.closes:  # the first write follows at once
            self._turn(close.name, now_s)
        for offer, count in self.plan.orders:
            self.orders.append((now_s, offer, count))
            self.breakers = self.breakers.ordered(self.pool.shape, offer, now_s)
            if self.order is not None:
                self.order(now_s, offer, count)
        return self.plan

    def put_order(self, now_s: float, offer: Offer, count: int) -> list[str]:
        """Take an order as a provider does: machines that are ordered."""
        names = []
        for _ in range(count):
            self.ordered += 1
            name = f"o{self.ordered}"
            names.append(name)
            self.machines[name] = Machine(
                name=name, pool=self.pool.name, offer=offer, shape=self.pool.shape.fingerprint
            )
            self.nodes[name] = PoolNode.ordered(name, offer, now_s)
        return names

    def refuse(self, name: str, refusal: Refusal = Refusal.INSUFFICIENT_CAPACITY) -> None:
        self.machines[name] = replace(self.machines[name], phase=MachinePhase.FAILED, refusal=refusal)

    def restart(self) -> None:
        """Lose all memory."""
        self.nodes = {}
        self.breakers = Breakers()

    def state(self, name: str) -> NodeState:
        return self.nodes[name].state

    def done(self, kind: type[Action]) -> list[Action]:
        return [action for _, action in self.actions if isinstance(action, kind)]

    def released(self) -> list[str]:
        return [action.name for action in self.done(Release) if isinstance(action, Release)]

    def warm(self) -> list[str]:
        return sorted(name for name, node in self.nodes.items() if node.is_claimable)

    def _turn(self, name: str, now_s: float) -> None:
        seen = NodeSeen(
            machine=self.machines.get(name),
            facts=self.facts.get(name),
            pods=self.pods.get(name, ()),
            puller=self.pullers.get(name, Puller.HOLDING),
            gone=self.gone,
        )
        node, actions = advance(seen, self.nodes[name], self.pool, now_s, self.limits)
        self.nodes[name] = node
        for action in actions:
            self.actions.append((now_s, action))
            if not self.fails(action):
                self._carry_out(name, action, now_s)

    def _decide(self, now_s: float) -> PoolPlan:
        return reconcile(
            self.pool,
            tuple(self.nodes.values()),
            self.target,
            now_s,
            breakers=self.breakers,
            limits=self.limits,
            capabilities=self.capabilities,
        )

    def _carry_out(self, name: str, action: Action, now_s: float) -> None:
        if isinstance(action, Mark | Tell | Unclaim) and name not in self.facts:
            return  # 404
        match action:
            case Mark() if action.claim_read != self.facts[name].claim:
                pass  # 422: somebody was faster
            case Mark():
                self.facts[name] = marked(self.facts[name], action)
                if self.after_mark is not None:
                    self.after_mark(action)
            case Tell():
                self.change(name, condition=("True" if action.is_warm else "False", action.why.value, action.message))
            case Unclaim():
                if self.facts[name].claim == action.text:
                    self.change(name, claim="")
            case Release():
                if action.must_look and self.pods.get(name):
                    return
                self.facts.pop(name, None)
                self.machines.pop(name, None)
            case Forget():
                self.nodes.pop(name)
            case Outcome(why=None):
                self.breakers = self.breakers.launched(self.pool.shape, action.offer, action.ordered_at_s)
            case Outcome():
                self.breakers = self.breakers.failed(
                    self.pool.shape, action.offer, action.ordered_at_s, now_s, action.why or Why.REFUSED, action.detail
                )
            case Pull() | Evict() | Step() | Lead() | Drawn():
                pass


def marked(facts: NodeFacts, mark: Mark) -> NodeFacts:
    """Return the node after the write."""
    gone = {position for position, _ in mark.removed}
    taints = [taint for position, taint in enumerate(facts.taints) if position not in gone]
    taints += [Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in mark.added]
    notes = {
        labels.WARM: facts.warm,
        labels.CLOSING: facts.closing,
        labels.DO_NOT_DISRUPT: "true" if facts.is_protected else "",
    }
    for name, text in mark.annotations:
        assert notes[name] != (text or ""), "a write that changes nothing"
        notes[name] = text or ""
    return replace(
        facts,
        taints=tuple(taints),
        is_unschedulable=facts.is_unschedulable if mark.unschedulable is None else mark.unschedulable,
        warm=notes[labels.WARM],
        closing=notes[labels.CLOSING],
        is_protected=bool(notes[labels.DO_NOT_DISRUPT]),
    )


def ticks(
    world: World, from_s: float, to_s: float, every_s: float, each: Callable[[float], None] | None = None
) -> None:
    """Tick from one time to another, both included."""
    now_s = from_s
    while now_s <= to_s:
        if each is not None:
            each(now_s)
        world.tick(now_s)
        now_s += every_s


def names(nodes: Sequence[PoolNode]) -> list[str]:
    return [node.name for node in nodes]


def a_world_of_one() -> World:
    """A pool that wants one node and orders it by itself."""
    world = World(pool=a_pool(), target=1)
    world.order = lambda now_s, offer, count: world.put_order(now_s, offer, count) and None
    return world


def warm_world(world: World, name: str = "w1") -> World:
    """The world with a node in it that is warm."""
    world.add(proven(name, world.pool))
    world.tick(0.0)
    assert world.state(name) is NodeState.WARM
    return world
