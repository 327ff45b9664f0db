"""The seat of a pod that moves: kept beside its own berth, then its successor's, and the same for every process."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from binpack.ledger import Ledger
from fleet.pod import Berth, Phase
from tests.support.builders import a_node, a_pod

HERE, THERE = Berth(node="n1", devices=("0",)), Berth(node="n2", devices=("1",))
NODES = [a_node("n1", gpus=2), a_node("n2", gpus=2)]


def moving(name="old", **more):
    pod = a_pod(name, whole=1, node="n1", devices=("0",), **more)
    return replace(pod, moving_to=THERE, moving_by="eviction")


def still(name="old"):
    return a_pod(name, whole=1, node="n1", devices=("0",))


def gated(name="new"):
    return a_pod(name, whole=1)


def pinned(name="new", old="uid-old"):
    return replace(a_pod(name, whole=1, pin="n2", devices=("1",)), moved_from=old)


def bound(name="new", old="uid-old"):
    return replace(a_pod(name, whole=1, node="n2", devices=("1",)), moved_from=old)


def a_ledger(*pods):
    ledger = Ledger()
    for node in NODES:
        ledger.set_node(node)
    for pod in pods:
        ledger.set_pod(pod)
    return ledger


def used(ledger):
    return {
        (name, device.device.id)
        for name in ("n1", "n2")
        for device in ledger.state(name).devices
        if device.free_milli < 1000
    }


def overdrawn(ledger):
    return any(device.free_milli < 0 for name in ("n1", "n2") for device in ledger.state(name).devices)


BOTH = {("n1", "0"), ("n2", "1")}


def test_a_pod_that_moves_holds_both_berths():
    ledger = a_ledger(moving())
    assert used(ledger) == BOTH
    assert ledger.keeps_seat("uid-old")
    assert ledger.berth_of("uid-old") == HERE
    assert ledger.pods_on("n2") == ()


def test_the_seat_is_the_successors_from_its_pin_on_and_nobody_holds_it_twice():
    ledger = a_ledger(moving())
    for pod in (gated(), pinned(), bound()):
        ledger.set_pod(pod)
        assert used(ledger) == BOTH
        assert not overdrawn(ledger)
    assert not ledger.keeps_seat("uid-old")
    ledger.remove_pod("uid-old")
    assert used(ledger) == {("n2", "1")}


def test_what_is_assumed_of_a_successor_takes_the_seat_and_gives_it_back():
    ledger = a_ledger(moving(), gated())
    ledger.assume(replace(gated(), moved_from="uid-old"), THERE)
    assert used(ledger) == BOTH
    assert not overdrawn(ledger)
    assert not ledger.keeps_seat("uid-old")
    ledger.forget("uid-new")
    assert ledger.keeps_seat("uid-old")
    assert used(ledger) == BOTH


def test_a_successor_that_vanishes_leaves_the_seat():
    ledger = a_ledger(moving(), bound())
    ledger.remove_pod("uid-new")
    assert ledger.keeps_seat("uid-old")
    assert used(ledger) == BOTH


def test_a_mark_that_is_taken_off_frees_the_seat():
    ledger = a_ledger(moving())
    ledger.set_pod(still())
    assert used(ledger) == {("n1", "0")}


def test_a_terminating_pod_keeps_its_seat_and_an_ended_one_does_not():
    ledger = a_ledger(moving(is_terminating=True))
    assert ledger.keeps_seat("uid-old")
    ledger.set_pod(moving(phase=Phase.SUCCEEDED))
    assert not ledger.keeps_seat("uid-old")


def test_a_seat_whose_mark_is_being_written_is_kept_though_the_watch_shows_the_pod_as_it_was():
    ledger = a_ledger(still())
    ledger.assume_move(moving())
    ledger.set_pod(still())
    assert ledger.keeps_seat("uid-old")
    ledger.forget_move("uid-old")
    assert used(ledger) == {("n1", "0")}
    ledger.assume_move(moving())
    ledger.set_pod(moving())
    ledger.forget_move("uid-old")
    assert ledger.keeps_seat("uid-old"), "what the API shows is no assumption any more"


def test_the_seat_of_one_that_went_first_is_kept_for_a_while():
    ledger = a_ledger(moving())
    ledger.remove_pod("uid-old")
    assert not used(ledger)
    ledger.assume_move(moving())
    assert used(ledger) == {("n2", "1")}
    ledger.set_pod(pinned())
    assert not overdrawn(ledger)
    ledger.forget_move("uid-old")
    assert used(ledger) == {("n2", "1")}


EVENTS = st.lists(
    st.sampled_from(
        [
            still(),
            moving(),
            moving(is_terminating=True),
            gated(),
            pinned(),
            bound(),
            pinned("two"),
            "uid-old",
            "uid-new",
        ]
    ),
    max_size=12,
)


@given(EVENTS, st.randoms())
def test_a_fresh_process_keeps_the_same_seats(events, draw):
    watching, shown = a_ledger(), {}
    for event in events:
        if isinstance(event, str):
            watching.remove_pod(event)
            shown.pop(event, None)
        else:
            watching.set_pod(event)
            shown[event.uid] = event
    pods = list(shown.values())
    draw.shuffle(pods)
    assert watching.picture() == a_ledger(*pods).picture()
    holders = sum(uid != "uid-old" and not pod.gates for uid, pod in shown.items())
    kept = watching.keeps_seat("uid-old")
    assert kept == (getattr(shown.get("uid-old"), "moving_to", None) is not None and not holders)
