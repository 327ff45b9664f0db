"""Demand mix, contention and reservations."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from binpack.index import Index, Mix, Shape, default_mix, mix_of
from binpack.index.arrays import Arrays
from binpack.index.contention import contention, narrow_demand
from binpack.index.mix import shape_of
from binpack.index.node_class import NodeClass
from binpack.index.reservation import Reservations
from binpack.index.unseen import with_unseen
from binpack.trace import empty_state, load_nodes, load_pods
from fleet.plan import Placement
from fleet.pod import Berth, Pod
from tests.support.berths import chosen, pod, seat, share

WHOLE = Shape(milli_cpu=1000, count=1, milli_gpu=1000)


def test_typical_shapes_cover_95_percent_and_leave_memory_out() -> None:
    mix = default_mix()
    typical = mix.typical()
    pods = sum(n for _, n in mix.shapes)
    assert pods == 8152
    assert len(typical) == 35
    assert sum(n for _, n in typical) >= 0.95 * pods
    assert sum(n for _, n in typical[:-1]) < 0.95 * pods
    assert all(shape.memory_bytes == 0 for shape, _ in typical)


def test_a_mix_does_not_depend_on_the_order_of_its_counts() -> None:
    counts = {WHOLE: 3, Shape(milli_cpu=500): 3, Shape(milli_cpu=1000, count=1, milli_gpu=470): 7}
    assert Mix.of(counts) == Mix.of(dict(reversed(counts.items())))


def test_a_share_of_memory_alone_counts_as_that_part_of_a_usual_card() -> None:
    assert shape_of(pod("p", ask=share(0, mib=6000)), device_mib=24_000).milli_gpu == 250
    assert shape_of(pod("p", ask=share(400, mib=6000)), device_mib=24_000).milli_gpu == 400
    assert shape_of(pod("p", ask=share(0, mib=6000))).milli_gpu == 0


def levels(mix: Mix, devices: dict[str, int]) -> dict[str, float]:
    return contention(narrow_demand(mix, devices), devices)


def test_contention_is_levelled_as_published_for_gpuspec33() -> None:
    devices: Counter[str] = Counter()
    for node in load_nodes():
        devices[node.devices[0].model] += len(node.devices)
    found = contention(narrow_demand(mix_of(load_pods("gpuspec33")), devices), devices)
    published = {"T4": 1.25, "P100": 0.78, "V100M16": 0.78, "V100M32": 0.78, "G3": 0.42, "G2": 0.10}
    assert {model: found[model] for model in published} == pytest.approx(published, abs=0.02)


def test_a_set_that_holds_nearly_everything_is_no_constraint() -> None:
    mix = Mix.of({Shape(milli_cpu=1, count=1, milli_gpu=1000, models=("A",)): 1, WHOLE: 1})
    assert levels(mix, {"A": 90, "B": 10}) == {"A": 0.0, "B": 0.0}
    assert levels(mix, {"A": 80, "B": 20}) == {"A": pytest.approx(0.5 * 100 / 80), "B": 0.0}


def test_an_unconstrained_or_unknown_model_leaves_nothing_contended() -> None:
    mix = Mix.of({Shape(milli_cpu=1, count=1, milli_gpu=1000, models=("Z",)): 1, WHOLE: 1})
    assert levels(mix, {"A": 8}) == {"A": 0.0}
    assert levels(mix, {}) == {}


def reserving(mix: Mix, *states: object) -> tuple[Arrays, Reservations]:
    arrays = Arrays()
    for state in states:
        arrays.set_node(state)  # type: ignore[arg-type]
    return arrays, Reservations(arrays, mix, 1.5, 0.0)


def kept_from(arrays: Arrays, kept: Reservations, one: Pod, position: int = 0) -> list[str]:
    found = kept.charged(one, np.full(arrays.count, position))
    return [] if found is None else [arrays.name(int(slot)) for slot in np.flatnonzero(found)]


def test_whole_nodes_are_kept_for_pods_that_need_all_of_one() -> None:
    eight = Shape(milli_cpu=64_000, count=8, milli_gpu=1000)
    mix = Mix.of({eight: 1, WHOLE: 8})  # half of the demand comes from eight-GPU pods
    arrays, kept = reserving(mix, seat("n1", [1000] * 8), seat("n2", [1000] * 8), seat("n3", [1000] * 7 + [400]))
    # n1 and n2 are whole; 2 <= 1.5 * 0.5 * (23.4 free / 8) = 2.19
    assert kept_from(arrays, kept, pod("p", ask=chosen(1))) == ["n1", "n2"]
    assert kept_from(arrays, kept, pod("p", cpu=64, ask=chosen(8))) == []
    assert kept.charged(pod("p", cpu=1), np.full(3, -1)) is not None
    few = Mix.of({eight: 1, WHOLE: 1000})
    arrays, kept = reserving(few, seat("n1", [1000] * 8), seat("n2", [1000] * 8))
    assert kept_from(arrays, kept, pod("p", ask=chosen(1))) == []


def test_the_margin_keeps_a_last_opening_for_pods_that_come_rarely() -> None:
    mix = Mix.of({Shape(milli_cpu=1000, count=8, milli_gpu=1000): 1, WHOLE: 24})  # a quarter of the demand
    arrays, _ = reserving(mix, seat("n1", [1000] * 8))
    assert kept_from(arrays, Reservations(arrays, mix, 1.5, 0.0), pod("p", ask=chosen(1))) == []  # 0.375 openings
    assert kept_from(arrays, Reservations(arrays, mix, 1.5, 1.3), pod("p", ask=chosen(1))) == ["n1"]  # 1.025 openings


def test_only_pods_that_take_an_opening_are_charged() -> None:
    mix = Mix.of({Shape(milli_cpu=8000, count=4, milli_gpu=1000): 1})
    arrays, kept = reserving(
        mix,
        seat("five", [1000] * 5 + [400], cpu=12),
        seat("four", [1000] * 4 + [400], cpu=12),
        seat("three", [1000] * 3 + [400], cpu=12),
    )
    assert kept_from(arrays, kept, pod("p", ask=chosen(1))) == ["four"]
    assert kept_from(arrays, kept, pod("p", ask=chosen(2))) == ["five", "four"]
    assert kept_from(arrays, kept, pod("p", cpu=5, ask=chosen(1))) == ["five", "four"]  # 7 cores are left, 8 wanted
    assert kept_from(arrays, kept, pod("p", ask=share(300)), position=0) == ["four"]
    assert kept_from(arrays, kept, pod("p", ask=share(300)), position=4) == []  # "four" gives what is left of a device


def test_a_cpu_only_pod_is_charged_only_where_it_would_take_the_cpu_the_big_pod_needs() -> None:
    mix = Mix.of({Shape(milli_cpu=32_000, count=8, milli_gpu=1000): 1})
    arrays, kept = reserving(mix, seat("n1", [1000] * 8, cpu=64))
    assert kept_from(arrays, kept, pod("p", cpu=32), position=-1) == []
    assert kept_from(arrays, kept, pod("p", cpu=33), position=-1) == ["n1"]


def test_a_pod_of_a_wider_set_may_not_break_into_the_nodes_of_a_narrower_one() -> None:
    small, big = (Shape(milli_cpu=cpu, count=8, milli_gpu=1000) for cpu in (32_000, 100_000))
    mix = Mix.of({small: 1, big: 1})
    arrays, kept = reserving(mix, seat("little", [1000] * 8, cpu=64), seat("large", [1000] * 8, cpu=128))
    assert kept_from(arrays, kept, pod("p", cpu=32, ask=chosen(8))) == ["large"]
    assert kept_from(arrays, kept, pod("p", cpu=100, ask=chosen(8))) == []


def test_nodes_of_one_device_reserve_nothing() -> None:
    arrays, kept = reserving(Mix.of({WHOLE: 1}), seat("n1", [1000]))
    assert kept_from(arrays, kept, pod("p", ask=share(100))) == []


def test_a_learnt_mix_changes_the_answer() -> None:
    index = Index([seat("a", [1000] * 8), seat("b", [1000] * 2)], mix=Mix.of({WHOLE: 1}))
    assert not index.learn([pod(f"p{i}", cpu=64, ask=chosen(8)) for i in range(49)])
    assert index.learn([pod("p", cpu=64, ask=chosen(8))])
    answer = index.place(pod("p", ask=chosen(1)))
    assert isinstance(answer, Placement)
    assert answer.berth.node == "b"


def test_a_mix_without_gpus_teaches_nothing() -> None:
    index = Index([empty_state(node) for node in load_nodes()[:3]])
    assert not index.learn([pod(f"p{i}") for i in range(60)])


def test_nodes_of_eight_are_kept_beside_bigger_ones() -> None:
    mix = Mix.of(
        {Shape(milli_cpu=1000, count=8, milli_gpu=1000): 1, Shape(milli_cpu=1000, count=16, milli_gpu=1000): 1}
    )
    arrays, kept = reserving(mix, seat("n08", [1000] * 8), seat("n16", [1000] * 16), seat("n4", [1000] * 4))
    assert kept_from(arrays, kept, pod("p", ask=chosen(1))) == ["n16"]  # of the three openings of eight one is to spare
    assert kept_from(arrays, kept, pod("p", ask=chosen(8))) == ["n16"]
    assert kept_from(arrays, kept, pod("p", ask=chosen(16))) == []


def test_openings_are_the_same_whether_counted_at_once_or_as_things_change() -> None:
    generator = random.Random(7)
    mix = default_mix()
    arrays, kept = reserving(mix, *(empty_state(node) for node in load_nodes()[::12]))
    names = sorted(arrays.slots)
    for number in range(300):
        slot = arrays.slots[generator.choice(names)]
        free = int(arrays.untouched[slot].sum())
        if free and arrays.milli_cpu[slot] >= 4000:
            one = pod(f"p{number}", cpu=4, ask=chosen(generator.randint(1, free)))
            berth = Berth(node=arrays.name(slot), devices=first_free(arrays, slot, one))
            arrays.take(one, berth)
            kept.renew(np.array([slot]))
    again = Reservations(arrays, mix, 1.5, 0.0)
    nowhere = np.full(arrays.count, -1)
    for one in (pod("p", ask=chosen(1)), pod("q", cpu=120, ask=chosen(8)), pod("r", cpu=90)):
        before, after = kept.charged(one, nowhere), again.charged(one, nowhere)
        assert (before is None) == (after is None)
        assert before is None or after is None or (before == after).all()


def first_free(arrays: Arrays, slot: int, one: Pod) -> tuple[str, ...]:
    assert one.ask is not None
    return arrays.device_ids(slot, [int(p) for p in np.flatnonzero(arrays.untouched[slot])[: one.ask.count]])


def test_one_pod_is_expected_of_each_kind_that_would_fill_a_big_node() -> None:
    def kind(devices: int, cpu: int) -> NodeClass:
        return NodeClass(model=0, devices=devices, milli_cpu=1000 * cpu, memory_bytes=0)

    seen = Mix.of({WHOLE: 49, Shape(milli_cpu=120_000, count=8, milli_gpu=1000): 2})
    found = dict(with_unseen(seen, [kind(8, 96), kind(8, 128), kind(8, 128), kind(4, 64), kind(1, 16)]).shapes)
    assert found == {
        WHOLE: 49,
        Shape(milli_cpu=120_000, count=8, milli_gpu=1000): 3,
        Shape(milli_cpu=90_000, count=8, milli_gpu=1000): 1,
    }
    small = dict(with_unseen(seen, [kind(4, 64), kind(2, 64)]).shapes)
    assert Shape(milli_cpu=60_000, count=4, milli_gpu=1000) in small
    assert with_unseen(seen, [kind(1, 16)]) == seen
