"""The openb protocol's arrivals."""

from __future__ import annotations

import pytest

from binpack.arrivals import arrivals, class_of, milli_gpu_of
from binpack.trace import load_pods
from tests.support.berths import chosen, pod, share

CAPACITY = 6_212_000


def test_pods_come_shuffled_and_are_re_sampled_until_the_ratio_is_reached() -> None:
    pods = load_pods()
    found = arrivals(pods, ["b", "a"], CAPACITY, 1.3, 42)
    first, rest = found.pods[: len(pods)], found.pods[len(pods) :]
    assert sorted(p.name for p in first) == sorted(p.name for p in pods)
    assert [p.name for p in first] != [p.name for p in pods]
    assert all(p.name.endswith(f"-tuned-{i}") and p.uid == p.name for i, p in enumerate(rest))
    demand = sum(map(milli_gpu_of, found.pods))
    assert 1.298 <= demand / CAPACITY <= 1.3 + 7000 / CAPACITY
    originals = {p.name: p for p in pods}
    assert all(p.ask == originals[p.name.rsplit("-tuned-", 1)[0]].ask for p in rest)


def test_a_seed_names_one_sequence_whatever_the_order_of_the_file() -> None:
    pods = load_pods()
    assert arrivals(pods, ["a", "b"], CAPACITY, 1.3, 1) == arrivals(pods[::-1], ["b", "a"], CAPACITY, 1.3, 1)
    assert arrivals(pods, [], CAPACITY, 1.3, 1).pods != arrivals(pods, [], CAPACITY, 1.3, 2).pods


def test_too_much_demand_is_thinned_at_random() -> None:
    pods = load_pods("multigpu50")
    found = arrivals(pods, [], CAPACITY, 1.3, 42)
    assert sum(map(milli_gpu_of, pods)) / CAPACITY > 1.8
    assert 1.29 < sum(map(milli_gpu_of, found.pods)) / CAPACITY <= 1.3
    assert not any("tuned" in p.name for p in found.pods)


@pytest.mark.parametrize("pods", [[], [pod("a"), pod("b")]])
def test_pods_without_gpus_arrive_once(pods: list) -> None:
    assert sorted(p.name for p in arrivals(pods, ["n"], 1000, 1.3, 1).pods) == [p.name for p in pods]


def test_a_cluster_without_gpus_gets_only_what_asks_none() -> None:
    found = arrivals([pod("a"), pod("b", ask=chosen())], ["n"], 0, 1.3, 1)
    assert [p.name for p in found.pods if p.ask] == []


def test_classes_of_failed_pods() -> None:
    asks = {"8gpu": chosen(8), "1gpu": chosen(), "f>=600": share(600), "f400-599": share(400), "f<400": share(399)}
    assert {class_of(pod("p", ask=ask)) for ask in asks.values()} == set(asks)
    assert class_of(pod("p")) == "cpu"
