"""Open moves as the planner sees them: for whom a seat is, what is remembered between two looks, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.controller.moves import Moves
from binpack.ledger import Ledger
from binpack.relocation.candidates import allowed_at_a_time, movables, openings_to_free
from binpack.relocation.record import Way, WayKind
from binpack.relocation.steps import Do, Stage, Step, Surge
from binpack.tenants import Tenants
from fleet.budget import DisruptionBudget
from fleet.company import Selector
from fleet.pod import Berth, Owner
from tests.support.builders import a_node, a_pod, a_state

SCALE = Way(kind=WayKind.SCALE, name="llm", base=2)
WAITS = Step(do=Do.WAIT, stage=Stage.AWAITS_SUCCESSOR)


def old(**more):
    pod = a_pod("old", whole=1, node="n1", devices=("0",))
    words = {"moving_to": Berth(node="n2", devices=("0",)), "moving_by": "scale:Deployment/llm@2", "is_ready": True}
    return replace(pod, **(words | more))


def successor(**more):
    pod = a_pod("new", whole=1, pin="n2", devices=("0",))
    return replace(pod, **({"moved_from": "uid-old", "moving_by": "scale:Deployment/llm@2"} | more))


class Harbour:
    """Ledger, pods with berths, and open moves."""

    def __init__(self, *pods, allows=True):
        self.ledger, self.tenants = Ledger(), Tenants()
        self.moves = Moves(self.ledger, self.tenants, lambda pod, name: allows)
        for name in ("n1", "n2"):
            self.ledger.set_node(a_node(name, gpus=1))
        self.see(*pods)

    def see(self, *pods):
        for pod in pods:
            self.ledger.set_pod(pod)
            self.tenants.seen(pod)

    def lose(self, uid):
        self.ledger.remove_pod(uid)
        self.tenants.gone(uid)
        self.moves.pod_gone(uid)

    def open(self, now_s=0.0):
        return list(self.moves.open(now_s))


def test_a_gated_pod_of_the_same_kind_gets_the_seat_and_says_whom_it_replaces():
    harbour = Harbour(old())
    pod, berth = harbour.moves.seat_for(a_pod("new", whole=1))
    assert berth == Berth(node="n2", devices=("0",))
    assert (pod.moved_from, pod.moving_by) == ("uid-old", "scale:Deployment/llm@2")


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("new", whole=2),
        a_pod("new", whole=1, milli_cpu=5),
        replace(a_pod("new", whole=1), owner=Owner(kind="ReplicaSet", name="rs", uid="other")),
        replace(a_pod("new", whole=1), owner=None),
        a_pod("new", whole=1, namespace="other"),  # anybody may name an owner of another namespace
    ],
)
def test_nobody_else_gets_it(pod):
    assert Harbour(old()).moves.seat_for(pod) is None


def test_nobody_gets_it_twice_or_where_it_is_no_more_or_rules_between_pods_forbid_it():
    harbour = Harbour(old(), successor())
    assert harbour.moves.seat_for(a_pod("third", whole=1)) is None
    harbour = Harbour(old())
    harbour.ledger.remove_node("n2")
    assert harbour.moves.seat_for(a_pod("new", whole=1)) is None
    harbour = Harbour(old())
    harbour.ledger.set_node(a_node("n2", gpus=1, dead=("0",)))
    assert harbour.moves.seat_for(a_pod("new", whole=1)) is None
    assert Harbour(old(), allows=False).moves.seat_for(a_pod("new", whole=1)) is None


def test_a_pod_that_comes_before_the_surge_is_somebody_elses():
    harbour = Harbour(old(moving_to=None, moving_by=""))
    harbour.moves.begin(old(), 0.0)
    harbour.see(old())
    assert harbour.moves.seat_for(a_pod("new", whole=1)) is None
    harbour.moves.expect("uid-old")
    assert harbour.moves.seat_for(a_pod("new", whole=1)) is not None


def test_a_mark_that_was_not_written_keeps_no_seat():
    harbour = Harbour(old(moving_to=None, moving_by=""))
    harbour.moves.begin(old(), 0.0)
    assert harbour.ledger.keeps_seat("uid-old")
    harbour.moves.not_begun("uid-old")
    assert not harbour.ledger.keeps_seat("uid-old")


def test_a_mark_whose_answer_was_lost_keeps_its_seat_for_a_while():
    harbour = Harbour(old(moving_to=None, moving_by=""))
    harbour.moves.begin(old(), 0.0)
    harbour.open(10.0)
    assert harbour.ledger.keeps_seat("uid-old")
    harbour.open(20.0)
    assert not harbour.ledger.keeps_seat("uid-old")


def test_what_is_open_is_read_from_marks_and_records():
    assert not Harbour(old(moving_to=None, moving_by="")).open()
    (move,) = Harbour(old()).open()
    assert (move.way, move.successor) == (SCALE, None)
    (move,) = Harbour(old(), successor()).open()
    assert move.successor is not None
    (move,) = Harbour(successor()).open()
    assert (move.uid, move.old, move.way) == ("uid-old", None, SCALE)
    assert not Harbour(successor(moving_by="")).open()
    (move,) = Harbour(old(moving_by="?")).open()
    assert move.way is None


def test_the_record_of_either_is_enough():
    (move,) = Harbour(old(moving_by="?"), successor()).open()
    assert move.way == SCALE


def test_a_move_that_ended_is_not_looked_at_until_the_watch_shows_it():
    harbour = Harbour(old())
    harbour.moves.ended("uid-old", 0.0)
    assert not harbour.open(1.0)
    assert len(harbour.open(20.0)) == 1, "its last write may have been lost"
    harbour.moves.ended("uid-old", 30.0)
    harbour.see(old(moving_to=None, moving_by=""))
    assert not harbour.open(31.0)
    harbour.see(old())
    assert len(harbour.open(32.0)) == 1, "and is looked at again when it is moved anew"


def test_how_long_it_stands_as_it_does_is_counted_from_the_last_change():
    harbour = Harbour(old())
    (move,) = harbour.open()

    def for_s(now_s):
        return harbour.moves.facts(move, SCALE, Surge.PRESENT, now_s, is_wanted=True, is_stale=False).for_s

    assert for_s(5.0) == 0.0
    assert harbour.moves.note(move, WAITS, 5.0)
    assert not harbour.moves.note(move, WAITS, 9.0)
    assert for_s(15.0) == 10.0
    assert harbour.moves.note(move, Step(do=Do.WAIT, stage=Stage.AWAITS_READY), 20.0)
    assert for_s(21.0) == 1.0


def test_what_is_undone_stays_so_with_its_first_reason():
    harbour = Harbour(old())
    (move,) = harbour.open()
    assert harbour.moves.undo("uid-old", Stage.SUCCESSOR_LATE) is Stage.SUCCESSOR_LATE
    assert harbour.moves.undo("uid-old", Stage.WITHDRAWN) is Stage.SUCCESSOR_LATE
    facts = harbour.moves.facts(move, SCALE, Surge.ABSENT, 0.0, is_wanted=True, is_stale=False)
    assert not facts.is_wanted


def test_the_seat_of_one_that_went_first_waits_for_its_successor_and_not_for_ever():
    harbour = Harbour(old(moving_by="eviction"))
    harbour.moves.goes_first(old(moving_by="eviction"), 0.0)
    harbour.lose("uid-old")
    assert harbour.ledger.keeps_seat("uid-old")
    (move,) = harbour.open(1.0)
    facts = harbour.moves.facts(move, Way(kind=WayKind.EVICTION), Surge.ABSENT, 1.0, is_wanted=True, is_stale=False)
    assert facts.is_leaving
    assert harbour.moves.seat_for(a_pod("new", whole=1)) is not None
    assert not harbour.open(200.0)
    assert not harbour.ledger.keeps_seat("uid-old")


def test_only_the_successors_record_is_left_of_a_move_that_was_cleared():
    harbour = Harbour(old(moving_to=None, moving_by=""), successor())
    (move,) = harbour.open()
    assert harbour.moves.is_cleared(move)
    harbour.lose("uid-old")
    (move,) = harbour.open()
    assert not harbour.moves.is_cleared(move)


def test_those_on_their_way_out_are_no_others():
    others = [replace(a_pod(name, whole=1, node="n1"), is_ready=True) for name in ("a", "b")]
    harbour = Harbour(old(), replace(others[0], is_terminating=True), others[1])
    (move,) = harbour.open()
    facts = harbour.moves.facts(move, SCALE, Surge.PRESENT, 0.0, is_wanted=True, is_stale=False)
    assert [pod.name for pod in facts.others] == ["b"]


# -- who may be moved --------------------------------------------------------------------------------------------


def serving(**more):
    return replace(a_pod("p", whole=1, node="n1", devices=("0",)), **({"is_ready": True} | more))


def a_budget(name="b", **more):
    words = {"allowed": 1, "expected": 3, "desired_healthy": 2}
    return DisruptionBudget(namespace="default", name=name, selector=Selector(), **(words | more))


@pytest.mark.parametrize(
    ("pod", "budgets", "barred", "is_movable"),
    [
        (serving(), (), (), True),
        (serving(is_ready=False), (), (), False),
        (serving(moving_to=Berth(node="n2")), (), (), False),
        (serving(moving_by="eviction"), (), (), False),
        (serving(keeps_still=True), (), (), False),
        (serving(gang="g"), (), (), False),
        (serving(deletion_cost="5"), (), (), False),
        (serving(deletion_cost="-1000"), (), (), True),
        (serving(has_claims=True), (), (), False),
        (serving(owner=Owner(kind="Job", name="j", uid="j")), (), (), False),
        (serving(node_name="elsewhere"), (), (), False),
        (serving(), (a_budget(),), (), True),
        (serving(), (a_budget(desired_healthy=3),), (), False),
        (serving(), (a_budget(), a_budget("c")), (), False),
        (serving(), (), ("default/ReplicaSet/rs",), False),
    ],
)
def test_which_pods_may_be_moved(pod, budgets, barred, is_movable):
    states = {"n1": a_state(a_node("n1", gpus=1))}
    found = movables([pod], states, lambda _: budgets, barred)
    assert bool(found) is is_movable
    if found:
        assert (found[0].berth, found[0].service) == (Berth(node="n1", devices=("0",)), "default/ReplicaSet/rs")
        assert found[0].pod.gates


def test_nobody_is_moved_off_a_node_that_is_kept_or_emptied_otherwise():
    for words in ({"is_kept": True}, {"is_spare": True}):
        states = {"n1": a_state(replace(a_node("n1", gpus=1), **words))}
        assert not movables([serving()], states, lambda _: ())


def test_how_many_of_a_service_at_a_time():
    found = movables([serving()], {"n1": a_state(a_node("n1", gpus=1))}, lambda _: ())
    assert allowed_at_a_time(found, lambda _: ()) == {}
    assert allowed_at_a_time(found, lambda _: (a_budget(allowed=3),)) == {"default/ReplicaSet/rs": 3}
    assert allowed_at_a_time(found, lambda _: (a_budget(allowed=0),)) == {"default/ReplicaSet/rs": 1}


def test_what_is_to_be_freed_when_nobody_waits():
    half = a_state(a_node("n1", gpus=2), a_pod("p", whole=1, node="n1", devices=("0",)))
    free = a_state(a_node("n2", gpus=2))
    assert openings_to_free([half, free], 1, 0) is None
    goal = openings_to_free([half, free], 2, 0)
    assert (goal.openings, goal.devices) == (1, 2)
    assert openings_to_free([half, free], 3, 1) is None
    assert openings_to_free([half, free], 0, 0) is None
    assert openings_to_free([a_state(a_node("n3"))], 1, 0) is None
    assert openings_to_free([replace(free, blocked=("?",))], 1, 2).openings == 1
