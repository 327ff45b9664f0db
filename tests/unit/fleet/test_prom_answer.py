"""Whatever a body holds, decoding ends in an answer that says what was used and what was not."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.prom_answer import Outcome, Series, dated, decode
from tests.support.fake_prometheus import dated_vector, vector

X = {"pod": "x"}


@pytest.mark.parametrize(
    ("value", "usable"),
    [
        ("1", 1.0),
        ("0", 0.0),
        ("-0", 0.0),
        ("-3.5", -3.5),
        ("1e300", 1e300),
        ("NaN", None),
        ("nan", None),
        ("+Inf", None),
        ("-Inf", None),
        ("1e999", None),
        ("", None),
        ("twelve", None),
        ("0x10", None),
    ],
)
def test_a_value_is_finite_or_rejected(value: str, usable: float | None) -> None:
    answer = decode(vector([(X, value), ({"pod": "y"}, "7")]))
    assert answer.outcome is Outcome.ANSWERED
    good = () if usable is None else (Series(labels=X, value=usable),)
    assert answer.series == (*good, Series(labels={"pod": "y"}, value=7.0))
    assert answer.rejected == (usable is None)


@pytest.mark.parametrize(
    ("body", "outcome", "said"),
    [
        (b"", Outcome.UNREADABLE, "not an answer"),
        (b"<html>502 Bad Gateway</html>", Outcome.UNREADABLE, "not an answer"),
        (b"[]", Outcome.UNREADABLE, "not an answer"),
        (b"null", Outcome.UNREADABLE, "not an answer"),
        (b'{"status":"success"}', Outcome.UNREADABLE, "without data"),
        (b'{"status":"success","data":{"resultType":"vector"}}', Outcome.UNREADABLE, "not an answer"),
        (b'{"status":"success","data":{"resultType":"vector","result":{}}}', Outcome.UNREADABLE, "vector"),
        (b'{"status":"success","data":{"resultType":"vector","result":null}}', Outcome.UNREADABLE, "vector"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', Outcome.UNREADABLE, "matrix"),
        (b'{"status":"success","data":{"resultType":"string","result":[1,"x"]}}', Outcome.UNREADABLE, "string"),
        (b'{"status":"success","data":{"resultType":"scalar","result":[1]}}', Outcome.UNREADABLE, "scalar"),
        (b'{"status":"error","errorType":"timeout","error":"query timed out"}', Outcome.REFUSED, "query timed out"),
        (b'{"status":"odd"}', Outcome.REFUSED, "odd"),
        (b"\xff\xfe", Outcome.UNREADABLE, "not an answer"),
        (b"[" * 100_000, Outcome.UNREADABLE, "not an answer"),
        (vector([(X, "1")])[:-20], Outcome.UNREADABLE, "not an answer"),
    ],
)
def test_no_answer_is_told_from_an_empty_one(body: bytes, outcome: Outcome, said: str) -> None:
    answer = decode(body)
    assert (answer.outcome, answer.series) == (outcome, ())
    assert said in answer.text
    assert not answer.is_answered


def test_an_empty_vector_is_an_answer() -> None:
    answer = decode(vector([]))
    assert (answer.outcome, answer.series, answer.rejected, answer.text) == (Outcome.ANSWERED, (), 0, "")
    assert answer.is_answered


def test_a_scalar_is_one_series_without_labels() -> None:
    assert decode(b'{"status":"success","data":{"resultType":"scalar","result":[1,"4"]}}').series == (
        Series(labels={}, value=4.0),
    )


@pytest.mark.parametrize(
    "element",
    [
        3,
        None,
        {},
        {"metric": {"a": 1}, "value": [1, "2"]},
        {"metric": {}, "value": [1]},
        {"metric": {}, "value": ["now", "2"]},
        {"metric": {}, "value": [1, 2]},
        {"metric": {}, "histogram": [1, {"count": "2"}]},
        {"metric": None, "value": [1, "2"]},
    ],
)
def test_a_malformed_element_costs_only_itself(element: Any) -> None:
    body = json.dumps(
        {
            "status": "success",
            "data": {"resultType": "vector", "result": [element, {"metric": X, "value": [1, "2"]}]},
        }
    ).encode()
    answer = decode(body)
    assert answer.series == (Series(labels=X, value=2.0),)
    assert answer.rejected == 1


def test_warnings_are_kept_beside_the_data_and_bounded() -> None:
    answer = decode(vector([(X, "1")], warnings=["partial", {"odd": 1}, "x" * 10_000]))
    assert answer.is_answered
    assert answer.warnings[:2] == ("partial", "{'odd': 1}")
    assert len(answer.warnings[2]) <= 300
    assert len(decode(b'{"status":"error","error":"' + b"y" * 10_000 + b'"}').text) <= 300


def test_a_dated_answer_pairs_values_with_stamps_on_the_servers_clock() -> None:
    body = dated_vector([(X, "5", 990.0), ({"pod": "ended"}, "6", None), ({"pod": "future"}, "7", 1003.0)], at_s=1000.0)
    answer = decode(body, is_dated=True)
    assert answer.series == (
        Series(labels=X, value=5.0, age_s=10.0, stamp_s=990.0),
        Series(labels={"pod": "future"}, value=7.0, age_s=0.0, stamp_s=1003.0),
    )
    assert answer.rejected == 1


def test_a_dated_value_that_is_not_a_number_is_rejected_and_its_stamp_ignored() -> None:
    answer = decode(dated_vector([(X, "NaN", 990.0)], at_s=1000.0), is_dated=True)
    assert (answer.series, answer.rejected) == ((), 1)


def test_a_dated_query_names_both_halves() -> None:
    assert dated("v", "timestamp(s)") == (
        'label_replace(v, "berthmaster_part", "value", "", "") or '
        'label_replace(timestamp(s), "berthmaster_part", "stamp", "", "")'
    )


@given(st.binary(max_size=200), st.booleans())
def test_bytes_never_raise(body: bytes, is_dated: bool) -> None:
    answer = decode(body, is_dated=is_dated)
    assert answer.is_answered or answer.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
ELEMENTS = st.lists(
    st.fixed_dictionaries({}, optional={"metric": JSON, "value": JSON, "histogram": JSON})
    | st.fixed_dictionaries(
        {
            "metric": st.dictionaries(st.sampled_from(["pod", "berthmaster_part"]), st.text(max_size=5), max_size=2),
            "value": st.tuples(st.floats(0, 2e9), st.floats().map(str) | st.text(max_size=5)),
        }
    ),
    max_size=6,
)


@given(ELEMENTS, st.booleans())
def test_every_element_is_used_or_counted(elements: list[Any], is_dated: bool) -> None:
    """1. Nothing raises. 2. Values are finite. 3. Undated: used + rejected = given. 4. Ages are at least 0."""
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": elements}}).encode()
    answer = decode(body, is_dated=is_dated)
    if not answer.is_answered:  # Python writes NaN into JSON, which is none
        assert b"NaN" in body or b"Infinity" in body
        return
    assert all(math.isfinite(series.value) for series in answer.series)
    if is_dated:
        assert all(series.age_s is not None and series.age_s >= 0 for series in answer.series)
        assert len(answer.series) + answer.rejected <= len(elements)
    else:
        assert len(answer.series) + answer.rejected == len(elements)
