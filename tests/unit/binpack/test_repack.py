"""Moves: small scenes whose best answer anybody sees, and what the verifier and the budget refuse."""

import pytest

from binpack.check_moves import MoveRule, check_moves
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.repack.allowance import Allowance
from binpack.repack.propose import propose
from binpack.repack.values import (
    EmptyNodes,
    FreeDevices,
    MakeRoom,
    Movable,
    Move,
    MoveBudget,
    MovePlan,
    MoveReason,
    PastMove,
    Verdict,
)
from binpack.solver.instance import Budget
from binpack.solver.solve import solve
from fleet.plan import Placement, Reason, SolveStatus
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod

AMPLE = MoveBudget(pods_per_hour=100, per_node=100)


def scene(nodes, held):
    """Return states, index and movables; `held` is (pod, node, devices, service) of each."""
    ledger = Ledger()
    for node in nodes:
        ledger.set_node(node)
    movables = []
    for name, shape, node, devices, service in held:
        ledger.set_pod(a_pod(name, node=node, devices=devices or None, **shape))
        movables.append(Movable(pod=a_pod(name, **shape), berth=Berth(node=node, devices=devices), service=service))
    states = {node.name: ledger.state(node.name) for node in nodes}
    return states, Index(states.values()), movables


def halves(service=""):
    """Two nodes of two devices with one whole device held on each."""
    nodes = [a_node("a", gpus=2), a_node("b", gpus=2)]
    one = {"whole": 1}
    return scene(nodes, [("p", one, "a", ("0",), service), ("q", one, "b", ("1",), service)])


def ask(world, goal, budget=AMPLE, **words):
    states, index, movables = world
    return propose(index, states, movables, goal, budget, 0.0, **words)


def by_patterns(question):
    return solve(question, Budget(deterministic_s=0.1))


def test_one_move_makes_room_for_a_pod_of_two_devices():
    plan = ask(halves(), MakeRoom(pods=(a_pod("wide", whole=2),)))
    (move,), (seat,) = plan.moves, plan.placements
    assert plan.verdict is Verdict.REACHED
    assert move.reason is MoveReason.MAKES_ROOM
    assert (move.source.node, move.target.node) == (seat.berth.node, {"a": "b", "b": "a"}[seat.berth.node])
    assert set(seat.berth.devices) == {"0", "1"}


def test_a_pod_gives_way_to_one_that_makes_room():
    nodes = [
        a_node("a", gpus=1, model="T4"),
        a_node("b", gpus=1, model="G2", milli_cpu=8000),
        a_node("c", gpus=1, model="G3", milli_cpu=1000),
    ]
    held = [
        ("first", {"whole": 1, "milli_cpu": 4000}, "a", ("0",), ""),
        ("second", {"whole": 1, "milli_cpu": 500}, "b", ("0",), ""),
    ]
    plan = ask(scene(nodes, held), MakeRoom(pods=(a_pod("only-t4", whole=1, models=("T4",)),)))
    assert [(move.pod_uid, move.target.node, move.reason) for move in plan.moves] == [
        ("uid-second", "c", MoveReason.GIVES_WAY),
        ("uid-first", "b", MoveReason.MAKES_ROOM),
    ]
    assert [placement.berth.node for placement in plan.placements] == ["a"]


def test_moves_in_turn_keep_to_the_budget_of_a_node():
    nodes = [
        a_node("a", gpus=1, model="T4"),
        a_node("b", gpus=1, model="G2", milli_cpu=8000),
        a_node("c", gpus=1, model="G3", milli_cpu=1000),
    ]
    held = [
        ("first", {"whole": 1, "milli_cpu": 4000}, "a", ("0",), ""),
        ("second", {"whole": 1, "milli_cpu": 500}, "b", ("0",), ""),
    ]
    goal = MakeRoom(pods=(a_pod("only-t4", whole=1, models=("T4",)),))
    assert not ask(scene(nodes, held), goal, MoveBudget(pods_per_hour=9, per_node=1)).moves
    assert not ask(scene(nodes, held), goal, MoveBudget(pods_per_hour=1, per_node=9)).moves
    assert len(ask(scene(nodes, held), goal, MoveBudget(pods_per_hour=2, per_node=2)).moves) == 2


def test_where_the_budget_kept_pods_that_were_to_move_it_is_said_which_and_how_many_may():
    nodes = [a_node("a", gpus=2), a_node("b", gpus=1), a_node("c", gpus=1)]
    one = {"whole": 1}
    held = [("p", one, "a", ("0",), "default/ReplicaSet/rs"), ("q", one, "a", ("1",), "default/ReplicaSet/rs")]
    goal = MakeRoom(pods=(a_pod("w", whole=2),))
    plan = ask(scene(nodes, held), goal, MoveBudget(pods_per_hour=9, per_node=9, per_service=1))
    assert plan.verdict is Verdict.NOTHING_FOUND
    assert plan.detail.startswith("0 of 1 reached; the budget kept pods where they are")
    assert plan.detail.endswith(": 1 replica of default/ReplicaSet/rs at a time")
    two = MoveBudget(pods_per_hour=9, per_node=9, per_service=2)
    assert "budget" not in ask(scene(nodes, held), goal, two).detail
    none = ask(scene(nodes[:1], held), goal, two)
    assert none.verdict is Verdict.NOTHING_FOUND
    assert "budget" not in none.detail, "there is no room anywhere"


def test_a_swap_that_nobody_has_room_for_is_not_proposed():
    nodes = [a_node("a", gpus=1, model="T4"), a_node("b", gpus=1, model="G2")]
    world = scene(nodes, [("p", {"whole": 1}, "a", ("0",), "")])
    states, index, _ = world
    plan = propose(index, states, (), MakeRoom(pods=(a_pod("w", whole=1, models=("T4",)),)), AMPLE, 0.0)
    assert (plan.verdict, plan.moves) == (Verdict.NOTHING_FOUND, ())
    assert [one.reason for one in plan.unplaced] == [Reason.INSUFFICIENT]


def test_devices_are_freed_beside_those_that_are_free():
    nodes = [a_node("a", gpus=1), a_node("b", gpus=1), a_node("c", gpus=1)]
    share = {"milli": 400}
    world = scene(nodes, [("p", share, "a", ("0",), ""), ("q", share, "b", ("0",), "")])
    plan = ask(world, FreeDevices(openings=1))
    assert (plan.verdict, len(plan.moves), plan.freed_devices) == (Verdict.REACHED, 1, 1)
    assert plan.moves[0].reason is MoveReason.FREES_DEVICES
    assert plan.moves[0].target.node != "c"
    assert ask(world, FreeDevices(openings=2)).verdict is Verdict.PARTLY


def test_a_node_is_emptied_as_a_whole_or_not_at_all():
    nodes = [a_node("a", gpus=2), a_node("b", gpus=2), a_node("c", gpus=4)]
    held = [("p", {"whole": 2}, "a", ("0", "1"), ""), ("q", {"whole": 1}, "b", ("0",), "")]
    plan = ask(scene(nodes, held), EmptyNodes(nodes=("b", "a")))
    assert plan.freed_nodes == ("b", "a")
    assert {move.target.node for move in plan.moves} == {"c"}
    small = ask(scene(nodes[:2], held), EmptyNodes(nodes=("b", "a")))
    assert (small.verdict, small.moves, small.freed_nodes) == (Verdict.NOTHING_FOUND, (), ())
    closed = ask(scene(nodes, held), EmptyNodes(nodes=("b",)), closed=("c",))
    assert closed.verdict is Verdict.NOTHING_FOUND


def test_a_gang_is_seated_as_a_whole_or_nothing_is_moved():
    wide = tuple(a_pod(f"w{i}", whole=2) for i in range(2))
    plan = ask(halves(), MakeRoom(pods=wide, is_gang=True))
    assert (plan.verdict, plan.moves, len(plan.unplaced)) == (Verdict.NOTHING_FOUND, (), 2)
    alone = ask(halves(), MakeRoom(pods=wide))
    assert (alone.verdict, len(alone.moves), len(alone.unplaced)) == (Verdict.PARTLY, 1, 1)


def test_no_move_is_made_where_none_is_needed():
    plan = ask(halves(), MakeRoom(pods=(a_pod("narrow", whole=1),)))
    assert (plan.verdict, plan.moves, len(plan.placements)) == (Verdict.NOT_NEEDED, (), 1)


def test_the_solver_proves_that_the_answer_is_best():
    plan = ask(halves(), MakeRoom(pods=(a_pod("wide", whole=2),)), solve=by_patterns)
    assert plan.solve_status is SolveStatus.OPTIMAL
    assert plan.bound == pytest.approx(plan.objective)
    assert len(plan.moves) == 1


def test_a_service_loses_no_more_replicas_than_its_budget_allows():
    nodes = [a_node("a", gpus=2), a_node("b", gpus=2), a_node("c", gpus=2, model="G3")]
    one = {"whole": 1}
    held = [("p", one, "a", ("0",), "s"), ("q", one, "a", ("1",), "s")]
    goal = EmptyNodes(nodes=("a",))
    assert ask(scene(nodes, held), goal).verdict is Verdict.NOTHING_FOUND
    several = MoveBudget(pods_per_hour=9, per_node=9, allowed={"s": 2})
    assert len(ask(scene(nodes, held), goal, several).moves) == 2


def test_moves_of_the_last_hour_and_those_under_way_count():
    def past(started_at_s, is_over):
        return PastMove(started_at_s=started_at_s, service="s", source="a", target="b", is_over=is_over)

    movable = Movable(pod=a_pod("p"), berth=Berth(node="a"), service="s")
    budget = MoveBudget(pods_per_hour=2, per_service=1, per_node=1)
    assert Allowance(budget, [past(0.0, True)], 3600.0).pods == 2
    assert Allowance(budget, [past(0.1, True)], 3600.0).pods == 1
    assert Allowance(budget, [past(0.1, True)], 3600.0).may_leave(movable)
    assert not Allowance(budget, [past(0.0, False)], 9999.0).may_leave(movable)
    assert Allowance(budget, [past(0.0, False)], 9999.0).closed() == ["a", "b"]
    none = ask(halves(), MakeRoom(pods=(a_pod("wide", whole=2),)), MoveBudget(pods_per_hour=0))
    assert none.verdict is Verdict.NO_BUDGET


def test_pods_on_nodes_or_cards_that_are_gone_are_left_alone():
    states, index, movables = halves()
    elsewhere = [Movable(pod=a_pod("x", whole=1), berth=Berth(node="gone", devices=("0",)))]
    lost = [Movable(pod=a_pod("y", whole=1), berth=Berth(node="a", devices=("9",)))]
    goal = MakeRoom(pods=(a_pod("wide", whole=2),))
    plan = propose(index, states, movables + elsewhere + lost, goal, AMPLE, 0.0)
    assert [move.pod_uid for move in plan.moves] in (["uid-p"], ["uid-q"])


def moved(uid, source, target):
    return Move(pod_uid=uid, source=source, target=target, reason=MoveReason.FREES_DEVICES)


A0, B0, B1 = Berth(node="a", devices=("0",)), Berth(node="b", devices=("0",)), Berth(node="b", devices=("1",))


@pytest.mark.parametrize(
    ("moves", "rule"),
    [
        ([moved("uid-p", A0, B0)], None),
        ([moved("uid-p", A0, B1)], "whole device is in use"),
        ([moved("uid-x", A0, B0)], MoveRule.NOT_MOVABLE),
        ([moved("uid-p", B1, B0)], MoveRule.NOT_THERE),
        ([moved("uid-p", A0, Berth(node="a", devices=("1",)))], MoveRule.SAME_NODE),
        ([moved("uid-p", A0, B0), moved("uid-p", B0, A0)], MoveRule.MOVED_TWICE),
        ([moved("uid-q", B1, A0)], "whole device is in use"),
        ([moved("uid-p", A0, B0), moved("uid-q", B1, A0)], None),
    ],
)
def test_the_verifier_names_what_is_wrong_with_moves(moves, rule):
    states, _, movables = halves()
    plan = MovePlan(verdict=Verdict.REACHED, moves=tuple(moves))
    found = check_moves(states, movables, (), plan)
    assert [one.rule for one in found] == ([] if rule is None else [rule])


def test_the_verifier_judges_seats_after_the_moves_and_the_budget():
    states, _, movables = halves("s")
    wide = a_pod("wide", whole=2)
    seat = Placement(pod_uid=wide.uid, berth=Berth(node="a", devices=("0", "1")))
    good = MovePlan(verdict=Verdict.REACHED, moves=(moved("uid-p", A0, B0),), placements=(seat,))
    assert not check_moves(states, movables, (wide,), good, AMPLE)
    assert check_moves(states, movables, (wide,), MovePlan(verdict=Verdict.REACHED, placements=(seat,)))
    both = MovePlan(verdict=Verdict.REACHED, moves=(moved("uid-p", A0, B0), moved("uid-q", B1, A0)))
    rules = {one.rule for one in check_moves(states, movables, (), both, MoveBudget(pods_per_hour=1))}
    assert rules == {MoveRule.SERVICE, MoveRule.TOO_MANY}
