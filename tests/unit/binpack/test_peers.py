"""The published policies, re-made: their scores by their own definitions."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from binpack.index import Mix, Shape, default_mix
from binpack.index.arrays import Arrays
from binpack.index.scores import PodClass
from binpack.peers import PEERS
from binpack.peers.fgd import Fragmentation
from binpack.peers.simple import best_fit, dot_product, packing
from binpack.state import NodeState
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Pod
from tests.support.berths import card, chosen, pod, seat, share


def arrays_of(*states: NodeState) -> Arrays:
    arrays = Arrays()
    for state in states:
        arrays.set_node(state)
    return arrays


def scored(score: object, one: Pod, *states: NodeState) -> tuple[list[float], list[int]]:
    arrays = arrays_of(*states)
    slots = np.arange(len(states))
    least = one.ask.milli_gpu if one.ask else 2000
    usable = (arrays.residual[slots] >= least) & (arrays.healthy[slots] > 0)
    found, position = score(arrays, PodClass.of(one), slots, usable)  # type: ignore[operator]
    return found.tolist(), position.tolist()


def test_best_fit_is_what_is_left_of_cpu_and_gpu_cut_to_whole_points() -> None:
    one = pod("p", cpu=8, ask=share(500))
    states = seat("n1", [1000, 600], cpu=32), seat("n2", [1000] * 8, cpu=128)
    left = [0.5 * 24 / 128 + 0.5 * 1100 / 8000, 0.5 * 120 / 128 + 0.5 * 7500 / 8000]
    assert scored(best_fit, one, *states) == ([math.floor(100 * (1 - part)) for part in left], [1, 0])


def test_dot_product_prefers_what_is_least_aligned() -> None:
    one = pod("p", cpu=64, ask=chosen(4))
    score, _ = scored(dot_product, one, seat("n1", [1000] * 8, cpu=128), seat("n2", [1000] * 4, cpu=64))
    assert score == [math.floor(100 * (1 - (1 * 0.5 + 1 * 0.5) / 2)), math.floor(100 * (1 - (0.25 + 0.25) / 2))]


def test_packing_prefers_used_devices_then_used_nodes_then_empty_ones() -> None:
    states = seat("shared", [1000, 550]), seat("used", [1000, 100]), seat("empty", [1000, 1000])
    assert scored(packing, pod("p", ask=share(500)), *states) == ([100 - 5, 50 - 1, 33 - 2], [1, 0, 0])
    assert scored(packing, pod("p"), *states)[0] == [0, 0, 0]


def answers(policy: str, states: list[NodeState], pods: list[Pod], order: tuple[str, ...] = ()) -> list[Berth | None]:
    names = order or tuple(sorted(state.node.name for state in states))
    peer = PEERS[policy](states, names, default_mix(), 1)
    found: list[Berth | None] = []
    for one in pods:
        answer = peer.place(one)
        found.append(answer.berth if isinstance(answer, Placement) else None)
        if isinstance(answer, Placement):
            peer.take(one, answer.berth)
        else:
            assert isinstance(answer, Unplaced)
            assert answer.shortfall is not None
    return found


def test_clustering_keeps_kinds_together() -> None:
    states = [seat(name, [1000] * 8) for name in ("n1", "n2", "n3")]
    pods = [pod("a", ask=chosen(2)), pod("b", ask=share(500)), pod("c", ask=chosen(2)), pod("d", ask=share(500))]
    pods += [pod("e", ask=chosen(4)), pod("f", ask=chosen(1))]
    nodes = [berth.node if berth else None for berth in answers("clustering", states, pods)]
    # f finds no node of its kind and none empty: the fullest of the others
    assert nodes == ["n1", "n2", "n1", "n2", "n3", "n1"]


def test_first_fit_takes_nodes_in_file_order_and_others_break_ties_by_the_given_order() -> None:
    states = [seat("b", [1000]), seat("a", [1000])]
    one = [pod("p", ask=chosen())]
    assert answers("first-fit", states, one, ("a", "b")) == [Berth(node="b", devices=("0",))]
    for policy in ("fgd", "best-fit", "dot-product", "clustering", "packing"):
        assert answers(policy, states, one, ("b", "a")) == [Berth(node="b", devices=("0",))]
        assert answers(policy, states, one, ("a", "b")) == [Berth(node="a", devices=("0",))]


def test_random_draws_nodes_and_devices_and_repeats_with_its_seed() -> None:
    states = [seat(f"n{i}", [1000] * 4) for i in range(8)]
    pods = [pod(f"p{i}", ask=share(100)) for i in range(40)]
    found = answers("random", states, pods)
    assert found == answers("random", states, pods)
    assert len({berth.node for berth in found if berth}) > 4
    assert {berth.devices for berth in found if berth} == {("0",), ("1",), ("2",), ("3",)}


@pytest.mark.parametrize("policy", sorted(PEERS))
def test_no_peer_gives_what_is_not_there(policy: str) -> None:
    states = [seat("n1", [400, 300]), seat("n2", devices=[card("0", is_healthy=False)])]
    assert answers(policy, states, [pod("p", ask=share(401)), pod("q", ask=chosen())]) == [None, None]
    assert answers(policy, states, [pod("p", ask=share(400))]) == [Berth(node="n1", devices=("0",))]


def fragment(mix: Mix, model: str, milli_cpu: int, residuals: list[int]) -> float:
    """Return F by its definition."""
    typical = mix.typical()
    pods = sum(n for _, n in typical)
    found = 0.0
    for shape, n in typical:
        able = [r for r in residuals if r >= shape.milli_gpu]
        runs = (
            shape.count > 0
            and milli_cpu >= shape.milli_cpu
            and len(able) >= shape.count
            and (not shape.models or model in shape.models)
        )
        lost = sum(r for r in residuals if r < shape.milli_gpu) if runs else sum(residuals)
        found += n / pods * lost
    return found


def test_the_fragment_equals_its_definition() -> None:
    generator = random.Random(3)
    mix = Mix.of(
        {
            Shape(milli_cpu=4000): 10,
            Shape(milli_cpu=8000, count=1, milli_gpu=1000): 20,
            Shape(milli_cpu=4000, count=1, milli_gpu=470): 30,
            Shape(milli_cpu=2000, count=1, milli_gpu=230, models=("A",)): 15,
            Shape(milli_cpu=16_000, count=4, milli_gpu=1000): 5,
        }
    )
    made = Fragmentation(mix, ("A", "B"))
    for _ in range(200):
        model = generator.choice([0, 1])
        cpu = generator.choice([0, 3000, 5000, 64_000])
        residuals = [generator.choice([0, 200, 300, 500, 1000]) for _ in range(8)]
        found = made.fragment(np.array([model]), np.array([cpu]), np.array([residuals]))
        assert found[0] == pytest.approx(fragment(mix, "AB"[model], cpu, residuals), abs=1e-3)


def test_fgd_scores_the_growth_of_the_fragment_cut_to_whole_points() -> None:
    mix = default_mix()
    one = pod("p", cpu=4, ask=share(470))
    score, position = scored(Fragmentation(mix, ("G2",)).score, one, seat("n1", [1000, 530, 200], cpu=64))
    before = fragment(mix, "G2", 64_000, [1000, 530, 200])
    wanted = []
    for device, residuals in ((0, [530, 530, 200]), (1, [1000, 60, 200])):
        gain = before - fragment(mix, "G2", 60_000, residuals)
        wanted.append((math.floor(100 / (1 + math.exp(-gain / 1000))), -device))
    best = max(wanted)
    assert (score[0], -position[0]) == best
