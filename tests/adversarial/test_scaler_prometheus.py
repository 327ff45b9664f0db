"""A Prometheus that lies, and people whose queries are slow or enormous: each costs only its own readings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import ConfigError
from fleet.http import FetchError, Http
from fleet.prom import Prometheus
from fleet.prom_answer import decode
from scaler.config import parsed
from scaler.signals.metrics_endpoint import EndpointQueries, EndpointSource
from tests.support.clock import ManualClock
from tests.support.fake_prometheus import FakePost, vector

URL = "http://prometheus:9090"


async def test_one_persons_slow_queries_cost_nobody_elses() -> None:
    """Six are asked at once, and none of them is answered: yet the others' must have their turn, poll after poll."""
    post = FakePost(lambda query: None if query.startswith("slow") else vector([({}, "7")]))
    clock = ManualClock()
    source = EndpointSource(Prometheus(URL, post, timeout_s=0.25), clock)
    for number in range(200):
        source.watch(f"evil/{number}", EndpointQueries(in_flight=f"slow{number}"))
    source.watch("shop/a", EndpointQueries(in_flight="mine"))
    known = []
    for turn in range(40):
        await source.poll()
        known.append(source.sample("shop/a", clock.monotonic_s()).in_flight)
        source.watch(f"evil/new-{turn}", EndpointQueries(in_flight=f"slow-new-{turn}"))
        await clock.advance(5.0)
    first = known.index(7.0)
    assert first < 36
    assert known[first:] == [7.0] * (40 - first), "once it was answered it is never behind the slow ones"


async def test_a_query_of_everything_is_refused_before_it_is_held() -> None:
    """Six answers of 32 MB, read into ten times as much, are more than the scaler may use."""
    asked: list[int] = []

    class Post(FakePost):
        async def post_form(self, url: str, form: dict[str, str], *, largest_bytes: int, **more: Any) -> bytes:
            asked.append(largest_bytes)
            raise FetchError("too-large", f"the answer is larger than {largest_bytes} bytes")

    source = EndpointSource(Prometheus(URL, Post(lambda _: b"")), ManualClock())
    source.watch("n/a", EndpointQueries(in_flight='{__name__=~".+"}'))
    await source.poll()
    assert max(asked) <= 2**17
    assert "larger" in source.problems("n/a")["in_flight"]
    assert source.sample("n/a", 1000.0).in_flight is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e400", "9" * 5000, "", "x", "0x10"])
async def test_a_value_that_cannot_be_a_load_is_missing_and_says_why(value: str) -> None:
    source = EndpointSource(Prometheus(URL, FakePost(lambda _: vector([({}, value)]))), ManualClock())
    source.watch("n/a", EndpointQueries(in_flight="q"))
    await source.poll()
    assert source.sample("n/a", 1000.0).in_flight is None
    assert source.problems("n/a")["in_flight"]
    assert len(source.problems("n/a")["in_flight"]) < 400


def test_warnings_without_end_are_not_all_kept() -> None:
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}, "warnings": ["w"] * 10**5})
    assert len(decode(body.encode()).warnings) <= 20


PIECES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.integers(-5, 2**70),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["status", "data", "result", "resultType", "metric", "value", "error", "warnings"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(PIECES, st.booleans(), st.sampled_from(["vector", "scalar", "matrix", "string", ""]))
def test_any_answer_is_read_or_refused(value: object, is_dated: bool, kind: str) -> None:
    for told in (value, {"status": "success", "data": {"resultType": kind, "result": value}}):
        answer = decode(json.dumps(told).encode(), is_dated=is_dated)
        assert answer.is_answered or not answer.series


async def test_a_password_in_an_address_is_refused_and_never_told() -> None:
    secret = "hunter2"
    for url in (f"https://me:{secret}@prometheus:9090", f"http://{secret}@[::1]:9090/x"):
        with pytest.raises(ConfigError) as refused:
            parsed({"prometheus": {"default": {"url": url}}})
        assert "tokenFile" in str(refused.value)
        assert secret not in str(refused.value)
    async with Http() as http:
        for url in (f"http://me:{secret}@127.0.0.1:1/x", f"http://me:{secret}@[::1:1/x"):
            with pytest.raises(FetchError) as failed:
                await http.get(url, timeout_s=1.0)
            assert secret not in str(failed.value)
