"""When new tables are made, and of which mix."""

from __future__ import annotations

import pytest

from binpack.arrivals import arrivals
from binpack.index import Mix, Shape, default_mix
from binpack.index.drift import has_moved
from binpack.index.lessons import Lessons
from binpack.index.mix import shape_of
from binpack.trace import load_nodes, load_pods, traces

WHOLE = Shape(milli_cpu=1000, count=1, milli_gpu=1000)
EIGHT = Shape(milli_cpu=64_000, count=8, milli_gpu=1000)


def test_lessons_come_at_50_100_200_and_so_on() -> None:
    lessons = Lessons()
    marks = [i for i in range(1, 900) if lessons.learn([WHOLE]) is not None]
    assert marks == [50, 100, 200, 400, 800]
    assert Lessons().learn([WHOLE] * 399) == Mix.of({WHOLE: 399})


def test_lessons_stay_small_and_keep_the_frequent_shapes() -> None:
    lessons = Lessons()
    lessons.learn([WHOLE] * 1000)
    mixes = [lessons.learn([Shape(milli_cpu=step * 10_000 + i) for i in range(5000)]) for step in range(9)]
    taught = [mix for mix in mixes if mix is not None]
    assert len(taught) > 1
    for mix in taught:
        assert mix.shapes[0][0] == WHOLE
        assert len(mix.shapes) <= 4096


def test_what_was_seen_fades_by_half_every_6400_pods() -> None:
    lessons = Lessons()
    other, once = Shape(milli_cpu=2000), Shape(milli_cpu=3000)
    lessons.learn([WHOLE] * 12_799)
    shares: list[tuple[int, float, bool]] = []
    for i in range(1, 25_603):
        mix = lessons.learn([once if i == 1 else other])
        if mix is not None:
            found = dict(mix.shapes)
            shares.append((i, found.get(WHOLE, 0) / sum(found.values()), once in found))
    assert [i for i, _, _ in shares] == pytest.approx([1, 6400, 12_800, 19_200, 25_600], abs=4)
    assert [share for _, share, _ in shares] == pytest.approx([1.0, 0.5, 0.25, 0.125, 0.0625], abs=0.001)
    assert [is_known for _, _, is_known in shares] == [True, True, False, False, False]


def sequence(trace: str, seed: int) -> list[Shape]:
    nodes = load_nodes()
    capacity = 1000 * sum(len(node.devices) for node in nodes)
    return [shape_of(pod) for pod in arrivals(load_pods(trace), [n.name for n in nodes], capacity, 1.0, seed).pods]


def of_eight(mix: Mix) -> float:
    return sum(n * shape.total_milli_gpu for shape, n in mix.shapes if shape.count == 8) / mix.total_milli_gpu


@pytest.mark.parametrize("trace", traces())
def test_demand_that_does_not_move_is_never_said_to(trace: str) -> None:
    lessons = Lessons()
    marks = [i for i, shape in enumerate(sequence(trace, 901), start=1) if lessons.learn([shape]) is not None]
    assert marks == [mark for mark in (50, 100, 200, 400, 800, 1600, 3200, 6400, 12_800) if mark <= marks[-1]]


def test_demand_that_moves_is_followed_within_800_pods() -> None:
    before, after = sequence("default", 901), sequence("multigpu50", 902)
    wanted = of_eight(Mix.of({shape: after.count(shape) for shape in set(after)}))
    lessons = Lessons()
    lessons.learn(before[:8000])
    mixes = [(i, mix) for i, shape in enumerate(after[:1700], start=1) if (mix := lessons.learn([shape])) is not None]
    (first, mix), *more = mixes
    assert first == 800
    assert of_eight(mix) > 0.4 * wanted
    assert more
    assert of_eight(more[-1][1]) > 0.6 * wanted


def test_a_past_that_weighs_little_is_not_compared_with() -> None:
    lessons = Lessons()
    assert lessons.learn([WHOLE] * 799) is not None
    marks = [i for i in range(1, 900) if lessons.learn([EIGHT]) is not None]
    assert marks == [1, 801]  # the 800th and the 1,600th pod


def test_demand_has_moved_when_a_fifth_of_it_is_of_other_kinds() -> None:
    half, third = (Shape(milli_cpu=1000, count=1, milli_gpu=milli) for milli in (500, 333))
    assert not has_moved({half: 100}, {third: 7})  # sizes of shares may be stale
    assert not has_moved({WHOLE: 81, EIGHT: 2}, {WHOLE: 1})
    assert has_moved({WHOLE: 60, EIGHT: 2}, {WHOLE: 1})
    chosen = Shape(milli_cpu=1000, count=1, milli_gpu=1000, models=("H100",))
    assert has_moved({WHOLE: 3, chosen: 1}, {WHOLE: 1})
    assert not has_moved({Shape(milli_cpu=1): 9}, {Shape(milli_cpu=2): 9})
    assert has_moved({WHOLE: 1}, {Shape(milli_cpu=2): 9})


def test_the_default_mix_has_moved_from_no_shuffle_of_its_own_trace() -> None:
    shapes = sequence("default", 903)
    latest = {shape: shapes[:800].count(shape) for shape in set(shapes[:800])}
    assert not has_moved(latest, dict(default_mix().shapes))
