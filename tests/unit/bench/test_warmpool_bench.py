"""The warm pool's bench: demand, rivals and verdicts against what can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bench.warmpool.cells import plan
from bench.warmpool.columns import Columns, columns, hit_at, idle_at
from bench.warmpool.demand import DAY_MIN, MADE_UP, TRACES, Demand, demand, title
from bench.warmpool.leads import Leads
from bench.warmpool.ours import run
from bench.warmpool.rivals import KNOBS, forecast_poisson, poisson, schedule
from bench.warmpool.targets import Verdict, verdicts


def quiet(minutes: int, **draws: int) -> Demand:
    """Return a demand with so many draws at minute mN."""
    counts = {int(name[1:]): count for name, count in draws.items()}
    draws_s = tuple((60.0 * minute,) * counts.get(minute, 0) for minute in range(minutes))
    return Demand(draws_s=draws_s, freed=np.zeros(minutes), in_use=None)


def test_the_flash_weeks_draw_what_they_did():
    flash = demand("worldcup-flash", 1)
    counts = np.array([len(draws or ()) for draws in flash.draws_s])
    assert flash.minutes == 21 * DAY_MIN
    assert counts[2 * DAY_MIN :].sum() == 745
    assert max(counts[minute : minute + 10].sum() for minute in range(len(counts))) > 50


def test_gaps_of_a_trace_are_not_known_and_draw_nothing():
    servegen = demand("servegen-mid", 1)
    gaps = [minute for minute, draws in enumerate(servegen.draws_s) if draws is None]
    assert len(gaps) == 840
    after = next(minute for minute in gaps if minute + 1 not in gaps) + 1
    assert servegen.draws_s[after] == ()


@pytest.mark.parametrize("name", ["poisson-30", "batch8-120"])
def test_made_up_demand_has_its_rate(name):
    work = demand(name, 2)
    draws = sum(len(draws or ()) for draws in work.draws_s)
    hours = work.minutes / 60.0
    assert draws / hours == pytest.approx(float(name.split("-")[1]), rel=0.1)
    assert demand(name, 2).draws_s == work.draws_s
    assert demand(name, 3).draws_s != work.draws_s


def test_leads_have_their_mean_and_repeat():
    leads = Leads(511.0, 1, 2)
    drawn = [leads.next() for _ in range(20_000)]
    assert np.mean(drawn) == pytest.approx(511.0, rel=0.01)
    assert np.std(drawn) / np.mean(drawn) == pytest.approx(0.3, abs=0.01)
    assert {one % 15.0 for one in drawn} == {0.0}
    again = Leads(511.0, 1, 2)
    assert [again.next() for _ in range(100)] == drawn[:100]


def test_columns_count_as_by_hand():
    found = columns(quiet(3 * DAY_MIN, m3000=2, m3002=1), np.arange(4.0), 511.0, 1)
    assert found.hit_ratio.tolist() == pytest.approx([0.0, 1 / 3, 2 / 3, 1.0])
    assert found.idle_h[0] == 0.0
    assert found.hourly_missed.sum(axis=0).tolist() == [3.0, 2.0, 1.0, 0.0]
    # Every node is warm for a day but for the lead times of the nodes that were drawn.
    on_order_h = np.arange(4) * 24.0 - found.idle_h
    assert (on_order_h[1:] > 0.0).all()
    assert (on_order_h < 3 * 2 * 511.0 / 3600.0).all()


def test_targets_that_move_order_and_give_back():
    work = quiet(3 * DAY_MIN, m3100=3)
    targets = np.zeros((work.minutes, 2))
    targets[3000:3200, 0] = 3.0  # up in time, away again
    targets[3099:3200, 1] = 3.0  # one minute before: too late
    found = columns(work, targets, 511.0, 1)
    assert found.hit_ratio.tolist() == [1.0, 0.0]
    assert 0.0 < found.idle_h[0] < 3 * 200 / 60.0


def a_frontier() -> Columns:
    nothing = np.zeros((1, 3))
    return Columns(
        hit_ratio=np.array([0.5, 0.9, 0.8]),
        idle_h=np.array([10.0, 30.0, 40.0]),
        hourly_missed=nothing,
        hourly_idle_h=nothing,
        hourly_draws=np.zeros(1),
    )


def test_the_frontier_is_read_between_its_points():
    found = a_frontier()
    assert idle_at(found, 0.4) == 10.0
    assert idle_at(found, 0.7) == pytest.approx(20.0)
    assert idle_at(found, 0.95) is None
    assert hit_at(found, 20.0) == pytest.approx(0.7)
    assert hit_at(found, 99.0) == pytest.approx(0.9)


def test_a_schedule_never_sees_the_week_it_is_judged_by():
    hours = 3 * 168
    missed, idle_h = np.zeros((hours, 2)), np.tile([0.0, 1.0], (hours, 1))
    missed[5] = [9.0, 0.0]  # one bad hour in the first week
    fixed = Columns(
        hit_ratio=np.zeros(2),
        idle_h=np.zeros(2),
        hourly_missed=missed,
        hourly_idle_h=idle_h,
        hourly_draws=np.zeros(hours),
    )
    wanted = schedule(fixed, hours * 60)
    assert wanted is not None
    assert wanted[5 * 60].max() == 0.0
    assert wanted[(168 + 5) * 60].max() == 1.0
    assert schedule(
        Columns(
            hit_ratio=np.zeros(2), idle_h=np.zeros(2), hourly_missed=missed[:200], hourly_idle_h=idle_h[:200],
            hourly_draws=np.zeros(200),
        ),
        200 * 60,
    ) is None  # fmt: skip


def test_poisson_rivals_hold_and_rise_with_the_goal():
    held = forecast_poisson(np.array([0.1] * 50 + [8.0] + [0.1] * 50), 10)
    assert held.shape == (101, len(KNOBS))
    assert (np.diff(held, axis=1) >= 0).all()
    assert (held[50:61] == held[50]).all()
    assert (held[61] < held[60]).any()
    simple = poisson(quiet(2 * DAY_MIN, m5=9), 511.0, (0.95, 0.99))
    assert (simple[:, 1] >= simple[:, 0]).all()


def test_our_rule_repeats():
    work = demand("poisson-30", 1)
    short = Demand(draws_s=work.draws_s[: 3 * DAY_MIN], freed=work.freed[: 3 * DAY_MIN], in_use=None)
    first, second = (run(short, 511.0, 1, (0.95,)) for _ in range(2))
    assert first[0][0].hit_ratio == second[0][0].hit_ratio
    assert (first[1] == second[1]).all()
    assert 0.85 < first[0][0].hit_ratio <= 1.0


def test_every_demand_is_planned_with_three_seeds():
    planned = plan()
    for name in (*TRACES, *MADE_UP):
        assert sum(cell.name == name and cell.lead_s == 511.0 for cell in planned) == 3
        assert title(name)
    assert len({cell.key for cell in planned}) == len(planned)


def a_cell(**words) -> dict:
    goal = {
        "hit_ratio": 0.95, "idle_h": 1.0, "is_enough": True, "over_static": 1.0, "over_forecast_poisson": 1.0,
        "static_hit_at_equal_idle": 0.95,
    } | words  # fmt: skip
    return {
        "name": "poisson-30",
        "lead_s": 511.0,
        "seed": 1,
        "goals": {"0.95": goal, "0.99": goal | {"hit_ratio": 0.99}},
    }


def judged(**words) -> dict[str, str]:
    found: list[Verdict] = verdicts({"a": a_cell(**words)}, [], {})
    return {one.target: one.word for one in found if "goal 0.95" in one.what}


def test_verdicts_tell_reached_missed_and_too_short_apart():
    assert set(judged().values()) == {"reached"}
    assert judged(hit_ratio=0.93)["hit rate within 1 point"] == "missed"
    assert judged(hit_ratio=0.93, is_enough=False)["hit rate within 1 point"] == "too short"
    assert judged(over_static=1.2)["idle / best static N <= 1.05"] == "missed"
    bar = "idle / forecast + Poisson quantile, knob in hindsight <= 1.05"
    assert judged(over_forecast_poisson=1.2)[bar] == "missed"
    assert judged(over_forecast_poisson=None)[bar] == "reached"
