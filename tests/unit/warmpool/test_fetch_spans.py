"""Ranges: what is done, what is left, what comes next, for any order in which streams end."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from warmpool.fetch.spans import LARGEST_BYTES, SMALLEST_BYTES, Span, gaps, merged, next_span, prefix_bytes, total_bytes

SIZE = 60
SPANS = st.lists(
    st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(lambda pair: Span(min(pair), max(pair))), max_size=12
)


def bytes_of(spans: object) -> set[int]:
    return {position for span in spans for position in range(span.start, span.end)}  # type: ignore[attr-defined]


@given(SPANS)
def test_merging_keeps_the_bytes_and_leaves_a_gap_between_any_two(spans: list[Span]) -> None:
    found = merged(spans)
    assert bytes_of(found) == bytes_of(spans)
    assert all(before.end < after.start for before, after in itertools.pairwise(found))
    assert all(span.size_bytes > 0 for span in found)
    assert total_bytes(spans) == len(bytes_of(spans))
    assert merged(reversed(found)) == found


@given(SPANS, st.integers(0, SIZE + 5))
def test_gaps_are_exactly_what_is_not_covered(spans: list[Span], size: int) -> None:
    assert bytes_of(gaps(spans, size)) == set(range(size)) - bytes_of(spans)


@given(SPANS)
def test_the_prefix_ends_at_the_first_missing_byte(spans: list[Span]) -> None:
    covered = bytes_of(spans)
    assert prefix_bytes(spans) == next(position for position in range(SIZE + 1) if position not in covered)


@given(
    size=st.integers(0, 400 * SMALLEST_BYTES),
    streams=st.integers(1, 32),
    kept=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), max_size=5),
    seed=st.integers(0, 10**6),
)
def test_every_byte_is_given_out_once_whatever_order_streams_end_in(
    size: int, streams: int, kept: list[tuple[int, int]], seed: int
) -> None:
    draw = random.Random(seed)
    half = SMALLEST_BYTES // 2 + 1
    done = merged(Span(min(pair) * half, min(size, max(pair) * half)) for pair in kept)
    taken: list[Span] = []
    while True:
        span = next_span(done, taken, size, streams) if len(taken) < streams else None
        if span is not None:
            assert 0 < span.size_bytes <= LARGEST_BYTES + SMALLEST_BYTES // 2
            assert not any(span.start < other.end and other.start < span.end for other in (*done, *taken))
            taken.append(span)
        elif taken:
            ended = taken.pop(draw.randrange(len(taken)))
            done = merged((*done, ended))
        else:
            break
    assert done == (merged([Span(0, size)]))


def test_spans_are_long_first_and_short_last_so_that_streams_end_together() -> None:
    size, done, lengths = 2**33, (), []
    while (span := next_span(done, (), size, 8)) is not None:
        lengths.append(span.size_bytes)
        done = merged((*done, span))
    assert lengths[0] == LARGEST_BYTES
    assert lengths == sorted(lengths, reverse=True)
    assert sum(lengths[-8:]) < 2**25
