"""When to ask again, how long to wait before, and how many streams are worth while. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

_FIRST_S = 0.25
_LONGEST_S = 20.0
# A server that asks for more patience than this is unavailable for us.
LONGEST_RETRY_AFTER_S = 120.0

_AUTO_FIRST = 4
AUTO_MOST = 32
_WORTH_RATIO = 1.15


def pause_s(failures: int, retry_after_s: float, jitter: float) -> float:
    """Return how long to wait before asking again.

    min(20, 0.25 * 2^failures) * (0.5 + jitter / 2), or what the server asked for, whichever is longer.

    Args:
        failures: In a row, without a byte between them; at least 1.
        retry_after_s: From the server, else 0.
        jitter: 0 to 1, drawn, so that a thousand nodes do not return together.
    """
    backed_off_s = min(_LONGEST_S, _FIRST_S * 2.0 ** min(failures, 16)) * (0.5 + jitter / 2)
    return max(backed_off_s, min(retry_after_s, LONGEST_RETRY_AFTER_S))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many streams, found by trying.

    Attributes:
        streams: To use now.
        best_bytes_per_s: The largest rate so far, None before the first look.
        is_settled: More streams did not pay; the count stays.
    """

    streams: int = _AUTO_FIRST
    best_bytes_per_s: float | None = None
    is_settled: bool = False

    def after(self, bytes_per_s: float, *, was_throttled: bool) -> Pace:
        """Return the pace after one look.

        Doubles while the last doubling brought 15 % or more; otherwise takes it back and stays. A server that says
        it is asked too much (429, 503) halves the count.

        Args:
            bytes_per_s: Rate since the last look.
            was_throttled: Whether the server said so since then.
        """
        if was_throttled:
            return Pace(streams=max(1, self.streams // 2), best_bytes_per_s=bytes_per_s, is_settled=True)
        if self.is_settled:
            return self
        if self.best_bytes_per_s is not None and bytes_per_s < _WORTH_RATIO * self.best_bytes_per_s:
            return replace(self, streams=max(_AUTO_FIRST, self.streams // 2), is_settled=True)
        doubled = min(AUTO_MOST, 2 * self.streams)
        return Pace(streams=doubled, best_bytes_per_s=bytes_per_s, is_settled=doubled == self.streams)
