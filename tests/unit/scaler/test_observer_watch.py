"""Looking at devices: a fault costs only what it hits, absent is never zero, and no sample leaks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.observer.readings import DeviceReading, Field
from scaler.observer.watch import Watcher
from tests.support.fake_nvml import Card, FakeNvml

SLOW = {Field.FB_USED, Field.FB_FREE, Field.POWER_USAGE, Field.GPU_TEMP}
COUNTERS = {
    Field.GR_ENGINE_ACTIVE: 0.6,
    Field.SM_ACTIVE: 0.5,
    Field.SM_OCCUPANCY: 0.25,
    Field.PIPE_TENSOR_ACTIVE: 0.125,
    Field.DRAM_ACTIVE: 0.4,
}


def second_look(nvml: FakeNvml) -> tuple[DeviceReading, ...]:
    watcher = Watcher(nvml)
    watcher.look()
    return watcher.look()


def test_all_fields_of_a_hopper_in_the_units_of_dcgm() -> None:
    [reading] = second_look(FakeNvml(Card(pids=(7, 8))))
    assert reading == DeviceReading(
        gpu=0,
        uuid="GPU-0",
        model="NVIDIA H100 80GB HBM3",
        values={
            Field.GPU_UTIL: 55.0,
            Field.MEM_COPY_UTIL: 20.0,
            Field.FB_USED: 30_000.0,
            Field.FB_FREE: 50_000.0,
            Field.POWER_USAGE: 300.0,
            Field.GPU_TEMP: 42.0,
            **COUNTERS,
        },
        processes=(7, 8),
    )
    assert set(reading.values) == set(Field)


def test_the_first_look_has_no_ratios_because_they_are_over_time() -> None:
    [reading] = Watcher(FakeNvml(Card())).look()
    assert not set(reading.values) & set(COUNTERS)


def test_before_hopper_there_are_no_counters() -> None:
    nvml = FakeNvml(Card(has_counters=False))
    [reading] = second_look(nvml)
    assert not set(reading.values) & set(COUNTERS)
    assert Field.GPU_UTIL in reading.values
    assert nvml.samples == set()


@pytest.mark.parametrize(
    ("fault", "lost"),
    [
        ("memory", {Field.FB_USED, Field.FB_FREE}),
        ("utilisation", {Field.GPU_UTIL, Field.MEM_COPY_UTIL}),
        ("power_w", {Field.POWER_USAGE}),
        ("temperature_c", {Field.GPU_TEMP}),
        ("sample", set(COUNTERS)),
        ("between", set(COUNTERS)),
        ("has_counters", set(COUNTERS)),
        ("processes", set()),
        ("instances", set()),
    ],
)
@pytest.mark.parametrize("reason", ["unknown error", "not supported"])
def test_a_fault_costs_its_own_fields_only_and_is_counted_unless_it_is_none(
    fault: str, lost: set[Field], reason: str
) -> None:
    watcher = Watcher(FakeNvml(Card(faults={fault: reason})))
    watcher.look()
    [reading] = watcher.look()
    assert set(reading.values) == set(Field) - lost
    assert (watcher.errors.total() == 0) == (reason == "not supported")
    assert all(counted == reason for _, counted in watcher.errors)


def test_a_lost_device_takes_only_its_own_series_and_comes_back() -> None:
    nvml = FakeNvml(Card(uuid="GPU-0"), Card(uuid="GPU-1"), Card(uuid="GPU-2"))
    watcher = Watcher(nvml)
    watcher.look()
    nvml.cards[1].faults["device"] = "gpu is lost"
    assert [reading.uuid for reading in watcher.look()] == ["GPU-0", "GPU-2"]
    assert len(nvml.samples) == 2
    assert watcher.errors["device", "gpu is lost"] == 1
    nvml.cards[1].faults.clear()
    assert [reading.uuid for reading in watcher.look()] == ["GPU-0", "GPU-1", "GPU-2"]
    # Its counters begin anew: a ratio over the time of the loss would be an invention.
    assert not set(watcher.look()[1].values) ^ set(Field)


def test_a_driver_that_goes_away_is_taken_up_again() -> None:
    nvml = FakeNvml(Card())
    watcher = Watcher(nvml)
    watcher.look()
    nvml.faults["count"] = "uninitialized"
    assert watcher.look() == ()
    assert (nvml.closed, nvml.samples) == (1, set())
    nvml.faults["open"] = "driver not loaded"
    assert watcher.look() == ()
    nvml.faults.clear()
    assert len(watcher.look()) == 1
    assert nvml.opened == 2
    assert watcher.errors == {("count", "uninitialized"): 1, ("open", "driver not loaded"): 1}


def test_a_node_without_a_driver_yet_is_looked_at_again() -> None:
    nvml = FakeNvml(Card())
    nvml.faults["open"] = "nvml shared library not found"
    watcher = Watcher(nvml)
    assert [watcher.look() for _ in range(3)] == [()] * 3
    assert nvml.closed == 0
    nvml.faults.clear()
    assert len(watcher.look()) == 1


def test_mig_instances_are_read_apart_and_name_their_own_processes() -> None:
    small = Card(used_mib=100, free_mib=900, pids=(11,), percents={5: 80.0, 10: 90.0})
    large = Card(used_mib=200, free_mib=1800, pids=(12,), percents={5: 10.0})
    card = Card(instances=[(7, "1g.10gb", small), (3, "3g.40gb", large)], pids=(11, 12))
    whole, first, second = second_look(FakeNvml(card))
    assert set(whole.values) == SLOW  # utilisation is not defined with MIG on
    assert whole.processes == ()
    assert (first.uuid, first.instance, first.profile, first.processes) == ("GPU-0", 7, "1g.10gb", (11,))
    assert first.values == {
        Field.FB_USED: 100.0,
        Field.FB_FREE: 900.0,
        Field.PIPE_TENSOR_ACTIVE: 0.8,
        Field.DRAM_ACTIVE: 0.9,
    }
    assert (second.instance, second.values[Field.PIPE_TENSOR_ACTIVE], second.processes) == (3, 0.1, (12,))


def test_an_instance_that_is_destroyed_frees_its_sample() -> None:
    card = Card(instances=[(7, "1g.10gb", Card()), (8, "1g.10gb", Card())])
    nvml = FakeNvml(card)
    watcher = Watcher(nvml)
    watcher.look()
    card.instances.pop()
    watcher.look()
    assert len(nvml.samples) == 1
    watcher.close()
    assert nvml.samples == set()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_counter_that_is_no_number_is_absent(value: float) -> None:
    [reading] = second_look(FakeNvml(Card(percents={5: value, 10: 40.0})))
    assert Field.PIPE_TENSOR_ACTIVE not in reading.values
    assert reading.values[Field.DRAM_ACTIVE] == 0.4


FAULTS = st.dictionaries(
    st.sampled_from(["device", "uuid", "memory", "utilisation", "sample", "between", "instances", "has_counters"]),
    st.sampled_from(["gpu is lost", "not supported", "timeout"]),
    max_size=4,
)


@given(st.lists(st.lists(FAULTS, min_size=2, max_size=2), max_size=6), st.lists(st.booleans(), max_size=6))
def test_whatever_fails_looking_goes_on_and_nothing_leaks(
    turns: list[list[dict[str, str]]], is_driver_gone: list[bool]
) -> None:
    """1. look never raises. 2. One sample at most per device. 3. Samples are used before, never after, being freed."""
    nvml = FakeNvml(Card(uuid="GPU-0"), Card(uuid="GPU-1", instances=[(1, "1g.10gb", Card())]))
    watcher = Watcher(nvml)
    for turn, faults in enumerate(turns):
        for card, given_faults in zip(nvml.cards, faults, strict=True):
            card.faults = given_faults
        nvml.faults = {"count": "uninitialized"} if turn < len(is_driver_gone) and is_driver_gone[turn] else {}
        watcher.look()
        assert len(nvml.samples) <= 3
    watcher.close()
    assert nvml.samples == set()
