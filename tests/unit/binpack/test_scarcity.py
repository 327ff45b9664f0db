"""CPU or GPU first: how the potential leans as CPU becomes scarce."""

from __future__ import annotations

import pytest

from binpack.index import Index, Mix, Shape, Weights, mix_of
from binpack.index.node_class import NodeClass
from binpack.index.scarcity import cpu_demand_ratio, suited
from binpack.trace import empty_state, load_nodes, load_pods
from tests.support.berths import seat


def kind(devices: int, cpu: int) -> NodeClass:
    return NodeClass(model=0, devices=devices, milli_cpu=1000 * cpu, memory_bytes=0)


ONE = Shape(milli_cpu=8000, count=1, milli_gpu=1000)


def test_the_ratio_is_of_the_cpu_that_a_mix_wants_when_it_asks_for_every_device() -> None:
    assert cpu_demand_ratio(Mix.of({ONE: 5}), [(kind(8, 64), 10)]) == pytest.approx(1.0)
    assert cpu_demand_ratio(Mix.of({ONE: 5}), [(kind(8, 128), 10)]) == pytest.approx(0.5)
    half = Shape(milli_cpu=8000, count=1, milli_gpu=500)
    assert cpu_demand_ratio(Mix.of({half: 1}), [(kind(8, 64), 3)]) == pytest.approx(2.0)


def test_pods_without_devices_count_as_far_as_nodes_without_devices_cannot_hold_them() -> None:
    mix = Mix.of({ONE: 8, Shape(milli_cpu=32_000): 1})
    assert cpu_demand_ratio(mix, [(kind(8, 128), 1)]) == pytest.approx(0.75)
    assert cpu_demand_ratio(mix, [(kind(8, 128), 1), (kind(0, 16), 1)]) == pytest.approx(0.625)
    assert cpu_demand_ratio(mix, [(kind(8, 128), 1), (kind(0, 16), 9)]) == pytest.approx(0.5)


def test_where_nothing_wants_or_has_devices_nothing_is_scarce() -> None:
    assert cpu_demand_ratio(Mix.of({ONE: 1}), [(kind(0, 64), 1)]) == 0.0
    assert cpu_demand_ratio(Mix.of({Shape(milli_cpu=1): 1}), [(kind(8, 64), 1)]) == 0.0
    assert cpu_demand_ratio(Mix(), []) == 0.0


def test_of_the_openb_traces_one_wants_all_cpu_before_all_gpus() -> None:
    index = Index([empty_state(node) for node in load_nodes()])
    classes = index._arrays.known_classes()
    ratios = {name: cpu_demand_ratio(mix_of(load_pods(name)), classes.items()) for name in ("default", "cpu250")}
    assert ratios == {"default": pytest.approx(0.81, abs=0.01), "cpu250": pytest.approx(1.02, abs=0.01)}


@pytest.mark.parametrize(("ratio", "left_over"), [(0.0, 0.04), (0.9, 0.04), (0.951, 0.06), (1.0, 0.08), (9.0, 0.08)])
def test_what_is_left_over_weighs_more_as_cpu_becomes_scarce(ratio: float, left_over: float) -> None:
    weights = suited(Weights(left_over=0.04, left_over_scarce=0.08, idle_node_milli=2.0), ratio)
    assert weights.idle_node_milli == pytest.approx(2 * (0.08 - left_over) / 0.04)
    assert weights.left_over == pytest.approx(left_over)
    assert weights.device_value == 1.0


def test_tables_follow_nodes_that_make_cpu_scarce() -> None:
    """The answer depends on the nodes there are, not on when each came."""
    mix = Mix.of({ONE: 3, Shape(milli_cpu=4000, count=1, milli_gpu=500): 2})
    states = [seat("roomy", [1000] * 8, cpu=256), *(seat(f"tight{i}", [1000] * 8, cpu=32) for i in range(9))]
    at_once = Index(states, mix=mix)
    one_by_one = Index(states[:1], mix=mix)
    before = one_by_one.potential()
    for state in states[1:]:
        one_by_one.set_node(state)
        one_by_one.potential()
    assert one_by_one.potential() == at_once.potential() != before
    for state in states[1:]:
        at_once.remove_node(state.node.name)
    assert at_once.potential() == before
