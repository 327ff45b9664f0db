"""What is written, when others are faster, and what one pool's trouble costs the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fleet import labels
from fleet.draw import MissReason, format_draw, miss
from fleet.errors import ApiError, NotLeading
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.events import EventRecorder
from tests.support.clock import ManualClock, settle
from tests.support.fake_api import FakeApi
from tests.support.pools import a_node, a_pod, a_puller, a_world, pool_in, pool_object
from tests.support.warming import pool_path
from warmpool.config import WarmPoolSettings
from warmpool.controller.carrier import Budget, Carrier
from warmpool.controller.conditions import Picture
from warmpool.controller.keeper import Keeper
from warmpool.controller.ledger import Ledger
from warmpool.controller.look import Looker
from warmpool.controller.metrics import WarmPoolMetrics
from warmpool.controller.rounds import Rounds
from warmpool.controller.store import Memory, data_of
from warmpool.controller.teller import Teller
from warmpool.controller.world import World
from warmpool.nodes.action import Action, Evict, Mark, Pull, Release, Tell, Unclaim
from warmpool.past import Draws
from warmpool.providers.provider import Capabilities, Machine, OrdersOnly, Receipt, Refusal
from warmpool.size.rule import Learnt
from warmpool.values import HitRate, Offer, PoolSpec, ProviderKind, Why


class FakeProvider(OrdersOnly):
    """Keeps machines in memory, and fails as it is told."""

    kind = ProviderKind.KWOK

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}
        self.released: list[str] = []
        self.orders: list[tuple[str, int]] = []
        self.error: Exception | None = None
        self.list_error: Exception | None = None
        self.refusal: Refusal | None = None

    def capabilities(self) -> Capabilities:
        return Capabilities(can_order=True, can_release_exactly=True, tells_failure=True, taints_at_birth=True)

    async def provision(self, pool: PoolSpec, offer: Offer, count: int, key: str) -> Receipt:
        self.orders.append((pool.name, count))
        if self.error is not None:
            raise self.error
        if self.refusal is not None:
            return Receipt(refusal=self.refusal, detail="none left")
        names = tuple(f"{pool.name}-{key}-{place}" for place in range(count))
        self.machines |= {name: Machine(name=name, pool=pool.name) for name in names}
        return Receipt(names=names)

    async def list(self, pools: Sequence[PoolSpec]) -> tuple[Machine, ...]:
        if self.list_error is not None:
            raise self.list_error
        return tuple(self.machines.values())

    async def state(self, pool: PoolSpec, name: str) -> Machine | None:
        return self.machines.get(name)

    async def release(self, pool: PoolSpec, machine: Machine) -> None:
        self.released.append(machine.name)
        self.machines.pop(machine.name, None)

    async def turn(self) -> None:
        """Nothing is due."""


class Bridge:
    """A controller's parts on a fake API."""

    def __init__(self, api: FakeApi, client: Client, clock: ManualClock, world: World) -> None:
        self.api, self.client, self.clock, self.world = api, client, clock, world
        self.provider = FakeProvider()
        self.carrier = Carrier(client, world, clock, moves_per_hour=2)
        self.undone: list[str] = []
        settings = WarmPoolSettings()
        self.metrics = WarmPoolMetrics(CollectorRegistry())
        self.teller = Teller(client, EventRecorder(client, clock, "test"), world, clock)
        keeper = Keeper(client, labels.PULL_NAMESPACE)
        providers = {ProviderKind.KWOK: self.provider}
        looker = Looker(world, providers, self.carrier, keeper, self.teller, clock, settings, self.metrics)
        self.rounds = Rounds(world, providers, looker, keeper, self.teller, clock, settings, self.metrics)

    async def carry(self, action: Action) -> None:
        spec = pool_in(self.world).spec
        assert spec is not None
        await self.carrier.carry(
            spec, action, self.provider, self.provider.machines, lambda release: self.undone.append(release.name)
        )

    def told(self) -> Picture:
        picture = self.rounds.picture("g1")
        assert picture is not None
        return picture


@pytest.fixture
async def bridge() -> AsyncIterator[Bridge]:
    clock = ManualClock()
    async with FakeApi() as api, Client(api.connection(clock), clock) as client:
        yield Bridge(api, client, clock, a_world("g1"))


def put_node(api: FakeApi, name: str = "n1", **annotations: str) -> Any:
    node = {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations, "labels": {labels.POOL: "g1"}},
        "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
    }
    return api.put(paths.NODES, node)


async def test_marks_are_one_patch_that_holds_or_not(bridge: Bridge) -> None:
    put_node(bridge.api)
    mark = Mark(node="n1", uid="uid-n1", why=Why.PROVEN, annotations=((labels.WARM, "x"),), unschedulable=True)
    await bridge.carry(mark)
    node = bridge.api.objects(paths.NODES)[("", "n1")]
    assert node["metadata"]["annotations"] == {labels.WARM: "x"}
    assert node["spec"]["unschedulable"] is True
    put_node(bridge.api, **{labels.CLAIM: "somebody"})
    await bridge.carry(mark)
    await bridge.carry(Mark(node="gone", uid="x", why=Why.PROVEN, annotations=((labels.WARM, "x"),)))
    await bridge.carry(Unclaim(node="n1", uid="uid-n1", text="another", why=Why.CLAIM_LAPSED))
    assert bridge.carrier.counts == {"mark-done": 1, "mark-overtaken": 2, "unclaim-overtaken": 1}
    await bridge.carry(Unclaim(node="n1", uid="uid-n1", text="somebody", why=Why.CLAIM_LAPSED))
    assert labels.CLAIM not in bridge.api.objects(paths.NODES)[("", "n1")]["metadata"]["annotations"]


async def test_the_condition_says_what_is_missing(bridge: Bridge) -> None:
    put_node(bridge.api)
    await bridge.carry(Tell(node="n1", uid="uid-n1", is_warm=False, why=Why.IMAGES_MISSING, message="1 of 1"))
    (asked,) = bridge.api.asked("PATCH", "/status")
    (condition,) = json.loads(asked.body)["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        labels.WARM_CONDITION,
        "False",
        "ImagesMissing",
    )
    assert condition["lastTransitionTime"].endswith("Z")


async def test_a_pod_that_pulls_is_made_once_and_made_anew_where_it_failed(bridge: Bridge) -> None:
    pods = paths.PODS
    await bridge.carry(Pull(node="n1", uid="uid-n1"))
    ((_, name),) = bridge.api.objects(pods)
    await bridge.carry(Pull(node="n1", uid="uid-n1"))
    assert bridge.carrier.counts["pull-done"] == 1
    puller = a_puller(name, "n1")
    puller.metadata.uid = bridge.api.objects(pods)[(labels.PULL_NAMESPACE, name)]["metadata"]["uid"]
    bridge.world.set_pod(puller)
    await bridge.carry(Pull(node="n1", uid="uid-n1", is_again=True))
    again = bridge.api.objects(pods)[(labels.PULL_NAMESPACE, name)]["metadata"]["uid"]
    assert again != puller.metadata.uid


async def test_where_no_pod_can_pull_it_is_told_and_not_tried_without_end(bridge: Bridge) -> None:
    bridge.api.fail(403, times=1, method="POST", path="/pods")
    await bridge.carry(Pull(node="n1", uid="uid-n1"))
    assert "no pod can pull in namespace berthmaster-warmpool: 403" in bridge.carrier.problems["g1"]
    await bridge.carry(Pull(node="n1", uid="uid-n1"))
    assert len(bridge.api.asked("POST", "/pods")) == 1
    await bridge.clock.advance(20.0)
    await bridge.carry(Pull(node="n1", uid="uid-n1"))
    assert bridge.carrier.problems == {}


async def test_before_a_node_goes_the_api_itself_is_asked_who_is_there(bridge: Bridge) -> None:
    release = Release(name="m1", node="n1", why=Why.SURPLUS, must_look=True)
    bridge.provider.machines["m1"] = Machine(name="m1", pool="g1", node_name="n1")
    bridge.api.put(
        paths.PODS,
        {
            "metadata": {"name": "late", "namespace": "shop"},
            "spec": {"nodeName": "n1"},
            "status": {"phase": "Running"},
        },
    )
    await bridge.carry(release)
    assert (bridge.provider.released, bridge.undone) == ([], ["m1"])
    assert bridge.api.asked("GET", "/pods")[0].query == {"fieldSelector": "spec.nodeName=n1"}
    bridge.api.remove(paths.PODS, "late", "shop")
    bridge.world.set_node(a_node("n1"), 0.0)
    bridge.world.set_pod(a_pod("pinned", notes={labels.PINNED: "n1"}))
    await bridge.carry(release)
    assert bridge.provider.released == []
    bridge.world.remove_pod("uid-pinned")
    bridge.api.fail(500, times=5, method="GET", path="/pods")
    carrying = asyncio.create_task(bridge.carry(release))
    for _ in range(200):
        if carrying.done():
            break
        await settle()
        await bridge.clock.advance(1.0)
    await carrying
    assert bridge.undone == ["m1", "m1", "m1"]  # not knowing is not being empty
    await bridge.carry(release)
    assert bridge.provider.released == ["m1"]


async def test_pods_are_moved_one_at_a_time_within_the_budget(bridge: Bridge) -> None:
    for name in ("a", "b", "c"):
        bridge.world.set_pod(a_pod(name, "n1"))
        meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
        bridge.api.put(paths.PODS, {"metadata": meta, "spec": {"nodeName": "n1"}})
    bridge.api.fail(429, times=1, method="POST", path="/a/eviction")
    evict = Evict(node="n1", pods=("uid-a", "uid-b", "uid-c", "uid-unknown"))
    await bridge.carry(evict)
    # A disruption budget holds the first one back; the next one goes, and two are moved in an hour at most.
    assert sorted(name for _, name in bridge.api.objects(paths.PODS)) == ["a", "c"]
    bridge.world.remove_pod("uid-b")
    await bridge.carry(evict)
    assert sorted(name for _, name in bridge.api.objects(paths.PODS)) == ["c"]
    bridge.world.remove_pod("uid-a")
    await bridge.carry(evict)
    assert sorted(name for _, name in bridge.api.objects(paths.PODS)) == ["c"]
    await bridge.clock.advance(1900.0)
    await bridge.carry(evict)
    assert not bridge.api.objects(paths.PODS)


def test_a_budget_fills_by_the_hour_and_no_higher() -> None:
    budget = Budget(per_hour=2)
    assert [budget.take(0.0), budget.take(0.0), budget.take(0.0)] == [True, True, False]
    assert not budget.take(900.0)
    assert budget.take(1800.0)
    assert [budget.take(1e6), budget.take(1e6), budget.take(1e6)] == [True, True, False]
    assert not Budget(per_hour=0).take(1e9)


async def looked(bridge: Bridge, times: int = 1) -> None:
    """Let the rounds turn: due pools are looked at, as `run` would."""
    async with asyncio.TaskGroup() as group:
        for _ in range(times):
            await bridge.rounds._beat(group)
            while bridge.rounds._busy:
                await settle(1)
            await bridge.clock.advance(1.0)


def put_pool(bridge: Bridge, name: str = "g1", **spec: Any) -> None:
    obj = {"metadata": {"name": name, "uid": f"uid-{name}", "generation": 1, "finalizers": [labels.POOL_FINALIZER]}}
    bridge.api.put(pool_path(), obj)
    meta = {"finalizers": [labels.POOL_FINALIZER]}
    bridge.world.set_pool(pool_object(name, meta=meta, **spec))


async def test_nothing_is_ordered_before_the_pool_is_sure_to_see_to_its_end(bridge: Bridge) -> None:
    bridge.api.put(pool_path(), {"metadata": {"name": "g1", "uid": "uid-g1"}})
    await looked(bridge)
    assert bridge.provider.orders == []
    assert bridge.api.objects(pool_path())[("", "g1")]["metadata"]["finalizers"] == [labels.POOL_FINALIZER]
    put_pool(bridge)
    await looked(bridge)
    assert bridge.provider.orders == [("g1", 2)]
    await looked(bridge, 3)
    assert bridge.provider.orders == [("g1", 2)]


async def test_an_order_whose_answer_was_lost_is_seen_and_not_repeated(bridge: Bridge) -> None:
    put_pool(bridge)
    bridge.provider.error = ApiError(0, "NoAnswer", "lost")
    bridge.provider.machines["g1-x-0"] = Machine(name="g1-x-0", pool="g1")
    await looked(bridge)
    assert bridge.provider.orders == [("g1", 1)]
    assert "NoAnswer" in bridge.told().book.problem  # type: ignore[union-attr]
    bridge.provider.error = None
    bridge.provider.machines["g1-x-1"] = Machine(name="g1-x-1", pool="g1")
    await looked(bridge, 3)
    assert bridge.provider.orders == [("g1", 1)]


async def test_a_refusal_closes_the_offer_for_a_while(bridge: Bridge) -> None:
    put_pool(bridge)
    bridge.provider.refusal = Refusal.INSUFFICIENT_CAPACITY
    await looked(bridge, 10)
    assert len(bridge.provider.orders) == 1
    await bridge.clock.advance(40.0)
    await looked(bridge, 2)
    assert bridge.provider.orders == [("g1", 2), ("g1", 1)]  # a probe


async def test_a_provider_that_does_not_answer_stops_its_pools_and_is_told(bridge: Bridge) -> None:
    put_pool(bridge)
    bridge.provider.list_error = ApiError(403, "Forbidden", "no right")
    await looked(bridge)
    assert bridge.provider.orders == []
    book = bridge.told().book
    assert book is not None
    assert "403 Forbidden" in book.problem
    bridge.provider.list_error = None
    await bridge.clock.advance(20.0)
    await looked(bridge)
    assert (bridge.provider.orders, book.problem) == ([("g1", 2)], "")


async def test_a_fault_with_one_pool_costs_the_others_nothing(bridge: Bridge) -> None:
    put_pool(bridge)
    put_pool(bridge, "g2")
    await looked(bridge)
    bridge.rounds.books["g1"].rule = None  # type: ignore[assignment]
    await bridge.clock.advance(20.0)
    before_s = bridge.clock.monotonic_s()
    await looked(bridge, 2)
    assert bridge.metrics.faults._value.get() >= 1
    assert bridge.rounds.books["g2"].looked_at_s >= before_s
    # Nor is the one with the fault looked at in every beat.
    assert bridge.rounds.books["g1"].looked_at_s >= before_s


async def test_without_what_it_remembers_no_size_is_decided(bridge: Bridge) -> None:
    put_pool(bridge)
    bridge.api.fail(403, times=1, method="GET", path="/configmaps")
    looking = asyncio.create_task(looked(bridge))
    for _ in range(50):
        await settle()
        await bridge.clock.advance(0.1)
        if looking.done():
            break
    await looking
    assert bridge.rounds.books == {}
    assert "g1" in bridge.world.dirty
    await looked(bridge)
    assert bridge.provider.orders == [("g1", 2)]


async def test_once_the_lease_ends_nothing_is_written(bridge: Bridge) -> None:
    put_pool(bridge)
    bridge.provider.error = NotLeading(0, "NotLeading", "over")
    await looked(bridge)
    book = bridge.rounds.books["g1"]
    assert book.problem == ""
    assert bridge.metrics.faults._value.get() == 0
    put_node(bridge.api)
    bridge.client.write_deadline_s = lambda: float("-inf")
    with pytest.raises(NotLeading):
        await bridge.carry(Mark(node="n1", uid="uid-n1", why=Why.PROVEN, annotations=((labels.WARM, "x"),)))


async def test_pods_of_ours_go_from_nodes_that_somebody_uses(bridge: Bridge) -> None:
    put_pool(bridge)
    bridge.world.set_node(a_node("n1", metadata={"annotations": {}}), bridge.clock.monotonic_s())
    bridge.provider.machines["n1"] = Machine(name="n1", pool="g1", node_name="n1")
    bridge.world.set_pod(a_puller("pull-old", "n1"))
    bridge.world.set_pod(a_puller("pull-lost", "gone"))
    meta = {"namespace": labels.PULL_NAMESPACE}
    for name in ("pull-old", "pull-lost"):
        bridge.api.put(paths.PODS, {"metadata": meta | {"name": name, "uid": f"uid-{name}"}})
    await looked(bridge)
    # The one pulls what is not wanted any more, the other on a node that is not there.
    assert not {name for _, name in bridge.api.objects(paths.PODS)} & {"pull-old", "pull-lost"}


async def test_who_missed_is_ordered_for_on_top_of_the_size(bridge: Bridge) -> None:
    put_pool(bridge)
    await looked(bridge)
    note = format_draw(miss("g1", MissReason.NO_NODES))
    for number in range(3):
        pod = a_pod(f"p{number}", requests={"nvidia.com/gpu": "4"}, notes={labels.DRAW: note})
        bridge.world.set_pod(pod)
    await looked(bridge, 2)
    assert bridge.provider.orders == [("g1", 2), ("g1", 3)]


async def test_a_probe_is_out_until_it_is_answered(bridge: Bridge) -> None:
    put_pool(bridge)
    bridge.provider.refusal = Refusal.INSUFFICIENT_CAPACITY
    await looked(bridge)
    await bridge.clock.advance(40.0)
    bridge.provider.refusal = None
    await looked(bridge, 4)
    # One probe, and no second one before it is known what became of the first.
    assert bridge.provider.orders == [("g1", 2), ("g1", 1)]


async def test_what_only_the_clock_moves_is_looked_at_soon(bridge: Bridge) -> None:
    put_pool(bridge, objective={"static": 0})
    await looked(bridge, 2)
    bridge.world.dirty.clear()
    assert not bridge.rounds._due(), "nothing is to happen"
    bridge.provider.machines["g1-x-0"] = Machine(name="g1-x-0", pool="g1", node_name="n1")
    bridge.world.set_node(a_node("n1"), 0.0)
    put_node(bridge.api)
    await looked(bridge)
    bridge.world.dirty.clear()
    assert not bridge.rounds._due()
    await bridge.clock.advance(1.0)
    assert [pool.name for pool in bridge.rounds._due()] == ["g1"], "a node is being given up"


class ToldPast:
    """Answers as a Prometheus would, and counts how often it was asked."""

    def __init__(self, answer: Draws | str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def ask(self, query: str) -> Draws | str:
        self.asked.append(query)
        return self.answer


def with_query(bridge: Bridge) -> None:
    pool = pool_in(bridge.world)
    assert pool.spec is not None
    goal = replace(pool.spec.pool, objective=HitRate(goal_ratio=0.95))
    bridge.world.pools["g1"] = replace(pool, spec=replace(pool.spec, pool=goal, history_query="q"))


@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        (Draws(minute=28_000_000, by_minute=(1, None, 2) * 500), "HistoryRead", "1500 draws of 0.7 days"),
        ("timed_out: not answered within 20 s", "HistoryUnread", "timed_out"),
    ],
)
async def test_a_new_pool_is_told_what_was_drawn_before_it_and_says_so(
    bridge: Bridge, answer: Draws | str, reason: str, said: str
) -> None:
    past = ToldPast(answer)
    bridge.rounds._past = past  # type: ignore[assignment]
    with_query(bridge)
    book = await bridge.rounds._book(pool_in(bridge.world), pool_in(bridge.world).spec)  # type: ignore[arg-type]
    assert book is not None
    assert past.asked == ["q"]
    assert isinstance(book.rule, Learnt)
    assert (book.rule.evidence is not None) is isinstance(answer, Draws)
    _, told, text, _ = bridge.teller._events.get_nowait()
    assert (told, said in text) == (reason, True)


async def test_a_pool_that_remembers_is_not_told_a_past(bridge: Bridge) -> None:
    past = ToldPast("never asked")
    bridge.rounds._past = past  # type: ignore[assignment]
    with_query(bridge)
    pool = pool_in(bridge.world)
    rule = Learnt(pool.spec.pool)  # type: ignore[union-attr]
    rule.recall(28_000_000, [1] * 60)
    remembered = {
        "metadata": {"name": "pool-g1", "namespace": labels.PULL_NAMESPACE},
        "data": data_of(Memory(ledger=Ledger(), history=rule.stored())),
    }
    bridge.api.put("/api/v1/configmaps", remembered)
    await bridge.rounds._book(pool, pool.spec)  # type: ignore[arg-type]
    assert past.asked == []


async def test_a_query_without_a_prometheus_is_said(bridge: Bridge) -> None:
    with_query(bridge)
    await bridge.rounds._book(pool_in(bridge.world), pool_in(bridge.world).spec)  # type: ignore[arg-type]
    _, told, text, is_warning = bridge.teller._events.get_nowait()
    assert (told, is_warning) == ("HistoryUnread", True)
    assert "prometheus_url" in text
