"""Draws of the time before a pool: what a range query gives becomes minutes, and the rule has learnt from them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from fleet.http import FetchError
from fleet.prom import Prometheus
from fleet.prom_answer import Outcome, decode_past
from tests.support.clock import ManualClock
from tests.support.fake_prometheus import FakePost
from tests.support.sizing import DAY_MIN, MINUTE, a_spec
from warmpool.controller.past import PastDraws
from warmpool.past import CHUNK_MIN, DAYS, chunks, draws_of
from warmpool.size.decide import Reason
from warmpool.size.rule import Learnt


def matrix(*lines: list[tuple[float, str]]) -> bytes:
    result = [{"metric": {"n": str(place)}, "values": line} for place, line in enumerate(lines)]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def test_an_answer_gives_its_finite_values_and_says_what_else_it_is():
    past = decode_past(matrix([(60, "1"), (120, "NaN"), (180, "2.5")], []))
    assert past.lines == (((60.0, 1.0), (180.0, 2.5)), ())
    vector = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
    refused = b'{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points"}'
    assert decode_past(vector).outcome is Outcome.UNREADABLE
    assert decode_past(b"no").outcome is Outcome.UNREADABLE
    assert (decode_past(refused).outcome, "11,000" in decode_past(refused).text) == (Outcome.REFUSED, True)


def test_four_weeks_are_asked_in_parts_a_server_answers_and_without_a_gap_between_them():
    found = chunks(60.0 * MINUTE + 59.0)
    assert sum(count for _, count in found) == DAYS * DAY_MIN
    assert all(count <= CHUNK_MIN < 11_000 for _, count in found)
    assert all(start + count == after for (start, count), (after, _) in itertools.pairwise(found))
    assert found[-1][0] + found[-1][1] == MINUTE, "the minute that goes on is not over"


def test_fractions_are_carried_on_and_gaps_stay_gaps():
    # Prometheus extrapolates: three draws seen as 1.33, 0.66 and 1.01.
    line = [(60.0 * (MINUTE + place + 1), value) for place, value in ((2, 1.33), (3, 0.66), (5, 1.01), (6, -4.0))]
    found = draws_of([line], MINUTE, 8)
    assert found is not None
    assert found.minute == MINUTE + 2
    assert found.by_minute == (1, 0, None, 2, None, None)
    assert (found.total, found.known_min) == (3, 3)


def test_lines_are_added_up_and_no_value_at_all_is_no_past():
    two = [[(60.0 * (MINUTE + 1), 1.0)], [(60.0 * (MINUTE + 1), 2.0)]]
    found = draws_of(two, MINUTE, 1)
    assert found is not None
    assert found.by_minute == (3,)
    assert draws_of([[]], MINUTE, 10) is None
    assert draws_of([[(60.0 * (MINUTE - 5), 1.0)]], MINUTE, 10) is None


def a_past(days: float, per_hour: float, seed: int = 1) -> list[int | None]:
    return [int(one) for one in np.random.default_rng(seed).poisson(per_hour / 60.0, round(days * DAY_MIN))]


def test_a_rule_that_was_told_a_past_begins_where_another_would_be_after_living_it():
    told = Learnt(a_spec())
    told.recall(MINUTE, a_past(3, 30.0))
    size = told.size(60.0 * (MINUTE + 3 * DAY_MIN), 0)
    assert size.is_informed
    assert size.reason != Reason.FIRST_DAY
    assert 6 <= size.target <= 12  # 30 an hour within 511 s want 9 at 95 %
    fresh = Learnt(a_spec())
    fresh.pass_to(60.0 * (MINUTE + 3 * DAY_MIN), 0, is_known=True)
    assert fresh.size(60.0 * (MINUTE + 3 * DAY_MIN), 0).reason == Reason.FIRST_DAY


def test_whether_past_draws_found_a_node_is_not_claimed():
    """Hits that nobody saw would pay into the account by which the size corrects itself."""
    told, lived = Learnt(a_spec()), Learnt(a_spec())
    told.recall(MINUTE, a_past(2, 30.0))
    lived.pass_to(60.0 * MINUTE, None, is_known=True)
    for place, count in enumerate(a_past(2, 30.0)):
        lived.drew(60.0 * (MINUTE + place) + 30.0, count or 0, 0)  # all hits
        lived.pass_to(60.0 * (MINUTE + place + 1), None, is_known=True)
    end_s = 60.0 * (MINUTE + 2 * DAY_MIN)
    assert told.size(end_s, 0).target > lived.size(end_s, 0).target


def test_a_rule_that_has_seen_draws_is_not_told_another_past():
    rule = Learnt(a_spec())
    rule.pass_to(60.0 * MINUTE, None, is_known=True)
    rule.size(60.0 * MINUTE, 0)
    with pytest.raises(ValueError, match="earlier past"):
        rule.recall(MINUTE - 10, [1])


def test_what_is_stored_after_a_told_past_is_read_again():
    told = Learnt(a_spec())
    told.recall(MINUTE, a_past(2, 30.0))
    end_s = 60.0 * (MINUTE + 2 * DAY_MIN)
    again = Learnt(a_spec(), told.stored())
    assert again.size(end_s, 0).target == told.size(end_s, 0).target


def asked(answer: Any) -> tuple[PastDraws, FakePost, ManualClock]:
    clock = ManualClock(epoch_s=60.0 * MINUTE)
    post = FakePost(answer)
    return PastDraws(Prometheus("http://prometheus:9090", post), clock), post, clock


async def test_prometheus_is_asked_for_whole_minutes_and_answers_become_draws():
    past, post, _ = asked(lambda _: matrix([(60.0 * MINUTE - 600.0, "2")]))
    found = await past.ask("sum(increase(draws[1m]))")
    assert not isinstance(found, str)
    assert found.minute == MINUTE - 11
    assert found.by_minute[0] == 2 * 4  # the fake says the same four times
    assert post.urls == {"http://prometheus:9090/api/v1/query_range"}
    assert [float(form["start"]) % 60 for form in post.asked] == [0.0] * 4
    assert float(post.asked[-1]["end"]) == 60.0 * MINUTE
    assert {form["step"] for form in post.asked} == {"60"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (FetchError("timeout", "not answered within 20 s"), "timed_out"),
        (b'{"status":"error","errorType":"bad_data","error":"parse error"}', "parse error"),
        (matrix(), "no value"),
    ],
)
async def test_a_past_that_cannot_be_had_says_why(answer: Any, said: str):
    past, _, _ = asked(lambda _: answer)
    found = await past.ask("x")
    assert isinstance(found, str)
    assert said in found
