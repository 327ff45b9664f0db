"""Which of the pools' nodes are spare: the exact what-if, whom it respects, and how long before a mark is set."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binpack.fit import devices_for, mismatch, missing
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.moving import Stays, afresh, stays
from binpack.spare import Record, SpareReason, Tenancy, look
from fleet import labels
from fleet.constraints import NodeConstraints, NodeTerm, Requirement, Taint, Toleration
from fleet.kube.decode import pod_from
from fleet.kube.patches import pin_patch
from fleet.plan import Placement
from fleet.pod import Berth, Owner
from tests.support.builders import a_node, a_pod, pod_json, pod_object
from tests.support.json_patch import apply

POOL = "g"


def of_pool(name, *, gpus=2, **more):
    node = a_node(name, gpus=gpus, is_sharing=False, milli_cpu=64_000, taints=(Taint(key=labels.POOL, value=POOL),))
    return replace(node, pool=POOL, **more)


def on(node, name, *, gpus=1, **more):
    pin = Requirement(key=labels.NODE_NAME_FIELD, operator="In", values=(node,))
    wish = NodeConstraints(
        terms=(NodeTerm(fields=(pin,)),), tolerations=(Toleration(key=labels.POOL, value=POOL, effect="NoSchedule"),)
    )
    return replace(a_pod(name, classic=gpus, node=node, constraints=wish, **more), pinned_node=node, is_pin_ours=True)


class Town:
    """Nodes and pods as a planner knows them."""

    def __init__(self, nodes, pods):
        self.ledger = Ledger()
        for node in nodes:
            self.ledger.set_node(node)
        for pod in pods:
            self.ledger.set_pod(pod)
        self.pods = {pod.uid: pod for pod in pods}
        self.states = {}
        for node in nodes:
            state = self.ledger.state(node.name)
            bare = tuple(taint for taint in node.taints if taint.key != labels.POOL)
            self.states[node.name] = replace(state, node=replace(state.node, taints=bare))
        self.index = Index(self.states.values())

    def tenancies(self):
        return [
            Tenancy(state=state, pods=tuple(self.pods[uid] for uid in self.ledger.users_on(name)))
            for name, state in self.states.items()
            if state.node.pool
        ]

    def look(self, *, waiting=(), records=None, now_s=0.0, after_s=60.0):
        return look(self.index, self.tenancies(), waiting, records or {}, now_s, after_s=after_s)

    def found(self, **more):
        return {one.node: one.reason for one in self.look(**more).findings}


def test_a_thin_node_is_spare_when_another_serving_one_has_room_and_that_one_is_not():
    town = Town([of_pool("a"), of_pool("b")], [on("a", "p"), on("b", "q")])
    assert town.found() == {"a": SpareReason.FITS_ELSEWHERE, "b": SpareReason.TAKES_IN}


def test_full_nodes_are_not_spare():
    town = Town([of_pool("a"), of_pool("b")], [on("a", "p", gpus=2), on("b", "q", gpus=2)])
    assert set(town.found().values()) == {SpareReason.NO_ROOM_ELSEWHERE}


def test_an_empty_node_of_a_pool_is_no_room_for_others_and_its_pools_business():
    town = Town([of_pool("a"), of_pool("b")], [on("a", "p")])
    assert town.found() == {"a": SpareReason.NO_ROOM_ELSEWHERE, "b": SpareReason.EMPTY}


def test_an_ordinary_node_is_room():
    town = Town([of_pool("a"), a_node("n", gpus=1, is_sharing=False)], [on("a", "p")])
    assert town.found() == {"a": SpareReason.FITS_ELSEWHERE}


def test_nodes_are_emptied_together_only_if_all_their_pods_fit_at_once():
    nodes = [of_pool("a"), of_pool("b"), of_pool("c"), a_node("n", gpus=1, is_sharing=False)]
    town = Town(nodes, [on(name, f"p{name}") for name in "abc"])
    reasons = town.found()
    assert list(reasons.values()).count(SpareReason.FITS_ELSEWHERE) == 2  # one to n, one into the third


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"keeps_still": True}, SpareReason.POD_STAYS),
        ({"owner": None}, SpareReason.POD_STAYS),
        ({"owner": Owner(kind="Job", name="j", uid="u")}, SpareReason.POD_STAYS),
        ({"scheduler_name": "default-scheduler"}, SpareReason.POD_STAYS),
        ({"unmodelled": ("volume claims",)}, SpareReason.POD_STAYS),
        ({"is_terminating": True}, SpareReason.FITS_ELSEWHERE),
    ],
)
def test_pods_that_may_not_be_moved_keep_their_node(change, reason):
    pod = replace(on("a", "p"), **change)
    town = Town([of_pool("a"), a_node("n", gpus=1, is_sharing=False)], [pod])
    assert town.found() == {"a": reason}


def test_a_claimed_node_and_one_that_a_person_keeps_are_left_alone():
    nodes = [of_pool("a", claim="x"), of_pool("b", is_kept=True), a_node("n", gpus=2, is_sharing=False)]
    town = Town(nodes, [on("a", "p"), on("b", "q")])
    assert town.found() == {"a": SpareReason.CLAIMED, "b": SpareReason.KEPT}


def test_a_pod_that_waits_and_fits_on_a_node_keeps_it():
    town = Town([of_pool("a"), a_node("n", gpus=1, is_sharing=False)], [on("a", "p")])
    assert town.found(waiting=[a_pod("w", classic=1)]) == {"a": SpareReason.WANTED}
    assert town.found(waiting=[a_pod("w", classic=8)]) == {"a": SpareReason.FITS_ELSEWHERE}


def test_a_pod_that_nobody_knows_keeps_its_node():
    state = Town([of_pool("a")], []).states["a"]
    found = look(Index(), [Tenancy(state=state, pods=(), strangers=("x",), in_index=False)], (), {}, 0.0, after_s=1.0)
    assert found.findings[0].reason is SpareReason.POD_STAYS


def test_a_mark_comes_after_a_while_and_goes_at_once():
    town = Town([of_pool("a"), a_node("n", gpus=1, is_sharing=False)], [on("a", "p")])
    first = town.look(now_s=0.0)
    assert not first.marks
    assert not town.look(records=first.records, now_s=59.0).marks
    marked = town.look(records=first.records, now_s=60.0)
    assert [one.node for one in marked.marks] == ["a"]
    assert [one.berth.node for one in marked.marks[0].placements] == ["n"]
    town = Town([of_pool("a", is_spare=True), a_node("n", gpus=1, is_sharing=False)], [on("a", "p"), on("n", "q")])
    assert [one.node for one in town.look(records=marked.records, now_s=61.0).unmarks] == ["a"]


def test_a_node_that_is_given_up_keeps_its_mark_once_it_is_empty():
    state = Town([of_pool("a", is_spare=True)], []).states["a"]
    closed, opened = (Tenancy(state=state, pods=(), in_index=is_open) for is_open in (False, True))
    assert not look(Index(), [closed], (), {}, 0.0, after_s=1.0).unmarks
    assert look(Index([state]), [opened], (), {}, 0.0, after_s=1.0).unmarks


def test_a_look_that_fails_begins_the_while_anew():
    town = Town([of_pool("a"), a_node("n", gpus=1, is_sharing=False)], [on("a", "p")])
    kept = town.look(waiting=[a_pod("w", classic=1)], records={"a": Record(spare_since_s=0.0)}, now_s=50.0)
    assert not town.look(records=kept.records, now_s=61.0).marks


def test_a_marked_node_stays_so_and_takes_nobody_in():
    nodes = [of_pool("a", is_spare=True), of_pool("b", gpus=4), of_pool("c")]
    town = Town(nodes, [on("a", "p"), on("b", "q", gpus=1), on("b", "r", gpus=1), on("c", "s")])
    found = {one.node: one for one in town.look().findings}
    assert found["a"].is_spare
    assert all(place.berth.node != "a" for one in found.values() for place in one.placements)


def test_what_is_weighed_is_bounded_and_everyone_has_a_turn():
    nodes = [of_pool(f"n{i:03}") for i in range(100)] + [a_node("o", gpus=100, is_sharing=False)]
    town = Town(nodes, [on(f"n{i:03}", f"p{i}") for i in range(100)])
    reasons = town.found()
    assert list(reasons.values()).count(SpareReason.FITS_ELSEWHERE) == 32
    nodes = [of_pool(f"n{i:03}") for i in range(100)]
    town = Town(nodes, [on(f"n{i:03}", f"p{i}", gpus=2) for i in range(100)])
    first = town.look()
    second = town.look(records=first.records, now_s=5.0)
    assert {
        one.node for look_ in (first, second) for one in look_.findings if one.reason is SpareReason.NO_ROOM_ELSEWHERE
    } == {node.name for node in nodes}


def test_the_index_is_left_as_it_was():
    town = Town([of_pool(f"n{i}") for i in range(6)], [on(f"n{i}", f"p{i}") for i in range(6)])
    before = town.index.potential()
    town.look()
    assert town.index.potential() == before


def test_a_marked_node_takes_newcomers_only_where_nothing_else_has_room():
    town = Town([of_pool("a", gpus=1, is_spare=True), of_pool("b", gpus=4)], [])
    pod = a_pod("p", classic=1)
    assert town.index.place(pod).berth.node == "b"
    assert town.index.place(a_pod("q", classic=4)).berth.node == "b"
    town.index.take(a_pod("q", classic=4), Berth(node="b"))
    assert town.index.place(pod).berth.node == "a"
    town.index.set_node(replace(town.states["a"], node=replace(town.states["a"].node, is_spare=False)))
    assert town.index.place(pod).score < 10_000
    town.index.remove_node("a")
    assert not isinstance(town.index.place(pod), Placement)


def test_a_budget_that_lets_nobody_go_keeps_its_node():
    town = Town([of_pool("a"), a_node("n", gpus=1, is_sharing=False)], [on("a", "p")])
    guarded = [replace(one, guarded=("budget x wants 1 of 1 healthy",)) for one in town.tenancies()]
    found = look(town.index, guarded, (), {}, 0.0, after_s=1.0).findings
    assert [(one.reason, one.detail) for one in found] == [(SpareReason.BUDGET, "budget x wants 1 of 1 healthy")]


# -- exhaustively, on small worlds ------------------------------------------------------------------------------


@st.composite
def towns(draw):
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    plain = draw(st.integers(0, 2))
    nodes = [of_pool(f"n{i}", gpus=size) for i, size in enumerate(sizes)]
    if plain:
        nodes.append(a_node("o", gpus=plain, is_sharing=False))
    pods = []
    for i, size in enumerate(sizes):
        left = size
        for number in range(draw(st.integers(0, size))):
            gpus = draw(st.integers(1, 2))
            if gpus <= left:
                left -= gpus
                pods.append(on(f"n{i}", f"p{i}-{number}", gpus=gpus))
    return Town(nodes, pods)


def fits_at_once(town, spare):
    """Return whether the pods of these nodes fit on the others in some way, by trying all."""
    pods = [pod for pod in town.pods.values() if pod.node_name in spare]
    rooms = {
        name: sum(device.users == 0 for device in state.devices)
        for name, state in town.states.items()
        if name not in spare and (not state.node.pool or town.ledger.users_on(name))
    }
    for choice in itertools.product(rooms, repeat=len(pods)):
        left = dict(rooms)
        for name, pod in zip(choice, pods, strict=True):
            left[name] -= pod.ask.count
        if min(left.values(), default=0) >= 0:
            return True
    return not pods


@given(towns())
def test_nodes_called_spare_can_be_emptied_together_and_one_that_could_be_emptied_first_is_found(town):
    findings = town.look().findings
    spare = {one.node for one in findings if one.is_spare}
    assert fits_at_once(town, spare)
    occupied = {name for name, state in town.states.items() if state.node.pool and town.ledger.users_on(name)}
    if not spare:
        assert not any(fits_at_once(town, {name}) for name in occupied if len(town.ledger.users_on(name)) == 1)


@given(towns())
def test_every_placement_holds_on_the_states_as_they_are(town):
    for one in town.look().findings:
        for placement in one.placements:
            pod = afresh(town.pods[placement.pod_uid])
            state = town.states[placement.berth.node]
            assert mismatch(pod, state.node) is None
            assert not missing(pod, state)
            assert devices_for(pod, state) is not None


# -- moving at all -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "affinity",
    [
        None,
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}]},
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}]},
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
    ],
)
def test_a_pinned_pod_made_anew_wishes_what_it_wished_before_the_pin(affinity):
    spec = {"schedulingGates": [{"name": labels.PLAN_GATE}]}
    if affinity is not None:
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}}
    obj = pod_json("p", **spec)
    gated = pod_from(pod_object(obj))
    pinned = pod_from(pod_object(apply(obj, pin_patch(gated, Berth(node="n1")))))
    assert pinned.is_pin_ours
    again = afresh(pinned)
    assert again.constraints == gated.constraints
    assert again.gates == gated.gates
    assert not again.pinned_node


def test_why_a_pod_stays():
    assert stays(on("a", "p")) is None
    assert stays(a_pod("p")) is Stays.NOT_RUNNING
    assert stays(replace(on("a", "p"), problems=("?",))) is Stays.UNREADABLE
