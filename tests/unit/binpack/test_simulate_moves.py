"""Simulations that move pods: who is moved when, and an independent count that follows."""

from functools import cache

from binpack.simulate import Setting, simulate
from binpack.tally import Tally
from binpack.trace import load_nodes, load_pods
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod

NODES = load_nodes()[::30]
PODS = load_pods("gpuspec33")


@cache
def run(ratio):
    outcomes = []
    setting = Setting(seed=8, arrive_ratio=1.0, moves_ratio=ratio)
    result = simulate(NODES, PODS, setting, on_outcome=outcomes.append)
    return result, tuple(outcomes)


def test_moves_place_more_and_stay_within_the_budget():
    still, _ = run(0.0)
    moved, outcomes = run(0.05)
    assert (still.moves, moved.faults, moved.refused_but_fits) == (0, (), 0)
    assert moved.moves > 0
    assert moved.unallocated_gpu_ratio < still.unallocated_gpu_ratio
    placed = made = 0
    for outcome in outcomes:
        made += len(outcome.moves)
        assert not outcome.moves or made <= 0.05 * placed
        assert outcome.berth is not None or not outcome.moves
        placed += outcome.berth is not None
    assert made == moved.moves


def test_nothing_moves_before_an_arrival_fails_and_what_failed_stays_out():
    _, before = run(0.0)
    _, after = run(0.05)
    first = next(place for place, outcome in enumerate(before) if outcome.berth is None)
    assert [(o.pod.uid, o.berth) for o in before[:first]] == [(o.pod.uid, o.berth) for o in after[:first]]
    assert sum(o.pod.uid == before[first].pod.uid for o in after) == 1


def test_the_count_books_the_new_berth_before_the_old_one_goes():
    tally = Tally([a_node("a", gpus=1), a_node("b", gpus=1)])
    p, q = a_pod("p", whole=1), a_pod("q", whole=1)
    a, b = Berth(node="a", devices=("0",)), Berth(node="b", devices=("0",))
    tally.book(p, a)
    tally.move(p, a, b)
    assert (tally.faults, tally.allocated_milli_gpu, tally.where_it_fits(q)) == ([], 1000, "a")
    tally.book(q, a)
    tally.move(p, b, a)
    assert tally.faults == ["p: a cannot give devices 0"]
    tally.move(q, b, a)
    assert tally.faults[-1] == "q: moved from b, where it is not"


def test_a_wrong_ratio_is_refused():
    assert Setting(moves_ratio=1.5).problems()
    assert Setting(moves_ratio=0.1, policy="fgd").problems()
    assert Setting(moves_ratio=0.1, batch=8).problems()
    assert not Setting(moves_ratio=0.1).problems()
