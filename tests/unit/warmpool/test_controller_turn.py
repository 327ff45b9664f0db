"""One look at a pool in plain values, and what is told of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from fleet.claim import Claim, format_claim
from fleet.errors import ConfigError
from tests.support.pools import a_node, a_world, an_agent, pool_in, pool_object
from warmpool.config import WarmPoolSettings
from warmpool.controller.book import Book
from warmpool.controller.conditions import Picture, conditions_of
from warmpool.controller.objects import ToldPoolObject
from warmpool.controller.sizing import Fixed
from warmpool.controller.status import status_of
from warmpool.controller.teller import core_of
from warmpool.controller.turn import Sighting, Turn, join, turn
from warmpool.nodes.action import Mark, Pull, Release
from warmpool.nodes.limits import StepTimes
from warmpool.nodes.reading import WarmNode, facts_from
from warmpool.nodes.reconcile import PlanReason
from warmpool.nodes.seen import NodeSeen, Puller
from warmpool.providers.breaker import Breakers
from warmpool.providers.provider import Capabilities, Machine, MachinePhase, Refusal
from warmpool.sizing import Size
from warmpool.values import NodeState, Offer, PoolNode, PoolSpec, Why

ALL = Capabilities(can_order=True, can_release_exactly=True, tells_failure=True, taints_at_birth=True)
T0_S = 1_800_000_000.0
CRD = yaml.safe_load((Path(__file__).parents[3] / "manifests/base/crds/warmpools.yaml").read_text())


def a_spec(**spec: Any) -> PoolSpec:
    read = pool_in(a_world(images=[], **spec)).spec
    assert read is not None
    return read.pool


READY = {
    "conditions": [{"type": "Ready", "status": "True"}],
    "allocatable": {"nvidia.com/gpu": "4"},
}


def see(pool: PoolSpec) -> Any:
    def seen(machine: Machine | None, node: WarmNode | None) -> NodeSeen:
        facts = facts_from(node, pool) if node is not None else None
        return NodeSeen(machine=machine, facts=facts, puller=Puller.NONE)

    return seen


def look(
    pool: PoolSpec,
    before: Turn | None,
    machines: list[Machine],
    nodes: list[WarmNode],
    target: int,
    now_s: float,
    *,
    is_acting: bool = True,
    unseen_s: float = 100.0,
    capabilities: Capabilities = ALL,
) -> Turn:
    known = before.nodes if before else {}
    sighting = join(machines, nodes, known, see(pool), lambda name: unseen_s)
    return turn(
        pool,
        known,
        sighting,
        target,
        now_s,
        times=before.times if before else StepTimes(),
        breakers=before.breakers if before else Breakers(),
        capabilities=capabilities,
        is_acting=is_acting,
    )


def test_a_machine_and_its_node_are_one() -> None:
    pool = a_spec()
    first = look(pool, None, [Machine(name="m1", pool="g1")], [], 1, 0.0)
    assert [(name, node.state) for name, node in first.nodes.items()] == [("m1", NodeState.ORDERED)]
    machine = Machine(name="m1", pool="g1", node_name="n1", phase=MachinePhase.REGISTERED)
    second = look(pool, first, [machine], [a_node("n1", status=READY)], 1, 5.0)
    assert [(name, node.state) for name, node in second.nodes.items()] == [("m1", NodeState.WARM)]


def test_a_node_seen_before_its_machine_tells_its_name_is_not_counted_twice() -> None:
    pool = a_spec()
    # The Node is there, and its machine does not say so yet.
    first = look(pool, None, [Machine(name="m1", pool="g1")], [a_node("n1")], 1, 0.0, unseen_s=1.0)
    assert list(first.nodes) == ["m1"]
    # It was nobody's for long enough, then the machine names it after all.
    second = look(pool, first, [Machine(name="m1", pool="g1")], [a_node("n1")], 1, 20.0)
    assert set(second.nodes) == {"m1", "n1"}
    machine = Machine(name="m2", pool="g1", node_name="n1")
    third = look(pool, replace(second, nodes={"n1": second.nodes["n1"]}), [machine], [a_node("n1")], 1, 30.0)
    assert [node.name for node in third.nodes.values()] == ["m2"]


def test_a_node_whose_machine_is_not_listed_any_more_keeps_its_name() -> None:
    pool = a_spec()
    machine = Machine(name="m1", pool="g1", node_name="n1", phase=MachinePhase.REGISTERED)
    first = look(pool, None, [machine], [a_node("n1", status=READY)], 1, 0.0)
    second = look(pool, first, [], [a_node("n1", status=READY)], 1, 10.0)
    assert list(second.nodes) == ["m1"]
    assert second.nodes["m1"].lost_since_s == 10.0


def test_observing_plans_and_changes_nothing() -> None:
    pool = a_spec()
    node = a_node("n1", spec={"unschedulable": False}, status=READY)
    machine = Machine(name="n1", pool="g1", node_name="n1", phase=MachinePhase.REGISTERED)
    acts = look(pool, None, [machine], [node], 0, 0.0)
    assert next(type(action) for action in acts.actions if not isinstance(action, Pull)) is Mark
    assert acts.nodes["n1"].close_why is Why.SURPLUS
    tells = look(pool, None, [machine], [node], 0, 0.0, is_acting=False)
    assert tells.actions == ()
    assert [close.name for close in tells.plan.closes] == ["n1"]
    assert tells.nodes["n1"].close_why is None


def test_a_claim_counts_out_and_orders_its_refill() -> None:
    pool = a_spec()
    claim = format_claim(Claim(set_id="s", pods=("u1",), is_firm=True, seconds=600, token="t"))
    machine = Machine(name="n1", pool="g1", node_name="n1", phase=MachinePhase.REGISTERED)
    notes = {"berthmaster.dev/warm": "g1"}
    first = look(pool, None, [machine], [a_node("n1", status=READY, metadata={"annotations": notes})], 1, 0.0)
    assert first.plan.orders == ()
    notes = notes | {"berthmaster.dev/claim": claim}
    second = look(pool, first, [machine], [a_node("n1", status=READY, metadata={"annotations": notes})], 1, 1.0)
    assert second.plan.orders == ((Offer(), 1),)
    assert [(one.node, one.pods, one.was_warm) for one in second.draws] == [("n1", ("u1",), True)]


def test_what_comes_of_an_order_is_learnt() -> None:
    pool = a_spec()
    known = {"m1": PoolNode.ordered("m1", Offer(), 0.0)}
    failed = Machine(name="m1", pool="g1", phase=MachinePhase.FAILED, refusal=Refusal.INSUFFICIENT_CAPACITY)
    base = Turn(nodes=known, plan=look(pool, None, [], [], 0, 0.0).plan)
    told = look(pool, base, [failed], [], 1, 10.0)
    assert not told.plan.is_capacity_available
    assert told.plan.reason is PlanReason.NO_CAPACITY
    assert [node.name for node in told.failures] == ["m1"]
    assert look(pool, told, [failed], [], 1, 11.0).failures == ()
    machine = Machine(name="m1", pool="g1", node_name="n1", phase=MachinePhase.REGISTERED)
    warm = look(pool, base, [machine], [a_node("n1", status=READY)], 1, 511.0)
    assert warm.leads_s == (511.0,)
    assert warm.times.leads_s == (511.0,)


def a_picture(told: Turn | None, size: Size | None = None, **spec: Any) -> Picture:
    world = a_world(**spec)
    pool = pool_in(world)
    if told is None or pool.spec is None:
        return Picture(pool=pool, book=None)
    book = Book(spec=pool.spec, rule=Fixed(pool.spec.pool))
    book.take(told)
    book.size = size or Size(target=1, reason="Static", text="1 wanted")
    return Picture(pool=pool, book=book)


def test_everything_that_is_told_stands_in_the_definition() -> None:
    pool = a_spec()
    machine = Machine(name="m1", pool="g1", node_name="n1", phase=MachinePhase.REGISTERED)
    base = Turn(nodes={"m1": PoolNode.ordered("m1", Offer(), 0.0)}, plan=look(pool, None, [], [], 0, 0.0).plan)
    told = look(pool, base, [machine], [a_node("n1", status=READY)], 1, 511.0)
    size = Size(
        target=3,
        reason="Learnt",
        text="3 wanted",
        numbers={"draws": 1.5, "wild": float("inf")},
        horizon_s=511.0,
        quantiles=((0.5, 1.0), (0.99, 4.0)),
        saves=(0.5, 12.0),
    )
    picture = a_picture(told, size, objective={"missCost": 3, "idleCost": 2})
    assert picture.book is not None
    picture.book.ledger.drew(T0_S, 10, 1)
    picture.book.ledger.idled(T0_S, 7200.0, 3600.0)
    status = status_of(replace(picture, starts="p50 3 s"), wall_s=T0_S)
    schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert strays(status, schema) == []
    assert status["idle"] == {
        "summary": "2.0 h, 4",
        "nodeHours": 2.0,
        "cost": 4.0,
        "dayNodeHours": 2.0,
        "dayCost": 4.0,
    }
    assert status["hitRate"]["summary"] == "90.0 %"
    assert status["leadTime"]["summary"] == "p50 511 s, p90 511 s of 1"
    assert status["lastDecision"]["numbers"] == {"draws": 1.5}
    assert "0.5 misses" in status["marginal"]["message"]


def strays(value: Any, schema: Any, path: str = "status") -> list[str]:
    """Return what the definition would drop or refuse."""
    kinds = {"object": dict, "array": list, "integer": int, "number": (int, float), "string": str}
    if not isinstance(value, kinds[schema["type"]]):
        return [f"{path}: {value!r} is no {schema['type']}"]
    if isinstance(value, list):
        return [text for item in value for text in strays(item, schema["items"], f"{path}[]")]
    if not isinstance(value, dict):
        return []
    more = schema.get("additionalProperties")
    known = schema.get("properties", {})
    found = [f"{path}.{name}" for name in value if name not in known and not more]
    for name, part in value.items():
        found += strays(part, known.get(name) or more or {"type": "object"}, f"{path}.{name}") if name in known else []
    return found


def kinds_of(picture: Picture) -> dict[str, tuple[bool | None, str]]:
    return {one.kind: (one.holds, one.reason) for one in conditions_of(picture)}


def test_ready_sums_up_what_is_wrong() -> None:
    pool = a_spec()
    picture = a_picture(look(pool, None, [], [], 1, 0.0))
    assert kinds_of(picture)["Ready"] == (True, "Acting")
    assert kinds_of(a_picture(look(pool, None, [], [], 1, 0.0), mode="observe"))["Ready"] == (True, "Observing")
    assert kinds_of(replace(picture, strangers=(an_agent("x"),)))["Ready"] == (False, "AgentsStayAway")
    assert kinds_of(replace(picture, puller_problem="403"))["Ready"] == (False, "PodsRefused")
    assert kinds_of(replace(picture, lacks_fetcher=True))["Ready"] == (False, "NoFetchImage")
    assert picture.book is not None
    picture.book.problem = "provider kwok: 403"
    assert kinds_of(picture)["Ready"] == (False, "ProviderFailed")
    picture.book.problem = ""
    picture.book.size = Size(target=1, reason="FirstDay", text="little", is_informed=False)
    assert kinds_of(picture)["HistorySuffices"] == (False, "TooLittleHistory")
    assert kinds_of(picture)["Ready"][0] is True
    assert kinds_of(a_picture(None))["Ready"] == (None, "NotLookedAtYet")
    world = a_world()
    world.set_pool(pool_object("g1", generation=2, size={"max": 0}))
    assert kinds_of(Picture(pool=pool_in(world), book=None))["Ready"] == (False, "InvalidSpec")


def test_a_condition_keeps_its_time_for_as_long_as_it_holds() -> None:
    picture = a_picture(look(a_spec(), None, [], [], 1, 0.0))
    first = status_of(picture, wall_s=T0_S)
    told = msgspec.convert(first, ToldPoolObject)
    again = status_of(replace(picture, pool=replace(picture.pool, told=told), puller_problem="403"), wall_s=T0_S + 60)
    since = {one["type"]: one["lastTransitionTime"] for one in again["conditions"]}
    assert since["Valid"] == first["conditions"][1]["lastTransitionTime"]
    assert since["Ready"] != since["Valid"]
    assert since["ImagesPullable"] == since["Ready"]


def test_only_what_matters_is_worth_a_status_at_once() -> None:
    picture = a_picture(look(a_spec(), None, [], [], 1, 0.0))
    assert picture.book is not None
    before = core_of(picture)
    picture.book.ledger.idled(T0_S, 100.0, 100.0)
    assert core_of(picture) == before
    picture.book.ledger.drew(T0_S, 1, 1)
    assert core_of(picture) != before


def test_a_release_that_was_not_asked_for_is_asked_for_again() -> None:
    picture = a_picture(look(a_spec(), None, [Machine(name="m1", pool="g1")], [], 1, 0.0))
    book = picture.book
    assert book is not None
    book.nodes["m1"] = replace(book.nodes["m1"], release_told_s=5.0)
    book.forget_release(Release(name="m1", node="n1", why=Why.SURPLUS, must_look=True).name)
    assert book.nodes["m1"].release_told_s is None
    book.forget_release("unknown")


def test_an_empty_sighting_of_nothing_is_nothing() -> None:
    told = turn(
        a_spec(),
        {},
        Sighting(),
        0,
        0.0,
        times=StepTimes(),
        breakers=Breakers(),
        capabilities=ALL,
        is_acting=True,
    )
    assert (dict(told.nodes), told.actions, told.plan.orders) == ({}, (), ())


def test_settings_that_contradict_are_told() -> None:
    from fleet.config import read

    told = {"PRE_PERIOD_S": "0.1", "PRE_MOVES_PER_HOUR": "-1", "PRE_KWOK_TIME_SCALE": "0"}
    with pytest.raises(ConfigError) as error:
        read(WarmPoolSettings, prefix="PRE", environment=told)
    assert len(error.value.problems) == 3
    assert read(WarmPoolSettings, prefix="PRE", environment={"PRE_KWOK_PULL_S": "2"}).kwok.cloud.pull_s == 2.0
