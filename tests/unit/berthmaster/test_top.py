"""`top`: the sums over nodes and devices."""

from __future__ import annotations

from berthmaster.commands.top import summarise
from fleet.device import Device
from tests.support.berths import card, seat


def summary(*states, **words):
    return summarise(
        {state.node.name: state for state in states},
        **({"pods": 0, "waiting": 0, "fragmented": 0.0, "warnings": ()} | words),
    )


def test_each_device_is_counted_once():
    found = summary(
        seat(
            "a",
            devices=[
                card("0"),
                card("1", 400),
                card("2", 0),
                card("3", is_healthy=False),
                card("4", 1000, users=1),
            ],
        )
    )
    (row,) = found.models
    assert (row.model, row.nodes, row.devices) == ("G2", 1, 5)
    assert (row.untouched, row.partly_used, row.full, row.unhealthy) == (1, 2, 1, 1)
    assert row.free_milli_gpu == 1000 + 400 + 0 + 1000
    assert row.allocated_ratio == 0.32, "a dead card that nobody holds is not allocated"


def test_devices_are_told_apart_by_model_also_on_one_node():
    mixed = seat("a", devices=[card("0", model="T4"), card("1", 0, model="A100")])
    rows = {row.model: row for row in summary(mixed, seat("b", devices=[card("0", model="T4")])).models}
    assert {model: (row.nodes, row.devices) for model, row in rows.items()} == {"A100": (1, 1), "T4": (2, 2)}
    assert rows["A100"].allocated_ratio == 1.0
    assert rows["T4"].allocated_ratio == 0.0


def test_a_device_of_unknown_model_is_listed():
    assert [row.model for row in summary(seat("a", devices=[card("0", model="")])).models] == ["unknown"]


def test_over_commitment_is_no_negative_room():
    (row,) = summary(seat("a", devices=[card("0", -500, users=2), card("1")])).models
    assert row.free_milli_gpu == 1000
    assert row.allocated_ratio == 0.5


def test_blocked_nodes_and_counts_are_passed_on():
    found = summary(seat("b", blocked=("why",)), seat("a"), pods=7, waiting=2, fragmented=1234.56, warnings=("w",))
    assert (found.nodes, found.pods, found.waiting) == (2, 7, 2)
    assert found.blocked_nodes == ("b",)
    assert found.fragmented_milli_gpu == 1234.6
    assert found.warnings == ("w",)
    assert found.models == ()
    assert Device(id="0").is_healthy
