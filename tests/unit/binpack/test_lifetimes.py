"""Clusters that pods leave: the books hold, nobody waits who fits, and every integral is what a plain replay gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from berthmaster.commands.simulate import command
from binpack.index import Index
from binpack.lifetimes import LIFETIME_POLICIES, LifeSetting, Lived, simulate_lifetimes
from binpack.lifetimes.drawing import cut, drawn, mix_by_load, rate_per_s
from binpack.lifetimes.meter import Meter
from binpack.lifetimes.moving import Moving
from binpack.lifetimes.queue import Queue, Waiting, shape_of
from binpack.tally import Tally
from binpack.trace import load_lives, load_nodes, load_pods
from fleet.errors import ConfigError, DecodeError
from fleet.pod import Berth
from tests.support.berths import chosen, pod, seat, share

HOUR_S = 3600.0
NODES = load_nodes()[::60]
LIVES = load_lives()
LIVED = [Lived(pod=one, life_s=LIVES[one.name]) for one in load_pods()[::8]]


@pytest.mark.parametrize("policy", LIFETIME_POLICIES)
def test_every_policy_keeps_the_books_and_lets_nobody_wait_who_fits(policy: str) -> None:
    setting = LifeSetting(policy=policy, load_ratio=1.2, days=0.2, warm_up_days=0.3, seed=4)
    result = simulate_lifetimes(NODES, LIVED, setting)
    assert result.faults == ()
    assert result.arrived > 300
    assert 0 < result.unallocated_gpu_ratio < 1
    assert 0 <= result.wanted_gpu_hours <= result.stranded_gpu_hours
    assert result.stranded_gpu_hours <= result.unallocated_gpu_ratio * result.gpus * 0.2 * 24 + 1e-6
    assert result.total_pending_gpu_hours > 0
    assert sum(result.waiting_at_end.values()) > 0


def test_moves_keep_the_books_and_their_budget_and_ours_alone_may_make_them() -> None:
    setting = LifeSetting(load_ratio=1.0, days=0.2, warm_up_days=0.2, seed=4, moves_ratio=0.03)
    result = simulate_lifetimes(NODES, LIVED, setting)
    assert result.faults == ()
    assert result.moves > 0
    plain = simulate_lifetimes(NODES, LIVED, replace(setting, moves_ratio=0.0))
    assert plain.moves == 0
    assert (plain.arrived, plain.offered_ratio) == (result.arrived, result.offered_ratio)
    assert replace(setting, policy="fgd").problems() == ["only berthmaster moves pods"]
    assert replace(setting, moves_ratio=-1).problems() == ["moves is -1, wanted 0 to 1"]


def test_no_more_is_moved_within_an_hour_than_the_part_of_the_pods_in_place() -> None:
    """Each of two nodes with a half-used device gives way to a pod of two, if one pod of three may be moved."""
    index = Index([seat(name, (1000, 1000)) for name in "abc"])
    moving, small = Moving(index, 0.34), [pod(f"s{n}", ask=share(400)) for n in range(3)]
    for one, name in zip(small, "abc", strict=True):
        berth = Berth(node=name, devices=("0",))
        index.take(one, berth)
        moving.took(one, berth)
    assert moving.make_room(pod("big", ask=chosen(2)), 0.0) is not None
    assert moving.moves == 1
    assert moving.make_room(pod("big2", ask=chosen(2)), 3599.0) is None, "one in an hour"
    assert moving.make_room(pod("big2", ask=chosen(2)), 3600.0) is not None
    assert moving.moves == 2


def test_waiting_kinds_are_looked_at_every_half_hour_largest_first() -> None:
    moving = Moving(Index([]), 0.1)
    assert [moving.is_time(at_s) for at_s in (0.0, 1799.0, 1800.0, 1801.0)] == [True, False, True, False]
    kinds = [(pod(f"p{n}", ask=chosen(n)), 1) for n in (2, 8, 1, 4, 3)]
    looked_at = moving.looked_at([*kinds, (pod("cpu"), 1)])
    assert [one.name for one in looked_at] == ["p8", "p4"]


def test_every_policy_meets_the_same_arrivals_and_a_run_repeats() -> None:
    setting = LifeSetting(load_ratio=0.9, days=0.1, warm_up_days=0.1, seed=5)
    first, again = (simulate_lifetimes(NODES, LIVED, setting) for _ in range(2))
    assert first.pending_gpu_hours == again.pending_gpu_hours
    other = simulate_lifetimes(
        NODES, LIVED, LifeSetting(policy="fgd", load_ratio=0.9, days=0.1, warm_up_days=0.1, seed=5)
    )
    assert (other.arrived, other.offered_ratio) == (first.arrived, first.offered_ratio)


def test_the_offered_load_is_the_load_asked_for() -> None:
    lived = cut([Lived(pod=pod(f"p{i}", ask=share(500)), life_s=600.0 + i) for i in range(50)])
    rate = rate_per_s(lived, 40, 0.8)
    offered = sum(500 * arrival.life_s for arrival in drawn(lived, rate, 1e6, 1))
    assert offered / (40_000 * 1e6) == pytest.approx(0.8, rel=0.03)


def test_lives_are_cut_at_the_99th_percentile_and_last_a_second_at_least() -> None:
    lived = cut([Lived(pod=pod(f"p{i:03}", ask=chosen()), life_s=float(i)) for i in range(101)])
    assert [one.life_s for one in lived] == [1.0, *map(float, range(1, 100)), 99.0]


def test_the_mix_by_load_counts_each_shape_as_often_as_it_lives_long() -> None:
    lived = [Lived(pod=pod("a", ask=chosen()), life_s=30.0), Lived(pod=pod("b", ask=share(300)), life_s=90.0)]
    assert [(shape.milli_gpu, n) for shape, n in mix_by_load(lived).shapes] == [(300, 90), (1000, 30)]


def test_one_gpu_one_pod_at_a_time_is_a_plain_queue() -> None:
    """All pods want the one device for 100 s: waiting times are those of a single server, first come first served."""
    lived = [Lived(pod=pod("p", ask=chosen()), life_s=100.0)]
    nodes = [seat("n", (1000,)).node]
    setting = LifeSetting(load_ratio=0.7, days=0.5, warm_up_days=0.0, seed=2, policy="first-fit")
    result = simulate_lifetimes(nodes, lived, setting)
    until_s, ends_s, waited_s, busy_s = 0.5 * 86_400, 0.0, 0.0, 0.0
    for arrival in drawn(cut(lived), rate_per_s(lived, 1, 0.7), until_s, 2):
        starts_s = max(arrival.at_s, ends_s)
        ends_s = starts_s + 100.0
        waited_s += min(starts_s, until_s) - arrival.at_s
        busy_s += max(0.0, min(ends_s, until_s) - starts_s)
    assert result.pending_gpu_hours == {"1gpu": pytest.approx(waited_s / HOUR_S)}
    assert result.unallocated_gpu_ratio == pytest.approx(1 - busy_s / until_s)
    assert result.stranded_gpu_hours == pytest.approx(0.0)


def a_queue(nodes: Sequence[str], *, is_in_turn: bool = False) -> Queue:
    shapes = [shape_of(pod("x", ask=ask)) for ask in (chosen(), chosen(2), share(400), chosen(models=("T4",)), None)]
    return Queue([seat(name, (1000, 1000), cpu=4).node for name in nodes], shapes, is_in_turn=is_in_turn)


def test_who_has_waited_longest_of_those_that_fit_is_first() -> None:
    queue = a_queue(["n"])
    held = pod("held", ask=share(400))
    queue.take(held, Berth(node="n", devices=("0",)))
    for number, ask in enumerate((chosen(2), chosen(models=("T4",)), chosen(), share(400))):
        queue.add(Waiting(number, 0.0, pod(f"w{number}", ask=ask), 1.0))
    first = queue.pop_fitting("n", 0.0)
    assert first is not None
    assert first.pod.name == "w2", "two devices are not free, and no T4 is there"
    queue.take(first.pod, Berth(node="n", devices=("1",)))
    second = queue.pop_fitting("n", 0.0)
    assert second is not None
    assert second.pod.name == "w3"
    assert queue.pop_fitting("n", 0.0) is None
    assert len(queue) == 2
    queue.give_back(held, Berth(node="n", devices=("0",)))
    queue.give_back(first.pod, Berth(node="n", devices=("1",)))
    third = queue.pop_fitting("n", 0.0)
    assert third is not None
    assert third.pod.name == "w0"
    assert queue.is_waiting(pod("y", ask=chosen(models=("T4",))))
    assert not queue.is_waiting(pod("y", ask=chosen()))


def test_the_big_go_first_as_with_the_planner_until_a_small_one_has_waited_much_longer() -> None:
    for hours, expected in ((19.0, "pair"), (21.0, "share")):
        queue = a_queue(["n"], is_in_turn=True)
        queue.add(Waiting(0, 0.0, pod("share", ask=share(400)), 1.0))
        queue.add(Waiting(1, HOUR_S * (hours - 1), pod("pair", ask=chosen(2)), 1.0))
        first = queue.pop_fitting("n", HOUR_S * hours)
        assert first is not None
        assert first.pod.name == expected, "with a core each, 4.46 times the demand: 19.9 times as long"


def test_ours_takes_pods_in_turn_and_published_policies_by_arrival() -> None:
    assert LifeSetting().is_in_turn
    assert not LifeSetting(policy="fgd").is_in_turn
    assert not LifeSetting(order="arrival").is_in_turn
    assert LifeSetting(policy="fgd", order="in turn").is_in_turn
    assert LifeSetting(order="best").problems() == ["order 'best' is none of own, arrival, in turn"]


def test_the_meter_counts_only_what_comes_after_the_warm_up() -> None:
    meter = Meter(2000, from_s=HOUR_S)
    one, part = pod("a", ask=chosen()), pod("b", ask=share(500))
    meter.pass_to(1800.0)
    meter.allocate(one, 1)
    meter.wait(part, 1)
    meter.pass_to(2 * HOUR_S)
    meter.wait(part, -1)
    meter.allocate(part, 1)
    meter.pass_to(3 * HOUR_S)
    assert meter.pending() == ({"f400-599": 0.5}, {"f400-599": 1.0})
    assert (meter.stranded_gpu_hours, meter.wanted_gpu_hours) == (1.0, 0.5)
    assert meter.unallocated_ratio == pytest.approx(0.375)


def test_the_tally_takes_back_what_it_gave_and_no_more() -> None:
    tally = Tally([seat("n", (1000,)).node])
    one = pod("a", ask=share(600))
    tally.book(one, Berth(node="n", devices=("0",)))
    tally.unbook(one, Berth(node="n", devices=("0",)))
    assert (tally.allocated_milli_gpu, tally.faults) == (0, [])
    tally.unbook(one, Berth(node="n", devices=("0",)))
    assert "got more back" in tally.faults[0]


def test_wrong_settings_and_traces_without_times_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"clustering.*lifetimes is 0.*days is -1.*warm-up.*no GPU.*no GPU time"
    ) as error:
        simulate_lifetimes([], [], LifeSetting(policy="clustering", load_ratio=0, days=-1, warm_up_days=-1))
    assert "mix" not in str(error.value)
    with pytest.raises(DecodeError, match="no column creation_time"):
        load_lives("cpu250")
    path = tmp_path / "pods.csv"
    path.write_text("name,creation_time,deletion_time\na,5,4\n")
    with pytest.raises(DecodeError, match="line 2: deletion_time is before creation_time"):
        load_lives(path)


def test_the_command_writes_and_prints_a_run_with_lifetimes(tmp_path: Path) -> None:
    nodes, pods, out = (tmp_path / name for name in ("nodes.csv", "pods.csv", "out.json"))
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,16000,65536,2,T4\n")
    rows = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time"]
    rows += [f"p{i},2000,1024,1,{[1000, 470][i % 2]},,0,{100 * (i + 1)}" for i in range(6)]
    pods.write_text("\n".join(rows) + "\n")
    files = ["--nodes", str(nodes), "--pods", str(pods)]
    run = CliRunner().invoke(command, [*files, "--lifetimes", "1.5", "--days", "0.5", "--json", str(out)])
    assert run.exit_code == 0, run.output
    assert "nobody waits who fits" in run.output
    report = json.loads(out.read_text())
    assert report["load_ratio"] == 1.5
    assert report["pending_gpu_hours_total"] == pytest.approx(sum(report["pending_gpu_hours"].values()), abs=0.11)
    assert (report["gpus"], report["faults"]) == (2, [])
    for wrong in (["--lifetimes", "1", "--bound"], ["--lifetimes", "1", "--batch", "9"], ["--days", "3"]):
        refused = CliRunner().invoke(command, [*files, *wrong])
        assert refused.exit_code == 2
        assert "with --lifetimes" in refused.output
