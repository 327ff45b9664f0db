"""Reports from the field about warm nodes, played tick by tick against the state machine. See warm_nodes.yaml."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.claim import Claim, format_claim
from fleet.kube.claimer import Candidate, Claimer, Held, Miss
from tests.support.claims import Nodes, run
from tests.support.warm_world import IMAGE, World, a_pool, proven
from warmpool.nodes.action import Mark, Pull
from warmpool.nodes.limits import Limits
from warmpool.nodes.seen import Puller
from warmpool.providers.breaker import LONGEST_PAUSE_S
from warmpool.providers.provider import MachinePhase
from warmpool.values import COMING, NodeState, Offer, PoolNode, Why

_CASES = yaml.safe_load((Path(__file__).parent / "warm_nodes.yaml").read_text())


@pytest.mark.parametrize("case", _CASES, ids=[case["name"] for case in _CASES])
def test_warm_node_case(case: Mapping[str, Any]) -> None:
    for repeat in range(case.get("shuffled", 1)):
        _play(case, random.Random(repeat))


def test_one_warm_member_one_claim() -> None:
    """kubernetes-sigs/agent-sandbox#431: several claims adopted the same member, and one silently lost it."""
    api: Any = Nodes(w1="img", w2="img")
    tokens = itertools.count()
    seen = [Candidate(name=name, uid=f"uid-{name}", warm="img") for name in ("w1", "w2")]
    answers = [
        run(Claimer(api, lambda: str(next(tokens))).draw(f"set-{pod}", (pod,), seen)) for pod in ("u1", "u2", "u3")
    ]
    assert [answer.node if isinstance(answer, Held) else "miss" for answer in answers] == ["w1", "w2", "miss"]
    assert isinstance(answers[2], Miss)


def test_no_capacity_no_storm() -> None:
    """Azure/karpenter-provider-azure#1854: an order failed at once, its deletion woke the controller, which ordered."""
    world = World(pool=a_pool(), target=3)
    pending: list[tuple[float, str]] = []

    def order(now_s: float, offer: Offer, count: int) -> None:
        pending.extend((now_s, name) for name in world.put_order(now_s, offer, count))

    world.order = order
    for now_s in range(7200):
        woken = False
        for ordered_s, name in pending:
            if ordered_s < 3600:
                if now_s == ordered_s + 1:
                    world.refuse(name)
                    woken = True
            elif now_s == ordered_s + 120:
                world.machines[name] = replace(world.machines[name], phase=MachinePhase.REGISTERED, node_name=name)
                world.facts[name] = proven(name, world.pool)
        if now_s % 10 == 0 or woken:
            plan = world.tick(float(now_s))
            if 10 <= now_s < 3600:
                assert not plan.is_capacity_available
        if now_s == 3599:
            calls = [at_s for at_s, _, _ in world.orders]
            gaps = [after - before for before, after in itertools.pairwise(calls)]
            assert len(calls) <= 60
            assert all(later >= earlier for earlier, later in itertools.pairwise(gaps[:5]))
            assert max(gaps) <= LONGEST_PAUSE_S + 10
            assert world.facts == {}
        if now_s == 4800:
            assert len(world.warm()) == 3
    assert world.breakers.tripped == {}, "a success forgets the refusals"
    assert sum(count for at_s, _, count in world.orders if at_s >= 3600) == 3


def test_same_birthday_same_expiry() -> None:
    """aws/karpenter-provider-aws#6980: nodes made together were all recycled at the same moment."""
    age_s, lead_s, life_s = 2_505_600.0, 600.0, 2_592_000.0
    pool = a_pool(expire_after_s=life_s, surge_nodes=1)
    world = World(pool=pool, target=3, limits=Limits(replace_s=900.0))
    born: dict[str, float] = {}
    for name in ("w1", "w2", "w3"):
        world.add(proven(name, pool))
        world.ages_s[name] = age_s
        born[name] = 0.0
    pending: list[tuple[float, str]] = []

    def order(now_s: float, offer: Offer, count: int) -> None:
        for name in world.put_order(now_s, offer, count):
            pending.append((now_s, name))
            born[name] = now_s

    world.order = order
    for step in range(int((2_678_400 - age_s) // 60) + 1):
        now_s = age_s + 60.0 * step
        for ordered_s, name in pending:
            if now_s == ordered_s + lead_s:
                world.machines[name] = replace(world.machines[name], phase=MachinePhase.REGISTERED, node_name=name)
                world.facts[name] = proven(name, pool)
        world.tick(now_s)
        assert len(world.warm()) >= 3, now_s
        assert len(world.machines) <= 4
        assert all(now_s - born[name] <= life_s for name in world.machines)
    assert world.released() == ["w1", "w2", "w3"]
    starts = [at_s for at_s, _, _ in world.orders]
    assert len(starts) == 3
    assert min(after - before for before, after in itertools.pairwise(starts)) >= 600


def test_a_claim_lapses_by_its_duration_on_our_clock() -> None:
    """kubernetes/kubernetes#6193: the other process wrote that the claim ends at 700; seen at 900, it ends at 1200."""
    world = World(pool=a_pool(), target=1)
    world.add(proven("w1", world.pool))
    world.tick(0.0)
    claim = format_claim(Claim(set_id="s", pods=("u1",), is_firm=True, seconds=300, token="t"))
    world.change("w1", claim=claim)
    for now_s in (900.0, 1000.0, 1199.0):
        world.tick(now_s)
        assert world.state("w1") is NodeState.CLAIMED
    world.tick(1200.0)
    assert world.facts["w1"].claim == ""
    world.tick(1201.0)
    assert world.state("w1") is NodeState.WARM


def _play(case: Mapping[str, Any], dice: random.Random) -> None:
    words = dict(case["pool"])
    target = words.pop("target")
    pool = a_pool(**words)
    limits = Limits(warm_timeout_s=pool.warm_timeout_s or 3600.0, silence_s=case.get("silence_s", 120.0), settle_s=10.0)
    world = World(pool=pool, target=target, limits=limits)
    world.order = lambda now_s, offer, count: world.put_order(now_s, offer, count) and None
    names = list(case["nodes"])
    dice.shuffle(names)
    for name in names:
        facts = dict(case["nodes"][name])
        world.pods[name] = tuple(facts.pop("pods", ()))
        world.add(proven(name, pool, **_facts(facts)))
    now_s = 0.0
    gone: dict[str, PoolNode] = {}
    for step in case["steps"]:
        _change(world, step)
        begins = now_s if "every" in step else step["at"]
        for at_s in range(int(begins), int(step["at"]) + 1, step.get("every", 1)):
            if step.get("ticks", True):
                world.tick(float(at_s))
                gone |= {name: node for name, node in world.nodes.items() if node.state is NodeState.FAILED}
        now_s = step["at"] + step.get("every", 0)
        for key, right in step.get("right", {}).items():
            assert _found(world, key, right, gone) == right, f"{case['name']} at {step['at']}: {key}"


def _facts(words: Mapping[str, Any]) -> dict[str, Any]:
    facts = dict(words)
    if "images" in facts:
        facts["images"] = frozenset(IMAGE.pinned for _ in facts["images"])
    return facts


def _change(world: World, step: Mapping[str, Any]) -> None:
    world.target = step.get("target", world.target)
    for name, words in step.get("set", {}).items():
        world.change(name, **_facts(words))
    for name, word in step.get("puller", {}).items():
        world.pullers[name] = Puller(word)
    for name, words in step.get("appears", {}).items():
        world.machines[name] = replace(world.machines[name], phase=MachinePhase.REGISTERED, node_name=name)
        world.facts[name] = proven(name, world.pool, **_facts(words))
    if step.get("restart"):
        world.restart()
    if "taint_again" in step:
        name = step["taint_again"]
        world.change(name, taints=(*world.facts[name].taints, world.pool.readiness_taint))
    for name, pod in step.get("lands_after_first_write", {}).items():

        def lands(mark: Mark, name: str = name, pod: str = pod) -> None:
            world.pods[name] = (pod,)

        world.after_mark = lands


def _found(world: World, key: str, right: Any, gone: Mapping[str, PoolNode]) -> Any:
    match key:
        case "states":
            return {name: _word(world.state(name)) for name in right}
        case "released":
            return sorted(world.released())
        case "orders":
            return sum(count for _, _, count in world.orders)
        case "position":
            assert world.plan is not None
            return world.plan.position + sum(count for _, count in world.plan.orders)
        case "open":
            taint = world.pool.readiness_taint
            return [name for name, facts in sorted(world.facts.items()) if taint not in facts.taints]
        case "warm":
            return world.warm()
        case "claimable":
            return [name for name, facts in sorted(world.facts.items()) if facts.warm and not facts.claim]
        case "exists":
            return sorted(world.facts)
        case "cordoned":
            return [name for name, facts in world.facts.items() if facts.is_unschedulable]
        case "pulls":
            return [action.node for action in world.done(Pull) if isinstance(action, Pull)]
        case "gone_why":
            return {name: gone[name].why.value for name in right}
        case "first_write":
            marks = [mark for mark in world.done(Mark) if isinstance(mark, Mark) and mark.why is Why.SURPLUS]
            return "cordon" if marks[0].unschedulable else "no cordon"
    raise KeyError(key)


def _word(state: NodeState) -> str:
    return "provisioning" if state in COMING else state.value
