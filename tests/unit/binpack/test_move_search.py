"""Looking for moves beside the planner: answers that come late, not at all, or of a world that has gone on."""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import replace

import pytest

from binpack.controller.aside import Lost, aside
from binpack.controller.move_search import packed, unpacked
from binpack.repack.values import Move, MovePlan, MoveReason, Verdict
from fleet.constraints import NodeTerm, Requirement
from fleet.dra import Allocation, ClaimChoice, Config, DeviceResult, DeviceToleration
from fleet.plan import Reason, Unplaced
from fleet.pod import Berth
from tests.support.builders import a_pod
from tests.support.clock import settle
from tests.support.proposing import Yard, a_pair


async def test_what_the_cluster_has_overtaken_is_counted_and_looked_for_anew():
    yard = Yard(nodes=3)
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    for device in "01":
        yard.serve(f"x{device}", "n2", device=device, service="x")
    yard.wait(a_pair())

    def one_moves_in():
        yard.serve("c", "n0", device="1", service="c")
        yard.serve("d", "n1", device="1", service="d")

    yard.meanwhile.append(one_moves_in)
    await yard.turn()
    assert yard.figure("move_searches_total", outcome="Outdated") == 1
    assert yard.figure("move_searches_total", outcome="NothingFound") == 1
    await yard.turn(2.0)
    assert not yard.mover.orders


async def test_moves_for_a_pod_that_is_gone_by_then_are_dropped():
    yard = Yard()
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    pod = a_pair()
    yard.wait(pod)
    yard.meanwhile.append(lambda: yard.forget(pod))
    await yard.turn()
    await yard.turn(2.0)
    assert yard.figure("move_searches_total", outcome="Outdated") >= 1
    assert not yard.mover.orders


async def test_who_goes_while_moves_are_looked_for_leaves_the_others_theirs():
    yard = Yard()
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    other = a_pair("other")
    yard.wait(a_pair(), other)
    yard.meanwhile.append(lambda: yard.forget(other))
    await yard.turn()
    await yard.turn(2.0)
    assert yard.figure("move_searches_total", outcome="Outdated") == 1
    (order,) = yard.mover.orders
    assert order.why.startswith("makes room for default/big;")


async def test_for_who_is_gone_nothing_is_looked_for_again():
    yard = Yard()
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    pod = a_pair()
    yard.wait(pod)
    yard.meanwhile.append(lambda: yard.forget(pod))
    await yard.turn()
    assert yard.figure("move_search_seconds_count") == 1


async def test_a_search_that_is_lost_costs_an_answer_and_is_counted():
    yard = Yard()
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())

    def dies():
        raise Lost("the process died")

    yard.meanwhile.append(dies)
    await yard.turn()
    assert yard.figure("move_searches_total", outcome="Lost") == 1
    await yard.turn(61.0)
    await yard.turn(2.0)
    assert len(yard.mover.orders) == 1


async def test_searches_that_are_lost_take_no_more_time_together_than_one_may():
    yard = Yard(solves=True)
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    walls = []

    async def hangs(work, wall_s):
        walls.append(wall_s)
        yard.clock.spend(wall_s)
        raise Lost(f"no answer within {wall_s:g} s")

    yard.proposer._search._aside = hangs
    await yard.turn()
    assert walls == [60.0, 60.0]
    assert yard.figure("move_searches_total", outcome="Lost") == 2


async def test_nor_do_searches_whose_answers_the_cluster_overtakes_again_and_again(monkeypatch):
    yard = Yard()
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    walls = []

    async def slow(work, wall_s):
        walls.append(wall_s)
        yard.clock.spend(min(50.0, wall_s))
        return work()

    yard.proposer._search._aside = slow
    monkeypatch.setattr(yard.proposer._search, "why_outdated", lambda goal, plan: "a pod came")
    await yard.turn()
    assert walls == [120.0, 70.0, 20.0]
    assert not yard.proposer._orders


async def test_a_pod_is_handed_over_once_the_move_for_it_is_over_though_others_are_looked_for_meanwhile():
    yard = Yard()
    yard.world.waiting._hand_over_after_s = 20.0
    old = yard.serve("a", "n0")
    yard.see(replace(old, moving_to=Berth(node="n1", devices=("1",)), moving_by="scale:Deployment/rs@2"))
    yard.serve("b", "n1")
    fits, other = a_pair(), a_pod("other", whole=2, milli_cpu=10**6)
    yard.wait(fits, other)
    is_searched = asyncio.Event()

    async def hangs(work, wall_s):
        is_searched.set()
        await asyncio.Event().wait()

    yard.proposer._search._aside = hangs
    await yard.clock.advance(31.0)
    running = asyncio.create_task(yard.proposer.run())
    await settle()
    assert is_searched.is_set()
    assert yard.world.waiting.due_for_hand_over(yard.clock.monotonic_s()) == (other.uid,)
    yard.see(old)  # its mark is taken off: it stays
    await yard.clock.advance(5.0)
    assert set(yard.world.waiting.due_for_hand_over(yard.clock.monotonic_s())) == {fits.uid, other.uid}
    assert not [past for past in yard.proposer._terms().past if not past.is_over]
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_where_the_search_with_the_solver_is_lost_the_one_without_it_answers():
    yard = Yard(mode="propose", solves=True)
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())

    def dies():
        raise Lost("the process died")

    yard.meanwhile.append(dies)
    await yard.turn()
    ((_, _, note),) = yard.recorder.said
    assert "no bound proven" in note
    assert yard.figure("move_searches_total", outcome="Lost") == 1
    assert yard.figure("move_searches_total", outcome="Reached") == 1


async def test_what_is_proposed_comes_with_objective_bound_and_gap():
    yard = Yard(mode="propose", solves=True)
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    await yard.turn()
    ((_, _, note),) = yard.recorder.said
    objective, bound = yard.figure("move_plan_objective_milli_gpu"), yard.figure("move_plan_bound_milli_gpu")
    assert bound <= objective
    assert f"objective {objective:.0f} milli-GPU, bound {bound:.0f}, gap 0.0%" in note
    assert yard.figure("move_plan_gap_ratio") == pytest.approx(0.0, abs=1e-6)
    assert yard.figure("move_search_seconds_count") == 1


async def test_without_the_solver_no_bound_is_claimed():
    yard = Yard(mode="propose")
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    await yard.turn()
    ((_, _, note),) = yard.recorder.said
    assert "no bound proven" in note
    assert math.isnan(yard.figure("move_plan_bound_milli_gpu"))


async def test_the_search_in_a_copy_of_the_process_finds_the_same():
    yard = Yard(mode="propose")
    yard.proposer._search._aside = aside
    yard.serve("a", "n0")
    yard.serve("b", "n1")
    yard.wait(a_pair())
    before = yard.world.index.potential()
    await yard.turn()
    assert "could move to n" in yard.recorder.said[0][2]
    assert yard.world.index.potential() == before


def test_a_plan_with_devices_for_claims_comes_back_from_the_search_as_it_was():
    result = DeviceResult(
        request="gpu",
        driver="gpu.example.com",
        pool="n1",
        device="gpu-0",
        consumed=(("memory", 2**30),),
        tolerations=(DeviceToleration(key="k", operator="Exists"),),
    )
    config = Config(requests=("gpu",), opaque=b"{}")
    terms = (NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=("n1",)),)),)
    allocation = Allocation(results=(result,), terms=terms, class_configs=(config,))
    target = Berth(node="n1", devices=("0",), choices=(ClaimChoice(claim_uid="c", allocation=allocation),))
    move = Move(pod_uid="a", source=Berth(node="n0"), target=target, reason=MoveReason.MAKES_ROOM, gain_milli=-1.5)
    left_out = Unplaced(pod_uid="b", reason=Reason.INSUFFICIENT, allowed_nodes=3)
    plan = MovePlan(verdict=Verdict.PARTLY, moves=(move,), unplaced=(left_out,), objective=3.0, bound=1.0)
    assert unpacked(packed(plan)) == plan
