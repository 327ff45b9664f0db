"""The demo's board: each replayed pod is on its way, bound or waiting, whatever order the events come in."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berthmaster.demo.board import Board, PodSeen, quantile
from fleet import labels


class Hands:
    """A board, its clock, and events for it."""

    def __init__(self):
        self.now_s = 100.0
        self.board = Board(lambda: self.now_s)

    def create(self, uid):
        self.board.created(uid)

    def event(self, uid, *, node="", gated=True, waiting=None):
        conditions = []
        if waiting is not None:
            conditions = [
                {"type": labels.WAITING_CONDITION, "status": "True", "reason": waiting, "message": f"{waiting}!"}
            ]
        obj = {
            "metadata": {"uid": uid, "name": uid},
            "spec": {"nodeName": node or None, "schedulingGates": [{"name": labels.PLAN_GATE}] if gated else None},
            "status": {"conditions": conditions},
        }
        self.board.upsert(self.read(obj))

    def gone(self, uid):
        self.board.delete(self.read({"metadata": {"uid": uid}}))

    @staticmethod
    def read(obj):
        return msgspec.json.decode(msgspec.json.encode(obj), type=PodSeen)

    @property
    def counts(self):
        found = self.board.standings
        return found.created, found.on_the_way, found.bound, sum(found.waiting.values())


def test_a_pod_goes_from_created_to_bound():
    hands = Hands()
    hands.create("a")
    assert hands.counts == (1, 1, 0, 0)
    hands.event("a")
    hands.now_s = 102.5
    hands.event("a", node="n1", gated=False)
    assert hands.counts == (1, 0, 1, 0)
    hands.now_s = 200.0
    hands.event("a", node="n1", gated=False)
    assert hands.board.latencies_s == (2.5,)
    assert hands.board.last_bound_s == 102.5


def test_a_pod_that_waits_and_is_placed_later_no_longer_waits():
    hands = Hands()
    hands.create("a")
    hands.event("a", waiting="Insufficient")
    assert hands.board.standings.waiting == {"Insufficient": 1}
    assert hands.board.waiting_messages == ("Insufficient!",)
    hands.event("a", gated=False, waiting="Insufficient")
    assert hands.counts == (1, 1, 0, 0), "pinned: on its way"
    hands.event("a", node="n1", gated=False, waiting="Insufficient")
    assert hands.counts == (1, 0, 1, 0)


def test_a_pod_bound_before_its_creation_was_answered_is_bound():
    hands = Hands()
    hands.event("a", node="n1", gated=False)
    hands.now_s = 101.0
    hands.create("a")
    assert hands.counts == (1, 0, 1, 0)
    assert hands.board.latencies_s == (0.0,)


def test_a_deleted_pod_is_counted_as_deleted_and_nowhere_else():
    hands = Hands()
    hands.create("a")
    hands.event("a", waiting="Insufficient")
    hands.gone("a")
    assert hands.counts == (0, 0, 0, 0)
    assert hands.board.deleted == 1


def test_messages_come_most_frequent_first():
    hands = Hands()
    for uid, reason in (("a", "Rare"), ("b", "Often"), ("c", "Often")):
        hands.create(uid)
        hands.event(uid, waiting=reason)
    assert hands.board.waiting_messages == ("Often!", "Rare!")
    assert list(hands.board.standings.waiting) == ["Often", "Rare"]


EVENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["create", "gated", "waits", "pinned", "bound", "gone"])),
    max_size=30,
)


@given(EVENTS)
def test_no_pod_is_counted_in_two_places(events):
    hands = Hands()
    created = set()
    for uid, kind in events:
        if uid not in created:
            created.add(uid)
            hands.create(uid)
        match kind:
            case "gated":
                hands.event(uid)
            case "waits":
                hands.event(uid, waiting="Insufficient")
            case "pinned":
                hands.event(uid, gated=False)
            case "bound":
                hands.event(uid, node="n1", gated=False)
            case "gone":
                hands.gone(uid)
                created.discard(uid)
        total, on_the_way, bound, waiting = hands.counts
        assert min(on_the_way, bound, waiting) >= 0
        assert total == on_the_way + bound + waiting


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [((), 0.5, None), ((1.0,), 0.99, 1.0), ((1.0, 2.0, 3.0, 4.0), 0.5, 3.0), ((1.0, 2.0), 1.0, 2.0)],
)
def test_quantiles(values, q, expected):
    assert quantile(values, q) == expected
