"""Whatever happens to a pool, and whatever of its writes is lost: what must never be, never is."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.claim import Claim, format_claim, read_claim, standing
from tests.support.warm_world import EXACT, IMAGE, World, a_pool, proven
from warmpool.nodes.action import Action, Forget, Lead, Outcome, Release, Step
from warmpool.nodes.limits import Limits
from warmpool.nodes.reconcile import reconcile
from warmpool.providers.breaker import Breakers
from warmpool.providers.provider import MachinePhase
from warmpool.values import COMING, NodeState, Offer, PoolNode, Why

_NEWS = (Outcome, Step, Lead, Forget)
_HAPPENINGS = [
    *("wait", "wait_long", "register", "ready", "unready", "gpu", "no_gpu", "images", "no_images", "pod", "pod_ends"),
    *("claim", "foreign_taint", "cordon", "uncordon", "vanish", "refuse", "restart", "target", "spare"),
]
_EVENTS = st.tuples(st.sampled_from(_HAPPENINGS), st.integers(0, 7), st.sampled_from([0.0, 0.3]))


class _Invariants:
    """A world that is watched."""

    def __init__(self) -> None:
        self.world = World(
            pool=a_pool(max_nodes=6, expire_after_s=50_000.0),
            target=2,
            limits=Limits(warm_timeout_s=2000.0, replace_s=300.0),
        )
        self.world.order = lambda now_s, offer, count: self.world.put_order(now_s, offer, count) and None
        self.now_s = 0.0
        self.dice = random.Random(1)
        self.tokens = 0
        self.loss_ratio = 0.0
        self.world.fails = self.judge

    def judge(self, action: Action) -> bool:
        """Check every write before it happens; lose some."""
        world = self.world
        if isinstance(action, Release):
            assert not world.pods.get(action.name), "a node with pods on it was released"
            facts = world.facts.get(action.name)
            node = world.nodes[action.name]
            if facts is not None:
                claim = read_claim(facts.claim)
                assert not standing(claim, node.claim_seen_s, self.now_s), "a claimed node was released"
                is_shut = facts.is_unschedulable and facts.closing
                is_unopened = world.pool.readiness_taint in facts.taints
                assert not facts.warm, "a node was released that could still be claimed"
                assert is_shut or is_unopened, "a node was released that was still open to pods"
        if isinstance(action, _NEWS):
            return False
        return self.dice.random() < self.loss_ratio

    def happen(self, event: str, which: int) -> None:
        """Let something happen to one of the nodes, or to all."""
        world = self.world
        self.now_s += 5000.0 if event == "wait_long" else 7.0
        if event == "restart":
            world.restart()
        if event == "target":
            world.target = which % 4
        names = sorted(world.machines)
        if not names:
            return
        name = names[which % len(names)]
        if event == "refuse" and name not in world.facts:
            world.refuse(name)
        if event == "register" and name not in world.facts and world.machines[name].refusal is None:
            world.machines[name] = replace(world.machines[name], phase=MachinePhase.REGISTERED, node_name=name)
            world.facts[name] = proven(name, world.pool, is_ready=False, devices=None, images=frozenset())
        if event == "vanish":
            world.machines.pop(name)
            world.facts.pop(name, None)
            world.pods.pop(name, None)
        if name in world.facts:
            self._befall(event, name)

    def _befall(self, event: str, name: str) -> None:
        world, facts = self.world, self.world.facts[name]
        changes: dict[str, dict[str, Any]] = {
            "ready": {"is_ready": True},
            "unready": {"is_ready": False},
            "gpu": {"devices": 1},
            "no_gpu": {"devices": 0},
            "images": {"images": frozenset({IMAGE.pinned})},
            "no_images": {"images": frozenset()},
            "cordon": {"is_unschedulable": True},
            "uncordon": {"is_unschedulable": False},
            "spare": {"is_spare": not facts.is_spare},
            "foreign_taint": {"taints": (*facts.taints, world.pool.readiness_taint)},
        }
        if event == "foreign_taint" and world.pool.readiness_taint in facts.taints:
            return
        if event in changes:
            world.change(name, **changes[event])
        if event == "pod" and not facts.is_unschedulable and world.pool.readiness_taint not in facts.taints:
            self.tokens += 1
            world.pods[name] = (*world.pods.get(name, ()), f"p{self.tokens}")
        if event == "pod_ends":
            world.pods[name] = world.pods.get(name, ())[1:]
        if event == "claim" and facts.warm and not facts.claim:
            self.tokens += 1
            claim = Claim(set_id=f"s{self.tokens}", pods=(f"p{self.tokens}",), is_firm=self.tokens % 2 == 0)
            world.change(name, claim=format_claim(claim))

    def tick(self) -> None:
        """One turn of the controller, and what must hold after it."""
        world = self.world
        before = {name: node.state for name, node in world.nodes.items()}
        plan = world.tick(self.now_s)
        assert len(world.machines) <= world.pool.max_nodes + world.pool.surge_nodes
        assert sum(count for _, count in plan.orders) <= plan.target + plan.surge
        for name, node in world.nodes.items():
            facts = world.facts.get(name)
            if node.is_claimable:
                assert facts is not None
                assert facts.is_ready
                assert facts.devices == 1
                assert facts.images == {IMAGE.pinned}
            if world.pods.get(name):
                assert node.state in (NodeState.SERVING, NodeState.RELEASING, NodeState.FAILED)
            assert before.get(name) is not NodeState.FAILED or node.state is NodeState.FAILED
            if self.loss_ratio == 0.0 and facts is not None and node.state in COMING and not facts.claim:
                assert world.pool.readiness_taint in facts.taints, "open though not proven"
                assert not facts.warm
            if self.loss_ratio == 0.0 and facts is not None and node.is_claimable:
                assert world.pool.readiness_taint not in facts.taints, "proven and still closed"


@settings(max_examples=200, deadline=None)
@given(st.lists(_EVENTS, max_size=60))
def test_what_must_never_be_never_is(events: list[tuple[str, int, float]]) -> None:
    watched = _Invariants()
    watched.tick()
    for event, which, loss_ratio in events:
        watched.loss_ratio = loss_ratio
        watched.happen(event, which)
        watched.tick()


@settings(max_examples=60, deadline=None)
@given(st.lists(_EVENTS, max_size=40))
def test_left_alone_a_pool_comes_to_rest_at_its_target(events: list[tuple[str, int, float]]) -> None:
    watched = _Invariants()
    watched.world.pool = replace(watched.world.pool, expire_after_s=None)
    watched.tick()
    for event, which, loss_ratio in events:
        watched.loss_ratio = loss_ratio
        watched.happen(event, which)
        watched.tick()
    world = watched.world
    world.target = 2
    watched.loss_ratio = 0.0
    for name in world.facts:
        world.pods[name] = ()
        world.change(name, is_spare=False, is_unschedulable=bool(world.facts[name].closing), claim="")
    for _ in range(60):
        for name, machine in list(world.machines.items()):
            if name not in world.facts and machine.refusal is None:
                watched.happen("register", sorted(world.machines).index(name))
            if name in world.facts:
                world.change(name, is_ready=True, devices=1, images=frozenset({IMAGE.pinned}))
        watched.now_s += 60.0
        watched.tick()
    assert len(world.warm()) == 2
    assert len(world.machines) == len(world.facts) == len(world.nodes) == 2, "nothing leaked"
    for facts in world.facts.values():
        assert facts.taints == (world.pool.pool_taint,), "no orphan taint"
        assert (facts.closing, facts.is_unschedulable) == ("", False)


_STATES = st.sampled_from([state for state in NodeState if state is not NodeState.RELEASED])
_NODES = st.lists(
    st.tuples(_STATES, st.integers(0, 3), st.booleans(), st.booleans(), st.one_of(st.none(), st.integers(1, 5))),
    max_size=10,
)


@settings(max_examples=300, deadline=None)
@given(_NODES, st.integers(0, 12), st.randoms(use_true_random=False))
def test_the_plan_depends_on_states_and_not_on_order(
    rows: list[tuple[NodeState, int, bool, bool, int | None]], target: int, dice: random.Random
) -> None:
    nodes = [
        replace(
            PoolNode.found(f"n{number}", float(age)),
            state=state,
            is_cordoned=is_cordoned,
            is_spare=is_spare,
            expires_at_s=None if expires is None else float(expires),
        )
        for number, (state, age, is_cordoned, is_spare, expires) in enumerate(rows)
    ]
    pool = a_pool(max_nodes=10)

    def plan(given: list[PoolNode]) -> Any:
        return reconcile(
            pool, given, target, 3.0, breakers=Breakers(), limits=Limits(replace_s=1.0), capabilities=EXACT
        )

    first = plan(nodes)
    shuffled = list(nodes)
    dice.shuffle(shuffled)
    again = plan(shuffled)
    assert replace(first, closes=tuple(sorted(first.closes, key=str))) == replace(
        again, closes=tuple(sorted(again.closes, key=str))
    )
    closed = {close.name for close in first.closes}
    assert len(closed) == len(first.closes), "no node is given up twice"
    used = {node.name for node in nodes if node.state is NodeState.CLAIMED}
    assert not closed & used
    assert first.position + sum(count for _, count in first.orders) <= max(first.position, first.target + first.surge)
    left = first.position - len([name for name in closed if _in_position(nodes, name)])
    assert left >= min(first.position, first.target), "never below the target by its own hand"


def _in_position(nodes: list[PoolNode], name: str) -> bool:
    return any(node.name == name and node.is_in_position for node in nodes)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 400.0)), max_size=40))
def test_pauses_never_shrink_while_the_answer_stays_the_same(history: list[tuple[bool, float]]) -> None:
    shape, offer = a_pool().shape, Offer()
    breakers, now_s, pause_s = Breakers(), 0.0, 0.0
    for is_served, wait_s in history:
        now_s += wait_s
        if breakers.allowance(shape, offer, now_s) == 0:
            continue
        breakers = breakers.ordered(shape, offer, now_s)
        if is_served:
            breakers, pause_s = breakers.launched(shape, offer, now_s), 0.0
            assert breakers.of(shape, offer) is None
        else:
            breakers = breakers.failed(shape, offer, now_s, now_s, Why.INSUFFICIENT_CAPACITY, "")
            breaker = breakers.of(shape, offer)
            assert breaker is not None
            assert breaker.retry_at_s - now_s >= pause_s - 1e-6
            pause_s = breaker.retry_at_s - now_s
            assert pause_s <= 900.0 + 1e-6
