"""Log lines into latencies."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.balancer.latency import Ended, LatencyBook, ended_in, summary


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (b"bm1 be r1 200 303 0 302 4 --\n", Ended("be", "r1", 0.306)),
        (b"<134>Nov 30 09:00:00 haproxy[1]: bm1 be r1 500 0 1 201 0 --", Ended("be", "r1", 0.202)),
        (b"bm1 be <NOSRV> 503 -1 -1 -1 -1 SC\n", None),
        (b"bm1 be r1 400 0 0 -1 -1 CH\n", None),
        (b"Server be/r1 is UP/READY (leaving forced maintenance).\n", None),
    ],
)
def test_lines_as_haproxy_writes_them(line: bytes, want: Ended | None) -> None:
    assert ended_in(line) == want


@given(st.binary(max_size=200))
def test_no_line_ends_the_book(line: bytes) -> None:
    book = LatencyBook()
    book.add(line)
    book.add(b"bm1 " + line)
    book.close()


@pytest.mark.parametrize("line", [b"bm1 be r1 200\n", b"bm1 be r1 200 x y z 0 --", b"bm1 \xff r1 200 0 0 1 0 --"])
def test_a_marked_line_of_another_format_is_counted(line: bytes) -> None:
    book = LatencyBook()
    book.add(line)
    assert book.unreadable == 1
    assert book.close() == {}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200))
def test_the_percentile_is_the_smallest_value_that_95_percent_reach(values: list[float]) -> None:
    found = summary(values)
    assert found is not None
    assert found.p95_s in values
    assert sum(value <= found.p95_s for value in values) >= math.ceil(0.95 * len(values))
    smaller = [value for value in values if value < found.p95_s]
    assert len(smaller) < 0.95 * len(values)


def test_a_book_begins_anew_with_each_second_and_is_bounded() -> None:
    book = LatencyBook()
    for _ in range(5000):
        book.add(b"bm1 be r1 200 0 0 100 0 --")
    assert book.dropped == 5000 - 4096
    assert book.close()["be", "r1"].requests == 4096
    assert book.close() == {}
