"""Gangs and preemption against those who lie, vanish, come by thousands or never leave."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.books import Holding, holding_at
from binpack.controller import preempting, usher
from binpack.controller.moves import Moves
from binpack.controller.writer import Outcome
from binpack.dra.desk import Desk
from binpack.fairness import weight_of
from binpack.gangs.roll import Call, Group, Roll
from binpack.preemption.bonds import Crew
from binpack.preemption.propose import propose
from binpack.tenants import Tenants
from fleet import labels
from fleet.node import Node
from fleet.plan import Reason
from fleet.pod import Berth, Owner, Phase, Pod
from tests.support.builders import a_node, a_pod
from tests.support.planning import running

GATED = (labels.PLAN_GATE,)
KEYS = [("default", name) for name in ("a", "b", f"{labels.POD_GROUP_PREFIX}a")]

members = st.builds(
    lambda number, gang, size, fate, owner: replace(
        a_pod(f"p{number}", node="n1" if fate != "waits" else "", phase=Phase.SUCCEEDED if fate == "ended" else None),
        gates=GATED if fate == "waits" else (),
        gang=gang,
        gang_size=size,
        is_terminating=fate == "leaves",
        owner=Owner(kind="Job", name=owner, uid=owner) if owner else None,
        problems=("unreadable",) if fate == "sick" else (),
    ),
    st.integers(0, 5),
    st.sampled_from(["", "a", "b", f"{labels.POD_GROUP_PREFIX}a"]),
    st.integers(0, 4),
    st.sampled_from(["waits", "waits", "runs", "ended", "leaves", "sick"]),
    st.sampled_from(["", "o1", "o2"]),
)
news = st.one_of(
    st.tuples(st.just("seen"), members),
    st.tuples(st.just("gone"), st.integers(0, 5)),
    st.tuples(st.just("group"), st.integers(-1, 4)),
)


@given(st.lists(news, max_size=40))
@settings(deadline=None, max_examples=300)
def test_a_roll_is_a_function_of_who_is_there(happened: list[tuple[str, object]]) -> None:
    roll, there, group = Roll(), dict[str, Pod](), None
    for verb, what in happened:
        if verb == "seen" and isinstance(what, Pod):
            roll.seen(what)
            there[what.uid] = what
        elif verb == "gone":
            roll.gone(f"uid-p{what}")
            there.pop(f"uid-p{what}", None)
        elif isinstance(what, int) and what >= 0:
            group = Group(namespace="default", name="a", size=what)
            roll.group_seen(group)
        else:
            group = None
            roll.group_gone("default", "a")
    fresh = Roll()
    for pod in there.values():
        fresh.seen(pod)
    if group is not None:
        fresh.group_seen(group)
    for key in KEYS:
        mine = {pod.uid: pod for pod in there.values() if pod.gang == key[1]}
        assert {pod.uid: pod for pod in roll.members(key)} == mine
        assert roll.standing(key) == fresh.standing(key)
        assert roll.is_enough(key) is (fresh.standing(key).call is Call.ENOUGH)
        alive = {pod.owner.uid for pod in mine.values() if pod.owner and pod.is_live}
        placed = sum(
            (pod.is_live and not pod.is_terminating and not pod.gates)
            or (pod.phase is Phase.SUCCEEDED and pod.owner is not None and pod.owner.uid in alive)
            for pod in mine.values()
        )
        assert roll.standing(key).placed == placed
        assert roll.has_begun(key) is (placed > 0)


def test_a_pod_that_changes_its_gang_is_nobody_of_the_old_one() -> None:
    roll = Roll()
    pods = [replace(a_pod(f"p{i}", gates=GATED), gang="a", gang_size=2) for i in range(2)]
    for pod in pods:
        roll.seen(pod)
    assert roll.standing(("default", "a")).call is Call.WHOLE
    assert set(roll.seen(replace(pods[0], gang="b"))) == {("default", "a"), ("default", "b")}
    assert roll.standing(("default", "a")).ready == (pods[1],)
    assert roll.seen(replace(pods[0], gang="")) == (("default", "b"),)
    roll.gone(pods[0].uid)
    roll.gone(pods[1].uid)
    assert list(roll) == []


def test_ten_thousand_members_cost_no_more_each_than_ten() -> None:
    roll = Roll()
    began = time.thread_time()
    for number in range(10_000):
        pod = replace(a_pod(f"p{number}", gates=GATED), gang="g", gang_size=10_000)
        roll.seen(pod)
        assert not roll.is_alone(pod)
    assert len(roll.standing(("default", "g")).unit) == 10_000
    assert time.thread_time() - began < 5


async def test_a_gang_too_large_to_place_at_once_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preempting, "_MOST_AT_ONCE", 3)
    async with running([a_node("n1", gpus=8)]) as bridge:
        bridge.see(*(a_pod(f"p{i}", whole=1, gang="g", gang_size=4) for i in range(4)), a_pod("other", whole=1))
        await bridge.pass_s(2)
        record = bridge.world.waiting.get("uid-p0")
        assert record.reason is Reason.GANG_DOES_NOT_FIT
        assert "more than 3" in record.text
        assert bridge.writer.pods["uid-other"].pinned_node == "n1"
        assert bridge.writer.said("seat") == []


class Cluster:
    """Nodes of eight cards each, full of pods of lesser importance."""

    def __init__(self, nodes: int, tenants: int) -> None:
        self.tenants, self.desk = Tenants(), Desk()
        self.nodes = {f"n{i}": a_node(f"n{i}", gpus=8, milli_cpu=128_000) for i in range(nodes)}
        self.held: dict[str, dict[str, Holding]] = {}
        for name in self.nodes:
            there = [
                a_pod(f"{name}-{j}", milli=8000 // tenants, node=name, devices=(str(j % 8),), priority=j % 3)
                for j in range(tenants)
            ]
            self.held[name] = {pod.uid: holding_at(pod, name, pod.devices) for pod in there}
            for pod in there:
                self.tenants.seen(pod)

    def open_nodes(self) -> list[str]:
        return list(self.nodes)

    def open_node(self, name: str) -> Node:
        return self.nodes[name]

    def staying(self, name: str) -> Mapping[str, Holding]:
        return self.held[name]

    def leaves(self, uid: str) -> bool:
        return False

    def allows(self, pod: Pod, name: str) -> bool:
        return True

    def crew(self, pod: Pod) -> Crew | None:
        return None


@pytest.mark.parametrize(("nodes", "tenants", "pods"), [(300, 16, 1), (300, 16, 64), (60, 100, 32)])
def test_looking_for_whom_to_make_go_ends_soon_however_many_there_are(nodes: int, tenants: int, pods: int) -> None:
    cluster = Cluster(nodes, tenants)
    unit = [a_pod(f"m{i}", whole=1, priority=10) for i in range(pods)]
    began = time.thread_time()
    found = propose(unit, cluster, lambda pod: ())
    assert time.thread_time() - began < 4
    assert found is not None
    assert len(found.seats) == pods
    assert len(found.victims) == len({pod.uid for pod in found.victims})


# -- victims that do not go, and seats that never come ---------------------------------------------------------


def low(name: str = "low", device: str = "0", **words: object) -> Pod:
    return a_pod(name, whole=1, node="n1", devices=(device,), **words)  # type: ignore[arg-type]


def urgent(name: str = "urgent", **words: object) -> Pod:
    return a_pod(name, whole=1, priority=9, **words)  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [Outcome.REFUSED, Outcome.FAILED, Outcome.CHANGED])
async def test_whoever_says_no_to_an_eviction_the_seat_is_not_kept_for_ever(answer: Outcome) -> None:
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.writer.answer("evict", *[answer] * 100)
        bridge.see(low())
        bridge.see(urgent())
        await bridge.pass_s(90)
        assert len(bridge.writer.said("unseat")) == 1
        assert len(bridge.writer.said("evict")) <= 16


async def test_a_pod_that_never_leaves_costs_the_seat_after_half_an_hour_and_its_node_is_shunned() -> None:
    async with running([a_node("n1", gpus=2), a_node("n2", gpus=2)]) as bridge:
        tenants = [low("a", "0"), low("b", "1")]
        tenants += [replace(low(f"n2-{i}", str(i)), node_name="n2", priority=5) for i in range(2)]
        bridge.see(*tenants)
        bridge.see(*(urgent(f"g{i}", gang="g", gang_size=2) for i in range(2)))
        await bridge.pass_s(3)
        bridge.catch_up()  # both are asked to go; a finalizer keeps the objects
        bridge.lose("uid-a")
        await bridge.pass_s(1700)
        assert bridge.writer.said("unseat") == []
        await bridge.pass_s(150)
        bridge.catch_up()
        assert len(bridge.writer.said("unseat")) == 2
        await bridge.pass_s(120)
        seats = {berth.node for berth in bridge.writer.said("seat")[2:]}
        assert seats == {"n2"}


async def test_pods_that_preempt_each_other_by_rank_come_to_rest() -> None:
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(low())
        for rank in range(1, 6):
            bridge.see(a_pod(f"r{rank}", whole=1, priority=rank))
        await bridge.pass_s(30)
        for _ in range(12):
            for uid in [uid for uid, pod in bridge.writer.pods.items() if pod.is_terminating]:
                bridge.lose(uid)
            bridge.catch_up()
            await bridge.pass_s(30)
        there = [pod for pod in bridge.writer.pods.values() if pod.pinned_node or pod.seat]
        assert [pod.name for pod in there] == ["r5"]
        assert len(bridge.writer.said("evict")) <= 5


async def test_a_podgroup_that_vanishes_half_way_gives_the_seats_back() -> None:
    name = f"{labels.POD_GROUP_PREFIX}g"
    async with running([a_node("n1", gpus=2)]) as bridge:
        bridge.world.together.group_seen(Group(namespace="default", name="g", size=2))
        bridge.see(low("a", "0"), low("b", "1"))
        bridge.see(*(urgent(f"g{i}", gang=name) for i in range(2)))
        await bridge.pass_s(3)
        assert len(bridge.writer.said("seat")) == 2
        bridge.world.together.group_gone("default", "g")
        bridge.turns.wake()
        await bridge.pass_s(2)
        bridge.catch_up()
        bridge.lose("uid-a", "uid-b")
        await bridge.pass_s(5)
        assert len(bridge.writer.said("unseat")) == 2
        assert bridge.writer.said("pin") == []
        assert bridge.world.waiting.get("uid-g0").reason is Reason.GANG_INCOMPLETE


@pytest.mark.parametrize("text", ["0", "-1", "1e309", "inf", "nan", "1e-400", "", "1,5", "٣", "0x1", "9" * 400])
def test_a_weight_that_is_none_is_none(text: str) -> None:
    weight = weight_of(text)
    assert weight is None or 0.001 <= weight <= 1000


# -- faults of our own -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["seat_standings", "seat_by_preemption"])
async def test_a_fault_about_seats_stops_nobody_who_wants_none(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ValueError(name)

    monkeypatch.setattr(usher, name, fails)
    async with running([a_node("n1", gpus=1), a_node("n2")]) as bridge:
        bridge.see(low(), urgent(), urgent("seated", seat=Berth(node="n1", devices=("0",))), a_pod("plain"))
        await bridge.pass_s(20)
        assert bridge.writer.pods["uid-plain"].pinned_node
        assert bridge.value("berthmaster_faults_total", where="seat") > 0
        assert bridge.value("berthmaster_faults_total", where="turn") == 0


async def test_a_fault_about_moves_stops_nobodys_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("seat")

    monkeypatch.setattr(Moves, "seat_for", fails)
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(a_pod("plain", whole=1))
        await bridge.pass_s(5)
        assert bridge.writer.pods["uid-plain"].pinned_node == "n1"
        assert bridge.value("berthmaster_faults_total", where="turn") == 0
