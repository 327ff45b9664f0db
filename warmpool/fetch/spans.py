"""Sets of byte ranges, and which range to fetch next. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

# A request costs a round trip and a new congestion window, so a span is not smaller; at the end of a file spans get
# small, so that the streams end together; and one that is too large makes the checksum wait far behind.
SMALLEST_BYTES = 2**20
LARGEST_BYTES = 2**26
_SPANS_PER_STREAM = 3


class Span(NamedTuple):
    """Bytes from `start` up to, not including, `end`."""

    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Return how many bytes."""
        return self.end - self.start


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the same bytes as sorted spans that neither touch nor overlap; empty ones vanish."""
    found: list[Span] = []
    for span in sorted(spans):
        if span.end <= span.start:
            continue
        if found and span.start <= found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return tuple(found)


def gaps(covered: Iterable[Span], size_bytes: int) -> tuple[Span, ...]:
    """Return what of [0, size_bytes) no span covers."""
    found: list[Span] = []
    position = 0
    for span in merged(covered):
        if span.start >= size_bytes:
            break
        if span.start > position:
            found.append(Span(position, span.start))
        position = max(position, span.end)
    if position < size_bytes:
        found.append(Span(position, size_bytes))
    return tuple(found)


def total_bytes(spans: Iterable[Span]) -> int:
    """Return how many different bytes the spans cover."""
    return sum(span.size_bytes for span in merged(spans))


def prefix_bytes(spans: Iterable[Span]) -> int:
    """Return how many bytes are covered from the beginning without a gap: as far as a checksum can be taken."""
    first = next(iter(merged(spans)), None)
    return first.end if first is not None and first.start == 0 else 0


def next_span(done: Iterable[Span], taken: Iterable[Span], size_bytes: int, streams: int) -> Span | None:
    """Return the span that a free stream fetches next, None when all bytes are done or taken.

    The first gap's beginning, of length left / (3 * streams) within [1 MiB, 64 MiB]: long spans while much is left,
    short ones towards the end (guided self-scheduling, Polychronopoulos and Kuck 1987). In order, because the checksum
    follows.

    Args:
        done: On disk.
        taken: Being fetched.
        size_bytes: Of the whole file.
        streams: That fetch at once, at least 1.
    """
    left = gaps((*done, *taken), size_bytes)
    if not left:
        return None
    share = total_bytes(left) // (_SPANS_PER_STREAM * max(1, streams))
    length = min(LARGEST_BYTES, max(SMALLEST_BYTES, share))
    first = left[0]
    # A crumb behind the span would cost a request of its own.
    end = first.end if first.size_bytes < length + SMALLEST_BYTES // 2 else first.start + length
    return Span(first.start, end)
