"""When moves are looked for, what is told, in which order they begin, and what stands in their way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.config import MovesSettings, PlannerSettings
from binpack.controller.rolls import call_rolls
from binpack.relocation.record import WayKind
from fleet.budget import DisruptionBudget
from fleet.company import Selector
from fleet.errors import ApiError
from fleet.plan import Reason, Unplaced
from fleet.pod import Berth
from tests.support.builders import a_pod
from tests.support.proposing import Yard, a_pair


async def test_moves_are_made_for_a_pod_that_has_waited_long_enough():
    yard = Yard()
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    await yard.turn(10.0)
    assert not yard.mover.orders
    await yard.turn(25.0)
    await yard.turn(2.0)
    (order,) = yard.mover.orders
    assert order.way.kind is WayKind.SCALE
    assert order.pod.node_name != order.target.node
    assert "makes room for default/big" in order.why


async def test_what_is_only_proposed_is_told_on_each_pod_and_nothing_begins():
    yard = Yard(mode="propose")
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    await yard.turn()
    await yard.turn(2.0)
    ((_, reason, note),) = yard.recorder.said
    assert reason == "MoveProposed"
    assert "could move to n" in note
    assert "makes room for default/big" in note
    assert not yard.mover.orders
    assert yard.registry.get_sample_value("berthmaster_moves_proposed_total", {"reason": "MakesRoom"}) == 1


async def test_before_the_budgets_are_known_nothing_is_looked_for():
    yard = Yard()
    yard.budgets.is_known = False
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    await yard.turn()
    await yard.turn()
    assert not yard.mover.orders


async def test_a_service_that_somebody_else_scales_is_left_alone_and_another_one_moves():
    yard = Yard()
    yard.serve("a", "n0", service="foreign")
    yard.serve("b", "n1", service="ours")
    yard.workloads.foreign = {"foreign"}
    yard.wait(a_pair())
    await yard.turn()
    await yard.turn(2.0)
    assert yard.begun() == ["b"]
    said = [(name, reason) for name, reason, _ in yard.recorder.said]
    assert said in ([], [("a", "NotMoved")])


async def test_where_no_workload_allows_a_way_nothing_begins_and_it_is_told_why():
    yard = Yard()
    yard.serve("a", "n0", service="foreign")
    yard.serve("b", "n1", service="foreign")
    yard.workloads.foreign = {"foreign"}
    yard.wait(a_pair())
    for _ in range(3):
        await yard.turn()
    assert not yard.mover.orders
    assert yard.recorder.said[0][1] == "NotMoved"
    assert "NoDisruptionBudget" in yard.recorder.said[0][2]
    assert len(yard.recorder.said) == 1, "it is not tried again at once"


@pytest.mark.parametrize(("status", "is_told"), [(403, True), (500, False)])
async def test_where_rights_are_missing_it_is_told_what_gives_them(status, is_told):
    yard = Yard()
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.workloads.error = ApiError(status, "Some", "no")
    yard.wait(a_pair())
    await yard.turn()
    assert not yard.mover.orders
    (_, reason, note) = yard.recorder.said[0]
    assert reason == "NotMoved"
    assert ("manifests/moves" in note) is is_told


async def test_for_the_same_pods_it_is_not_looked_again_before_a_minute_or_the_end_of_a_move():
    yard = Yard(nodes=1)
    yard.serve("a", "n0")
    yard.wait(a_pair())
    for _ in range(10):
        await yard.turn(10.0)
    assert 1 <= yard.figure("move_searches_total", outcome="NothingFound") <= 2


async def test_replicas_of_one_service_move_one_at_a_time_unless_a_budget_allows_more():
    budget = DisruptionBudget(
        namespace="default", name="b", selector=Selector(), allowed=2, expected=4, desired_healthy=2
    )
    # By a replica more one at a time in any case: the next is ordered when the surge of the one before is taken back.
    for budgets, foreign, most in (([], set(), 1), ([budget], {"rs"}, 2), ([budget], set(), 1)):
        yard = Yard(nodes=4, per_service=1)
        yard.workloads.foreign = foreign
        for one in budgets:
            yard.budgets.set(one)
        for number in range(4):
            yard.serve(f"p{number}", f"n{number}")
        yard.wait(a_pair("x"), a_pair("y"))
        for _ in range(4):
            await yard.turn()
        assert len(yard.begun()) == most


async def test_the_next_replica_of_a_deployment_moves_when_the_one_before_is_over_and_from_the_count_as_it_is_then():
    yard = Yard(nodes=4)
    pods = {name: yard.serve(name, f"n{number}") for number, name in enumerate("abcd")}
    yard.wait(a_pair("x"), a_pair("y"))
    await yard.turn()
    await yard.turn(2.0)
    assert len(yard.begun()) == 1
    yard.workloads.answer = {"replicas": 3, "updated": 3, "ready": 2}  # its surge is loading
    for _ in range(400):
        await yard.turn(2.0)
    assert len(yard.begun()) == 1
    assert not yard.recorder.said, "a surge of our own is no roll-out"
    yard.forget(pods[yard.begun()[0]])
    yard.workloads.answer = {"replicas": 2, "updated": 3, "ready": 3}  # taken back, and its controller has yet to see
    await yard.turn(2.0)
    assert len(yard.begun()) == 1
    assert not yard.recorder.said
    yard.workloads.answer = {"replicas": 2, "updated": 2, "ready": 2}
    await yard.turn(2.0)
    assert [order.way.base for order in yard.mover.orders] == [2, 2]


async def test_a_workload_that_rolls_out_by_the_time_its_move_could_begin_voids_the_plan_and_says_so():
    yard = Yard()
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    await yard.turn()
    yard.workloads.answer = {"is_current": False}
    await yard.turn(2.0)
    assert not yard.mover.orders
    assert not yard.proposer._orders
    assert "RollingOut" in yard.recorder.said[0][2]


async def test_what_an_earlier_process_began_counts_and_nobody_of_its_workload_moves_beside_it():
    yard = Yard(nodes=3)
    old = yard.serve("a", "n0")
    yard.see(replace(old, moving_to=Berth(node="n2", devices=("0",)), moving_by="scale:Deployment/rs@2"))
    yard.serve("b", "n1")
    yard.wait(a_pair("x"), a_pair("y"))
    for _ in range(5):
        await yard.turn()
    assert not yard.mover.orders
    assert not [note for _, reason, note in yard.recorder.said if reason == "NotMoved"]
    (past,) = yard.proposer._terms().past
    assert (past.service, past.source, past.target, past.is_over) == ("default/ReplicaSet/rs", "n0", "n2", False)


async def test_a_pod_is_not_handed_over_while_moves_are_made_for_it_and_is_when_they_made_no_room():
    yard = Yard()
    pods = {"a": yard.serve("a", "n0"), "b": yard.serve("b", "n1")}
    yard.world.waiting._hand_over_after_s = 60.0
    pod, other = a_pair(), a_pod("other", whole=2, milli_cpu=10**6)
    yard.wait(pod, other)
    await yard.turn()
    for _ in range(60):
        await yard.turn(10.0)
    assert len(yard.begun()) == 1
    assert yard.world.waiting.due_for_hand_over(yard.clock.monotonic_s()) == (other.uid,)
    yard.see(pods[yard.begun()[0]])  # its mark is taken off: it stays
    yard.workloads.answer = {"is_current": False}
    await yard.turn(3.0)
    await yard.turn(3.0)
    assert set(yard.world.waiting.due_for_hand_over(yard.clock.monotonic_s())) == {pod.uid, other.uid}


async def test_after_a_restart_room_that_moves_of_an_earlier_process_make_is_waited_for():
    yard = Yard()
    yard.world.waiting._hand_over_after_s = 20.0
    old = yard.serve("a", "n0")
    yard.see(replace(old, moving_to=Berth(node="n1", devices=("1",)), moving_by="scale:Deployment/rs@2"))
    yard.serve("b", "n1")
    fits, other = a_pair(), a_pod("other", whole=2, milli_cpu=10**6)
    yard.wait(fits, other)
    for _ in range(60):
        await yard.turn(30.0)
        assert yard.world.waiting.due_for_hand_over(yard.clock.monotonic_s()) == (other.uid,)
    yard.see(old)
    yard.workloads.answer = {"is_current": False}
    await yard.turn(30.0)
    assert set(yard.world.waiting.due_for_hand_over(yard.clock.monotonic_s())) == {fits.uid, other.uid}


async def test_a_move_waits_for_the_room_that_an_earlier_one_leaves():
    yard = Yard()
    first, second = yard.serve("a", "n0"), yard.serve("b", "n1")
    yard.wait(a_pair())
    await yard.turn()
    waiting, *_ = yard.proposer._orders
    blocker = replace(waiting.pod, uid="x", name="x", node_name=waiting.target.node, devices=waiting.target.devices)
    yard.see(blocker)
    await yard.turn(2.0)
    assert not yard.mover.orders
    yard.ledger.remove_pod("x")
    yard.world.pod_gone("x")
    await yard.turn(2.0)
    assert len(yard.mover.orders) == 1
    assert waiting.since_s >= 0
    assert {first.name, second.name} > set(yard.begun())


async def test_orders_whose_pod_is_gone_are_dropped():
    yard = Yard()
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    await yard.turn()
    (order,) = yard.proposer._orders
    yard.ledger.remove_pod(order.pod.uid)
    yard.world.pod_gone(order.pod.uid)
    await yard.turn(2.0)
    assert not yard.mover.orders
    assert not yard.proposer._orders


async def test_a_move_that_could_not_be_begun_voids_the_others_and_is_looked_for_anew():
    yard = Yard(nodes=4)
    for number, name in enumerate("abcd"):
        yard.serve(name, f"n{number}", service=name)
    yard.wait(a_pair(), a_pair("other"))
    await yard.turn()
    planned = len(yard.proposer._orders)
    yard.mover.refuses = True
    await yard.turn(2.0)
    assert (planned, yard.mover.refused, yard.proposer._orders) == (2, 1, [])
    yard.mover.refuses = False
    await yard.turn(61.0)
    await yard.turn(2.0)
    assert len(yard.mover.orders) == 2


async def test_a_gang_that_was_tried_and_did_not_fit_has_moves_made_for_it_as_a_whole():
    yard = Yard(nodes=3)
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    members = [a_pod(f"m{number}", whole=2, gang="g", gang_size=2) for number in range(2)]
    for pod in members:
        yard.see(pod)
    call_rolls(yard.world)
    await yard.turn()
    await yard.turn()
    assert not yard.mover.orders, "nobody has tried it yet"
    yard.world.together.without_room.add(("default", "g"))
    await yard.turn(2.0)
    await yard.turn(2.0)
    (order,) = yard.mover.orders
    assert "makes room for gang g" in order.why


async def test_on_schedule_devices_are_freed_where_an_operator_wants_them_free():
    yard = Yard(free_openings=1, every_s=60.0)
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    await yard.turn(30.0)
    await yard.turn(2.0)
    assert not yard.mover.orders
    await yard.turn(40.0)
    await yard.turn(2.0)
    (order,) = yard.mover.orders
    assert "frees 2 devices of one node" in order.why


@pytest.mark.parametrize("words", [{"mode": "on"}, {"pods_per_hour": 0}, {"waits_s": 0.5}, {"free_openings": -1}])
def test_settings_that_make_no_sense_are_named(words):
    (problem,) = MovesSettings(**words).problems()
    assert next(iter(words)) in problem
    assert not MovesSettings().problems()


def test_by_default_moves_are_looked_for_before_a_pod_is_handed_over():
    settings = PlannerSettings()
    assert 2 * settings.moves.waits_s <= settings.hand_over_after_s


def test_a_reason_to_wait_that_is_no_lack_of_room_moves_nobody():
    yard = Yard()
    pod = a_pair()
    yard.see(pod)
    yard.world.wait(Unplaced(pod_uid=pod.uid, reason=Reason.MALFORMED))
    assert not yard.world.waiting_for_room()
