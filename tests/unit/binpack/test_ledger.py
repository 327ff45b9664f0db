from __future__ import annotations

import pytest

from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet import labels
from fleet.node import Node
from fleet.pod import Berth, Phase, Pod
from tests.support.builders import a_node, a_pod, a_state


def milli(state: NodeState | None) -> list[int]:
    assert state is not None
    return [device.free_milli for device in state.devices]


def mib(state: NodeState | None) -> list[int | None]:
    assert state is not None
    return [device.free_mib for device in state.devices]


def a_ledger(*objects: Node | Pod) -> Ledger:
    ledger = Ledger()
    for obj in objects:
        if isinstance(obj, Node):
            ledger.set_node(obj)
        else:
            ledger.set_pod(obj)
    return ledger


# -- who holds what ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "free"),
    [
        (a_pod(node="n1", milli=300, devices=("1",)), [1000, 700]),
        (a_pod(node="n1", whole=2, devices=("0", "1")), [0, 0]),
        (a_pod(node="n1", milli=300, devices=("1",), phase=Phase.SUCCEEDED), [1000, 1000]),
        (a_pod(node="n1", milli=300, devices=("1",), phase=Phase.FAILED), [1000, 1000]),
        (a_pod(node="n1", milli=300, devices=("1",), phase=Phase.UNKNOWN), [1000, 700]),
        (a_pod(node="n1", milli=300, devices=("1",), is_terminating=True), [1000, 700]),
        (a_pod(node="n1", milli=300, candidates=(Berth(node="n2"), Berth(node="n1", devices=("0",)))), [700, 1000]),
        (a_pod(pin="n1", milli=300, devices=("0",)), [700, 1000]),
        (a_pod(pin="n1", milli=300, devices=("0",), gates=("other",)), [1000, 1000]),
        (a_pod(milli=300, candidates=(Berth(node="n1", devices=("0",)), Berth(node="n2"))), [700, 1000]),
        (a_pod(milli=300, candidates=(Berth(node="n2"), Berth(node="n1", devices=("0",)))), [1000, 1000]),
        (a_pod(milli=300), [1000, 1000]),
    ],
)
def test_a_pod_holds_what_the_api_says(pod: Pod, free: list[int]) -> None:
    assert milli(a_state(a_node(gpus=2), pod)) == free


def test_pods_of_other_schedulers_hold_what_they_use() -> None:
    state = a_state(
        a_node(milli_cpu=8000, memory_gib=32), a_pod(node="n1", milli_cpu=6000, scheduler_name="default-scheduler")
    )
    assert (state.free.milli_cpu, state.free.pod_slots) == (2000, 109)


def test_a_whole_device_leaves_nothing() -> None:
    for memory_mib, left in ((None, None), (7168, 0)):
        state = a_state(a_node(gpus=1, memory_mib=memory_mib), a_pod(node="n1", whole=1, devices=("0",)))
        assert (milli(state), mib(state), state.devices[0].users) == ([0], [left], 1)


def test_a_whole_device_with_a_second_user_is_told_whether_memory_is_known_or_not() -> None:
    for memory_mib in (None, 7168):
        ledger = Ledger()
        ledger.set_node(a_node(gpus=1, memory_mib=memory_mib))
        ledger.set_pod(a_pod("w", node="n1", whole=1, devices=("0",)))
        assert ledger.warnings() == ()
        ledger.set_pod(a_pod("m", node="n1", mib=100, devices=("0",)))
        assert ledger.warnings() == ("device n1/0 is promised beyond what it has",)


def test_a_share_of_a_card_of_unknown_memory_leaves_it_unknown() -> None:
    state = a_state(a_node(gpus=1), a_pod(node="n1", mib=5000, devices=("0",)))
    assert (milli(state), mib(state), state.devices[0].users) == ([1000], [None], 1)
    assert not state.devices[0].is_untouched


def test_shares_are_booked_on_every_device_of_the_record() -> None:
    state = a_state(a_node(gpus=3, memory_mib=1000), a_pod(node="n1", milli=200, mib=300, count=2, devices=("0", "2")))
    assert (milli(state), mib(state)) == ([800, 1000, 800], [700, 1000, 700])


def test_the_dead_keep_their_users() -> None:
    state = a_state(a_node(gpus=2, dead=("0",)), a_pod(node="n1", milli=1000, devices=("0",)))
    assert milli(state) == [0, 1000]
    assert not state.devices[0].is_untouched


def test_overbooked_devices_are_shown_as_they_are_and_named() -> None:
    ledger = a_ledger(
        a_node(gpus=1, memory_mib=1000),
        a_pod("a", node="n1", milli=700, mib=600, devices=("0",)),
        a_pod("b", node="n1", milli=700, mib=600, devices=("0",)),
    )
    assert (milli(ledger.state("n1")), mib(ledger.state("n1"))) == ([-400], [-200])
    assert any("n1/0" in warning for warning in ledger.warnings())


# -- classic nodes ----------------------------------------------------------------------------------------------------


def test_a_classic_node_counts_and_names_nobody() -> None:
    ledger = a_ledger(a_node(gpus=4, is_sharing=False), a_pod(node="n1", classic=3))
    state = ledger.state("n1")
    assert state is not None
    assert [device.is_untouched for device in state.devices] == [False, False, False, True]
    assert state.free.of(labels.NVIDIA_GPU) == 1
    assert ledger.warnings() == ()


def test_dead_counters_are_nobodys() -> None:
    state = a_state(a_node(gpus=3, is_sharing=False, dead=("0",)), a_pod(node="n1", classic=1))
    assert [device.is_untouched for device in state.devices] == [False, False, True]
    assert [device.users for device in state.devices] == [0, 1, 0]


def test_shares_left_on_a_node_that_became_classic_close_it() -> None:
    state = a_state(a_node(gpus=2, is_sharing=False), a_pod("left", node="n1", milli=100, devices=("0",)))
    assert "default/left" in state.blocked[0]


# -- records that do not help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (a_pod("x", node="n1", milli=100), "no record"),
        (a_pod("x", node="n1", classic=1), labels.NVIDIA_GPU),
        (a_pod("x", node="n1", milli=100, record_problem="devices '0,,': cannot be read"), "devices '0,,'"),
        (a_pod("x", node="n1", problems=("GPUs are asked for in 2 ways",)), "2 ways"),
        (a_pod("x", node="n1", milli=100, count=2, devices=("0",)), "names 1"),
        (a_pod("x", pin="n1", milli=100, record_problem="devices '0,,': cannot be read"), "devices '0,,'"),
        (a_pod("x", node="n1", milli=100, candidates=(Berth(node="n2", devices=("0",)),)), "no record"),
    ],
)
def test_a_pod_whose_devices_nobody_knows_closes_its_node_loudly(pod: Pod, words: str) -> None:
    ledger = a_ledger(a_node(gpus=2), pod)
    state = ledger.state("n1")
    assert state is not None
    (reason,) = state.blocked
    assert "default/x" in reason
    assert "n1" in reason
    assert words in reason
    assert reason in ledger.warnings()
    ledger.remove_pod(pod.uid)
    state = ledger.state("n1")
    assert state is not None
    assert state.blocked == ()


def test_reasons_stand_in_the_same_order_whichever_pod_came_first() -> None:
    pods = [a_pod(name, node="n1", milli=100) for name in "abc"]
    node = a_node(gpus=2, device_problems=("z", "a"))
    assert a_ledger(node, *pods).picture() == a_ledger(*reversed(pods), node).picture()


def test_a_request_nobody_can_read_takes_its_recorded_devices_whole() -> None:
    state = a_state(a_node(gpus=2), a_pod(node="n1", problems=("bad",), devices=("1",)))
    assert milli(state) == [1000, 0]
    assert state.blocked


def test_hami_counts_on_a_sharing_node_are_no_riddle() -> None:
    pod = a_pod(node="n1", milli=300, devices=("0",), extended={labels.NVIDIA_GPU: 1})
    assert a_state(a_node(gpus=2, extended={labels.NVIDIA_GPU: 20}), pod).blocked == ()


def test_a_pin_without_devices_holds_none_and_closes_nothing() -> None:
    state = a_state(a_node(gpus=1), a_pod(pin="n1", milli=300, milli_cpu=5))
    assert (milli(state), state.blocked, state.free.pod_slots) == ([1000], (), 109)


def test_doubts_about_the_inventory_close_the_node() -> None:
    ledger = a_ledger(a_node(gpus=2, device_problems=("1 of 2 is missing",)))
    state = ledger.state("n1")
    assert state is not None
    assert state.blocked == ("node n1: 1 of 2 is missing",)
    assert ledger.warnings() == state.blocked


# -- comings and goings -----------------------------------------------------------------------------------------------


def test_pods_may_come_before_their_node_and_stay_after_it() -> None:
    ledger = a_ledger(a_pod(node="n1", milli=400, devices=("0",)))
    assert ledger.state("n1") is None
    ledger.set_node(a_node(gpus=1))
    assert milli(ledger.state("n1")) == [600]
    ledger.remove_node("n1")
    assert ledger.state("n1") is None
    assert ledger.picture().homeless == (("n1", "default/p1"),)
    ledger.set_node(a_node(gpus=1, uid="another"))
    assert milli(ledger.state("n1")) == [600]


def test_records_of_missing_devices_wait_for_their_return_and_are_named() -> None:
    ledger = a_ledger(a_node(gpus=2), a_pod("old", node="n1", milli=500, devices=("1",)))
    ledger.set_node(a_node(gpus=1))
    assert milli(ledger.state("n1")) == [1000]
    assert any("default/old" in warning and "n1/1" in warning for warning in ledger.warnings())
    ledger.set_node(a_node(gpus=2))
    assert milli(ledger.state("n1")) == [1000, 500]
    assert ledger.warnings() == ()


def test_a_pod_recreated_under_its_name_replaces_the_one_whose_deletion_was_missed() -> None:
    ledger = a_ledger(a_node(gpus=2), a_pod("web-0", uid="u1", node="n1", milli=500, devices=("0",)))
    ledger.set_pod(a_pod("web-0", uid="u2"))
    assert milli(ledger.state("n1")) == [1000, 1000]
    ledger.set_pod(a_pod("web-0", uid="u2", node="n1", milli=300, devices=("1",)))
    ledger.remove_pod("u1")
    assert milli(ledger.state("n1")) == [1000, 700], "the late deletion of the first does not touch the second"


def test_only_what_changed_is_told_and_states_are_kept() -> None:
    ledger = a_ledger(a_node("n1", gpus=1), a_node("n2", gpus=1), a_pod(node="n1", milli=400, devices=("0",)))
    assert ledger.take_changed() == {"n1", "n2"}
    before = ledger.state("n1")
    ledger.set_pod(a_pod(node="n1", milli=400, devices=("0",), priority=5))
    ledger.set_node(a_node("n2", gpus=1))
    ledger.remove_node("n3")
    ledger.remove_pod("nobody")
    assert ledger.take_changed() == set()
    assert ledger.state("n1") is before
    ledger.set_pod(a_pod(node="n2", milli=400, devices=("0",)))
    ledger.remove_node("n1")
    assert ledger.take_changed() == {"n1", "n2"}


def test_names_and_pods_are_listed() -> None:
    ledger = a_ledger(a_node("n2"), a_node("n1"), a_pod("b", node="n1"), a_pod("a", node="n1"))
    assert ledger.names() == ("n1", "n2")
    assert set(ledger.known()) == {"n1", "n2"}
    assert ledger.pods_on("n1") == ("uid-a", "uid-b")
    assert ledger.pods_on("n2") == ()


def test_a_state_can_be_had_without_one_pod() -> None:
    ledger = a_ledger(
        a_node(gpus=1),
        a_pod("a", node="n1", milli=400, devices=("0",)),
        a_pod("b", pin="n1", milli=500, devices=("0",)),
    )
    assert milli(ledger.state_without("n1", "uid-b")) == [600]
    assert milli(ledger.state_without("n1", "somebody")) == [100]
    assert ledger.state_without("n9", "uid-b") is None
    assert ledger.berth_of("uid-b") == Berth(node="n1", devices=("0",))
    assert ledger.berth_of("somebody") is None


# -- what was decided here --------------------------------------------------------------------------------------------

HERE = Berth(node="n1", devices=("0",))
THERE = Berth(node="n2", devices=("0",))


def assumed(pod: Pod | None = None) -> Ledger:
    ledger = a_ledger(a_node("n1", gpus=1), a_node("n2", gpus=1), pod or a_pod(milli=400))
    ledger.assume(pod or a_pod(milli=400), HERE)
    return ledger


def test_an_assumption_holds_while_the_api_shows_the_gate() -> None:
    ledger = assumed()
    assert milli(ledger.state("n1")) == [600]
    ledger.set_pod(a_pod(milli=400, priority=3))
    assert milli(ledger.state("n1")) == [600]
    assert ledger.berth_of("uid-p1") == HERE


@pytest.mark.parametrize(
    ("shown", "here", "there"),
    [
        (a_pod(milli=400, pin="n1", devices=("0",)), 600, 1000),
        (a_pod(milli=400, pin="n2", devices=("0",)), 1000, 600),
        (a_pod(milli=400, node="n2", devices=("0",)), 1000, 600),
        (a_pod(milli=400, candidates=(THERE, HERE)), 1000, 600),
        (a_pod(milli=400, gates=()), 1000, 1000),
        (a_pod(milli=400, is_terminating=True), 1000, 1000),
        (a_pod(milli=400, phase=Phase.FAILED), 1000, 1000),
    ],
)
def test_the_api_overrules_an_assumption(shown: Pod, here: int, there: int) -> None:
    ledger = assumed()
    ledger.set_pod(shown)
    assert (milli(ledger.state("n1")), milli(ledger.state("n2"))) == ([here], [there])
    ledger.forget("uid-p1")
    assert (milli(ledger.state("n1")), milli(ledger.state("n2"))) == ([here], [there]), "nothing left to forget"


def test_forgetting_returns_to_what_the_api_shows() -> None:
    candidate = a_pod(milli=400, candidates=(THERE, HERE))
    for pod, there in ((a_pod(milli=400), 1000), (candidate, 600)):
        ledger = assumed(pod)
        assert (milli(ledger.state("n1")), milli(ledger.state("n2"))) == ([600], [1000])
        ledger.set_pod(pod)
        assert milli(ledger.state("n1")) == [600], "a second candidate chosen here outlasts other news of the pod"
        ledger.forget("uid-p1")
        assert (milli(ledger.state("n1")), milli(ledger.state("n2"))) == ([1000], [there])


def test_a_late_assumption_does_not_overrule_the_api() -> None:
    ledger = a_ledger(a_node("n1", gpus=1), a_node("n2", gpus=1), a_pod(milli=400, pin="n2", devices=("0",)))
    ledger.assume(a_pod(milli=400), HERE)
    assert (milli(ledger.state("n1")), milli(ledger.state("n2"))) == ([1000], [600])


def test_an_assumption_can_be_moved_and_goes_with_its_pod() -> None:
    ledger = assumed()
    ledger.assume(a_pod(milli=400), THERE)
    assert (milli(ledger.state("n1")), milli(ledger.state("n2"))) == ([1000], [600])
    ledger.remove_pod("uid-p1")
    assert milli(ledger.state("n2")) == [1000]


def test_an_assumption_for_a_successor_ends_the_predecessor() -> None:
    ledger = a_ledger(
        a_node("n1", gpus=1), a_node("n2", gpus=1), a_pod("web-0", uid="u1", node="n2", milli=1000, devices=("0",))
    )
    ledger.assume(a_pod("web-0", uid="u2", milli=400), HERE)
    assert (milli(ledger.state("n1")), milli(ledger.state("n2"))) == ([600], [1000])
