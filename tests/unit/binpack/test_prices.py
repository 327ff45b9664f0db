"""Prices of models that follow what is free of them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from binpack.index import Index, Mix, Shape, Weights
from binpack.index.arrays import Arrays
from binpack.index.device_value import frozen_value_table
from binpack.index.potential import Potential
from binpack.index.prices import Prices
from binpack.state import NodeState
from fleet.plan import Placement
from fleet.pod import Berth, Pod
from tests.support.berths import card, chosen, pod, seat, share

ANY = Shape(milli_cpu=1000, count=1, milli_gpu=1000)
ONLY_A = Shape(milli_cpu=1000, count=1, milli_gpu=1000, models=("A",))
MIX = Mix.of({ANY: 3, ONLY_A: 1})  # a quarter of the demand can use A alone


def cards(name: str, model: str, devices: int) -> NodeState:
    return seat(name, devices=[card(str(number), model=model) for number in range(devices)])


def world(*nodes: tuple[str, str, int]) -> Arrays:
    arrays = Arrays()
    for name, model, devices in nodes:
        arrays.set_node(cards(name, model, devices))
    return arrays


def prices(arrays: Arrays, mix: Mix = MIX) -> Prices:
    return Prices(arrays, mix, Potential(mix, arrays.models.names, frozen_value_table(), Weights(contention=1.0)))


def by_name(arrays: Arrays, found: Prices) -> dict[str, float]:
    assert found.by_model is not None
    return {name: float(found.by_model[number]) for number, name in enumerate(arrays.models.names)}


def take(arrays: Arrays, found: Prices, node: str, devices: int) -> None:
    arrays.take(pod("p", ask=chosen(devices)), Berth(node=node, devices=tuple(map(str, range(devices)))))
    found.renew(np.array([arrays.slots[node]]))


def test_where_no_demand_is_limited_to_a_model_nothing_has_a_price() -> None:
    assert prices(world(("n", "A", 8)), Mix.of({ANY: 1})).by_model is None
    assert prices(world(("n", "A", 8), ("m", "B", 8)), Mix.of({ANY: 1})).by_model is None


def test_a_model_that_fills_up_becomes_dear_and_the_others_stay_free() -> None:
    arrays = world(("a", "A", 8), ("b", "B", 8))
    found = prices(arrays)
    # 16 devices are free, within half a step; a quarter of what is to come wants the 8 of A
    assert by_name(arrays, found) == {"A": pytest.approx(0.5, abs=0.02), "B": 0.0}
    take(arrays, found, "a", 6)
    # 10 are free, of which 2.5 pods' worth want the 2 that A has left
    assert by_name(arrays, found) == {"A": pytest.approx(1.25, abs=0.1), "B": 0.0}


def test_nobody_pays_more_than_three_times_the_price_of_a_model_that_is_just_filled() -> None:
    arrays = world(("a", "A", 8), *((f"b{i}", "B", 8) for i in range(9)))
    found = prices(arrays)
    take(arrays, found, "a", 8)
    assert by_name(arrays, found) == {"A": 3.0, "B": 0.0}


def test_a_rest_of_a_device_that_nobody_wants_is_not_free() -> None:
    arrays = world(("a", "A", 2), ("b", "B", 8))
    found = prices(arrays)
    for device in ("0", "1"):
        arrays.take(pod(f"p{device}", ask=share(810)), Berth(node="a", devices=(device,)))
    found.renew(np.array([0]))
    full = world(("a", "A", 2), ("b", "B", 8))
    beside = prices(full)
    take(full, beside, "a", 2)
    assert by_name(arrays, found) == by_name(full, beside)


@pytest.mark.parametrize("seed", range(5))
def test_prices_depend_on_what_is_free_and_not_on_how_it_became_so(seed: int) -> None:
    generator = random.Random(seed)
    models = ["A"] * 3 + ["B"] * 5
    arrays = world(("a", "A", 8), ("c", "B", 8))
    arrays.set_node(seat("b", devices=[card(str(i), model=model) for i, model in enumerate(models)]))
    found = prices(arrays)
    held: list[tuple[Pod, Berth]] = []
    for number in range(60):
        if held and generator.random() < 0.4:
            one, berth = held.pop(generator.randrange(len(held)))
            arrays.give_back(one, berth)
        else:
            one = pod(f"p{number}", cpu=0, ask=share(generator.choice([230, 470, 810])))
            berth = Berth(node=generator.choice("abc"), devices=(str(generator.randrange(4)),))
            arrays.take(one, berth)
            held.append((one, berth))
        if number == 30:
            arrays.set_node(seat("b", devices=[card(str(i), model=model) for i, model in enumerate(models[::-1])]))
            held = [(one, berth) for one, berth in held if berth.node != "b"]
        found.renew(np.fromiter(arrays.changed, np.int64))
        arrays.changed.clear()
        assert by_name(arrays, found) == by_name(arrays, prices(arrays))


def test_a_pod_that_any_model_serves_leaves_the_last_devices_of_one_that_others_need() -> None:
    index = Index(
        [cards("a", "A", 2), cards("b", "B", 2)],
        mix=Mix.of({ANY: 1, ONLY_A: 1}),
    )
    for number in range(2):
        one = pod(f"p{number}", ask=chosen(1))
        found = index.place(one)
        assert isinstance(found, Placement)
        assert found.berth.node == "b"
        index.take(one, found.berth)
    found = index.place(pod("last", ask=chosen(1)))
    assert isinstance(found, Placement)
    assert found.berth.node == "a"
