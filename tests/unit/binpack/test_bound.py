"""The bound: brute force never beats it, it is tight where packing is easy, and no policy passes it on real traces.

With prices p >= 0 the limit is sum_i p_i d_i + sum_k n_k B_k(p); see binpack/bound/limit.py.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.arrivals import arrivals, milli_gpu_of
from binpack.bound import Bounds, bound_of, bounds_at
from binpack.bound.fillings import Fillings
from binpack.bound.kinds import NodeKind, PodKind, demand_of, ground_of
from binpack.simulate import MILESTONES, Outcome, Setting, simulate
from binpack.trace import load_nodes, load_pods
from fleet.device import AskKind, Device, DeviceAsk
from fleet.node import Node
from fleet.pod import Pod
from fleet.resources import Resources

NODES, PODS = load_nodes(), load_pods()


def a_node(name: str, devices: int, cpu: float, model: str = "G2") -> Node:
    return Node(
        name=name,
        allocatable=Resources(milli_cpu=round(1000 * cpu), memory_bytes=2**40, pod_slots=100),
        devices=tuple(Device(id=str(i), model=model) for i in range(devices)),
        is_sharing=True,
    )


def a_pod(name: str, count: int, milli: int, cpu: float, models: tuple[str, ...] = ()) -> Pod:
    kind = AskKind.CHOSEN if milli == 1000 else AskKind.SHARE
    ask = DeviceAsk(kind=kind, count=count, milli_gpu=milli, models=models) if count else None
    return Pod(uid=name, name=name, requests=Resources(milli_cpu=round(1000 * cpu), pod_slots=1), ask=ask)


def most_allocated(nodes: list[Node], pods: list[Pod]) -> int:
    """Return the most milli-GPU in use at once, by trying every node and set of devices for every pod, or none."""
    cpu = [node.allocatable.milli_cpu for node in nodes]
    free = [[1000] * len(node.devices) for node in nodes]

    def rest(place: int) -> int:
        if place == len(pods):
            return 0
        pod, ask = pods[place], pods[place].ask
        best = rest(place + 1)
        if ask is None:
            return best
        for n, node in enumerate(nodes):
            if cpu[n] < pod.requests.milli_cpu or (ask.models and node.devices[0].model not in ask.models):
                continue
            tried = set()
            for chosen in itertools.combinations(range(len(free[n])), ask.count):
                seen = tuple(sorted(free[n][d] for d in chosen))
                if seen[0] < ask.milli_gpu or seen in tried:
                    continue
                tried.add(seen)
                cpu[n] -= pod.requests.milli_cpu
                for d in chosen:
                    free[n][d] -= ask.milli_gpu
                best = max(best, ask.milli_gpu * ask.count + rest(place + 1))
                cpu[n] += pod.requests.milli_cpu
                for d in chosen:
                    free[n][d] += ask.milli_gpu
        return best

    return rest(0)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Node], list[Pod]]:
    nodes = [
        a_node(
            f"n{i}", draw(st.integers(1, 3)), draw(st.sampled_from((2, 3.5, 8))), draw(st.sampled_from(("G2", "T4")))
        )
        for i in range(draw(st.integers(1, 2)))
    ]
    pods = []
    for i in range(draw(st.integers(1, 6))):
        count = draw(st.sampled_from((0, 1, 1, 1, 2)))
        milli = draw(st.sampled_from((1000, 810, 470, 530, 320, 250)))
        models = draw(st.sampled_from(((), (), ("T4",), ("T4", "G2"))))
        pods.append(a_pod(f"p{i}", count, milli, draw(st.sampled_from((0, 0.5, 1, 2.05))), models))
    return nodes, pods


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_brute_force_never_beats_the_bound(world: tuple[list[Node], list[Pod]]) -> None:
    nodes, pods = world
    found = bound_of(nodes, pods)
    assert most_allocated(nodes, pods) <= found.allocated_milli_gpu
    assert found.allocated_milli_gpu <= min(sum(map(milli_gpu_of, pods)), 1000 * sum(len(n.devices) for n in nodes))


@settings(max_examples=60, deadline=None)
@given(worlds(), st.integers(0, 2**32))
def test_any_prices_prove_a_limit(world: tuple[list[Node], list[Pod]], seed: int) -> None:
    nodes, pods = world
    ground = ground_of(nodes)
    demand = demand_of(pods, ground)
    kinds, generator = sorted(demand), random.Random(seed)
    prices = [generator.randrange(0, 1500) for _ in kinds]
    limit = sum(price * demand[kind] for price, kind in zip(prices, kinds, strict=True))
    for node, count in ground.nodes:
        fillings = Fillings(node.models, [node], kinds)
        values = [kind.total_milli_gpu - price for kind, price in zip(kinds, prices, strict=True)]
        limit += count * fillings.priced(values).best(node)
    assert most_allocated(nodes, pods) <= limit


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_filling_is_the_best_there_is_and_fits(data: st.DataObject) -> None:
    node = NodeKind(models=("G2",), devices=data.draw(st.integers(1, 3)), cpu=data.draw(st.integers(0, 7)))
    kinds = [
        PodKind(
            devices=data.draw(st.sampled_from((1, 1, 2))),
            milli_gpu=1000,
            cpu=data.draw(st.integers(0, 3)),
            models=(),
        )
        for _ in range(2)
    ] + [
        PodKind(
            devices=1,
            milli_gpu=data.draw(st.sampled_from((250, 400, 600))),
            cpu=data.draw(st.integers(0, 3)),
            models=(),
        )
        for _ in range(2)
    ]
    values = [data.draw(st.integers(-5, 50)) for _ in kinds]
    priced = Fillings(("G2",), [node], kinds).priced(values)
    filling = priced.filling(node)
    assert sum(values[kind] * number for kind, number in filling) == priced.best(node)
    assert sum(kinds[kind].cpu * number for kind, number in filling) <= node.cpu
    best = 0
    ranges = [range(3 * 4 // (1 if k.milli_gpu < 1000 else 4) + 1) if k.devices == 1 else range(2) for k in kinds]
    for numbers in itertools.product(*ranges):
        if sum(k.cpu * n for k, n in zip(kinds, numbers, strict=True)) > node.cpu:
            continue
        whole = sum(k.devices * n for k, n in zip(kinds[:2], numbers[:2], strict=True))
        if whole <= node.devices and fits_devices(node.devices - whole, kinds[2:], numbers[2:]):
            best = max(best, sum(v * n for v, n in zip(values, numbers, strict=True)))
    assert priced.best(node) == best


def fits_devices(devices: int, kinds: list[PodKind], numbers: tuple[int, ...]) -> bool:
    shares = [kind.milli_gpu for kind, number in zip(kinds, numbers, strict=True) for _ in range(number)]

    def rest(place: int, room: tuple[int, ...]) -> bool:
        if place == len(shares):
            return True
        return any(
            rest(place + 1, tuple(sorted((*room[:d], room[d] - shares[place], *room[d + 1 :]))))
            for d in range(len(room))
            if room[d] >= shares[place] and room[d] not in room[:d]
        )

    return rest(0, (1000,) * devices)


def test_it_is_exact_where_packing_is_easy() -> None:
    nodes = [a_node(f"n{i}", 2, 8) for i in range(3)]
    assert bound_of(nodes, [a_pod(f"p{i}", 1, 600, 1) for i in range(9)]).allocated_milli_gpu == 6 * 600
    assert bound_of(nodes, [a_pod(f"p{i}", 2, 1000, 1) for i in range(2)]).unallocated_gpu_ratio == pytest.approx(1 / 3)
    assert bound_of(nodes, [a_pod(f"p{i}", 1, 1000, 5) for i in range(9)]).allocated_milli_gpu == 3000, "CPU for one"
    assert bound_of(nodes, [a_pod(f"p{i}", 1, 500, 1, ("T4",)) for i in range(9)]).allocated_milli_gpu == 0


def test_a_share_of_two_devices_counts_as_two_halves() -> None:
    assert bound_of([a_node("n", 2, 8)], [a_pod("p", 2, 700, 3)]).allocated_milli_gpu == 1400
    assert bound_of([a_node("n", 1, 8)], [a_pod("p", 2, 700, 3)]).allocated_milli_gpu == 700, "in the demand's favour"


def test_nodes_without_devices_and_pods_without_asks_have_no_ratio() -> None:
    node = Node(name="n", allocatable=Resources(milli_cpu=4000))
    found = bound_of([node], [a_pod("p", 0, 0, 1)])
    assert (found.allocated_milli_gpu, found.unallocated_gpu_ratio, found.slack_ratio) == (0, None, 0.0)
    assert bound_of([], []).unallocated_gpu_ratio is None
    assert bound_of([a_node("n", 2, 8)], []).unallocated_gpu_ratio == 1.0


def test_pods_of_a_kind_that_was_not_prepared_for_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown kinds"):
        Bounds([a_node("n", 2, 8)], []).of([a_pod("p", 1, 500, 1)])


def test_milestones_look_at_the_pods_that_had_arrived() -> None:
    nodes = [a_node("n", 4, 64)]
    pods = [a_pod(f"p{i}", 1, 1000, 1) for i in range(3)] + [a_pod(f"s{i}", 1, 600, 1) for i in range(4)]
    found = bounds_at(nodes, pods, (50, 75, 100, 130))
    assert [found[at].allocated_milli_gpu for at in (50, 75, 100, 130)] == [2000, 3000, 3600, 3600]
    told: list[int] = []
    assert found == bounds_at(nodes, pods, (50, 75, 100, 130), on_proven=told.append), "repeats"
    assert told == [1, 2, 3, 4]


@pytest.mark.parametrize("trace", ["default", "gpuspec33", "multigpu50"])
def test_no_policy_passes_the_bound_of_its_own_arrivals(trace: str) -> None:
    nodes, pods = NODES[::12], load_pods(trace)[::12]
    sequence: list[Pod] = []
    found: dict[str, Mapping[int, float | None]] = {}
    for policy in ("berthmaster", "fgd", "best-fit"):
        outcomes: list[Outcome] = []
        found[policy] = simulate(nodes, pods, Setting(policy=policy, seed=9), on_outcome=outcomes.append).unallocated_at
        arrived = [outcome.pod for outcome in outcomes]
        assert not sequence or arrived == sequence, "every policy sees the same pods"
        sequence = arrived
    bounds = bounds_at(nodes, sequence, MILESTONES)
    for policy, unallocated_at in found.items():
        for at, reached in unallocated_at.items():
            limit = bounds[at].unallocated_gpu_ratio
            assert limit is not None
            assert reached is not None
            assert limit <= reached + 1e-12, (policy, at)


@pytest.mark.parametrize("trace", ["default", "gpushare100", "gpuspec20", "cpu250"])
def test_the_search_ends_close_to_its_own_optimum(trace: str) -> None:
    sequence = arrivals(load_pods(trace), [node.name for node in NODES], 6_212_000, 1.0, 42)
    found = bound_of(NODES, sequence.pods)
    assert found.slack_ratio <= 2.1e-5
    assert found.unallocated_gpu_ratio is not None
    assert 0.015 < found.unallocated_gpu_ratio < 0.12
