"""Seats in the books: counted as held, no broken promise, in nobody's way who was there before, nobody else's."""

from __future__ import annotations

from dataclasses import replace

from binpack.extender import Extender, Outcome
from binpack.ledger import Ledger
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod

SEAT = Berth(node="n1", devices=("0",))


def books(*pods, node=None):
    ledger = Ledger()
    ledger.set_node(node or a_node("n1", gpus=2, milli_cpu=4000))
    for pod in pods:
        ledger.set_pod(pod)
    return ledger


def test_a_seat_is_held_though_its_pod_is_gated():
    ledger = books(a_pod("p", whole=1, seat=SEAT))
    assert [device.users for device in ledger.state("n1").devices] == [1, 0]
    assert ledger.berth_of("uid-p") == SEAT


def test_a_fresh_process_holds_the_same_seats():
    pods = [a_pod("p", whole=1, seat=SEAT), a_pod("q", whole=1, node="n1", devices=("0",))]
    assert books(*pods).picture() == books(*reversed(pods)).picture()


def test_a_seat_on_what_others_still_hold_is_no_broken_promise():
    ledger = books(a_pod("there", whole=1, node="n1", devices=("0",)), a_pod("p", whole=1, seat=SEAT))
    assert ledger.state("n1").devices[0].users == 2
    assert ledger.warnings() == ()
    ledger.set_pod(a_pod("twice", whole=1, node="n1", devices=("0",)))
    assert "promised beyond" in ledger.warnings()[0]


def test_a_seat_does_not_stand_in_the_way_of_a_pin_that_was_there_before():
    pinned = a_pod("before", milli_cpu=3000, pin="n1")
    ledger = books(pinned)
    extender = Extender(ledger)
    extender.pod_seen(pinned)
    seated = a_pod("p", whole=1, milli_cpu=3000, priority=9, seat=SEAT)
    ledger.set_pod(seated)
    extender.pod_seen(seated)
    assert ledger.state("n1").free.milli_cpu == -2000
    assert extender.filter(pinned, ["n1"], 0.0).outcome is Outcome.VERIFIED


def test_kube_scheduler_sends_nobody_to_a_seat_that_others_leave():
    ledger = books()
    extender = Extender(ledger)
    seated = a_pod("p", whole=1, milli_cpu=3000, seat=SEAT)
    ledger.set_pod(seated)
    extender.pod_seen(seated)
    handed_over = a_pod("other", milli_cpu=2000, gates=())
    verdict = extender.filter(handed_over, ["n1"], 0.0)
    assert list(verdict.passed) == []
    assert "lacks 1 core" in verdict.failed["n1"]


def test_a_seat_that_was_written_counts_while_the_watch_is_behind():
    gated = a_pod("p", whole=1)
    ledger = books(gated)
    ledger.assume(gated, SEAT, as_seat=True)
    seated = ledger.wrote_seat(gated, SEAT)
    assert seated.seat == SEAT
    ledger.set_pod(replace(gated, labels={"late": "event"}))
    assert ledger.berth_of("uid-p") == SEAT
    ledger.set_pod(seated)
    ledger.set_pod(replace(seated, seat=None))
    assert ledger.berth_of("uid-p") is None, "once it was shown, the watch is right again"


def test_a_seat_that_was_taken_back_is_free_while_the_watch_is_behind():
    seated = a_pod("p", whole=1, seat=SEAT)
    ledger = books(seated)
    ledger.wrote_seat(seated, None)
    ledger.set_pod(replace(seated, labels={"late": "event"}))
    assert ledger.berth_of("uid-p") is None


def test_a_pin_that_fails_falls_back_to_the_seat():
    gated = a_pod("p", whole=1)
    ledger = books(gated)
    seated = ledger.wrote_seat(gated, SEAT)
    ledger.assume(seated, SEAT)
    ledger.forget("uid-p")
    assert ledger.berth_of("uid-p") == SEAT
