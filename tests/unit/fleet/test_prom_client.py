"""Asking Prometheus: order, bounds and one deadline for all, with a client that has no network."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from fleet.errors import ConfigError
from fleet.http import FetchError
from fleet.prom import Prometheus
from fleet.prom_answer import Outcome
from tests.support.fake_prometheus import FakePost, dated_vector, vector

URL = "http://prometheus:9090"


def number(query: str) -> bytes:
    return vector([({}, query)])


async def test_answers_come_in_the_order_of_the_queries_few_at_a_time() -> None:
    post = FakePost(number)
    queries = [str(index) for index in range(40)]
    answers = await Prometheus(URL + "/prefix/", post).instant_many(queries)
    assert [answer.series[0].value for answer in answers] == [float(query) for query in queries]
    assert post.urls == {"http://prometheus:9090/prefix/api/v1/query"}
    assert 1 < post.most_at_once <= 6


async def test_silence_costs_one_time_out_for_all_and_keeps_what_came() -> None:
    post = FakePost(lambda query: None if query.startswith("slow") else number(query))
    began_s = time.perf_counter()
    answers = await Prometheus(URL, post, timeout_s=0.2).instant_many(["1", "2", *(f"slow{n}" for n in range(30))])
    assert time.perf_counter() - began_s < 2.0
    assert [answer.outcome for answer in answers] == [Outcome.ANSWERED] * 2 + [Outcome.TIMED_OUT] * 30
    assert "0.2 s" in answers[-1].text
    assert post.at_once == 0  # nothing is left waiting


async def test_no_query_no_question() -> None:
    post = FakePost(number)
    assert await Prometheus(URL, post).instant_many([]) == ()
    assert post.asked == []


async def test_being_stopped_is_no_time_out() -> None:
    post = FakePost(lambda query: None)
    asking = asyncio.ensure_future(Prometheus(URL, post, timeout_s=60.0).instant("1"))
    while not post.asked:
        await asyncio.wait([asking], timeout=0.01)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert post.cancelled == 1


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("timeout", Outcome.TIMED_OUT),
        ("unreachable", Outcome.UNREACHABLE),
        ("status", Outcome.REFUSED),
        ("redirect", Outcome.REFUSED),
        ("too-large", Outcome.TOO_LARGE),
        ("broken", Outcome.UNREACHABLE),
        ("token", Outcome.UNREACHABLE),
        ("tls", Outcome.UNREACHABLE),
    ],
)
async def test_what_fails_is_a_value_and_costs_only_itself(kind: str, outcome: Outcome) -> None:
    post = FakePost(lambda query: FetchError(kind, "it is so", 422) if query == "bad" else number(query))
    bad, good = await Prometheus(URL, post).instant_many(["bad", "1"])
    assert (bad.outcome, bad.text, bad.series) == (outcome, "it is so", ())
    assert good.is_answered


async def test_the_server_is_told_the_time_out_and_the_look_back() -> None:
    post = FakePost(number)
    await Prometheus(URL, post, timeout_s=1.5, lookback_s=20.0).instant("1")
    await Prometheus(URL, post).instant("2")
    await Prometheus(URL, post).instant_many(["3"], timeout_s=10.0)
    assert post.asked == [
        {"query": "1", "timeout": "1.5s", "lookback_delta": "20s"},
        {"query": "2", "timeout": "2s"},
        {"query": "3", "timeout": "10s"},
    ]


async def test_a_large_answer_is_decoded_like_a_small_one() -> None:
    elements = [({"pod": f"pod-{index}", "filler": "x" * 100}, str(index), 990.0) for index in range(3000)]
    body = dated_vector(elements, at_s=1000.0)
    assert len(body) > 256 * 2**10
    answer = await Prometheus(URL, FakePost(lambda query: body)).instant("1", is_dated=True)
    assert [series.value for series in answer.series] == [float(index) for index in range(3000)]
    assert {series.age_s for series in answer.series} == {10.0}


@pytest.mark.parametrize("url", ["", "prometheus:9090", "file:///etc/passwd", "unix:/run/x"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="Prometheus address"):
        Prometheus(url, FakePost(number))


async def test_a_token_file_that_is_missing_is_the_clients_to_tell(tmp_path: Path) -> None:
    Prometheus(URL, FakePost(number), token_file=str(tmp_path / "none"))  # it may be mounted later
