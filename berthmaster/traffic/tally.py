"""What became of each request that was due: nothing is left out of the count because it was slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

_LATE_S = 0.1


@dataclass(slots=True)
class Tally:
    """Counts of one load; every due request ends in exactly one of `answered`, `lost` and `unsent`.

    Attributes:
        due: Requests whose time had come.
        answered: By HTTP status.
        lost: Sent but not answered, by kind of error.
        given_up: Of those, ended by this client's own time-out.
        unsent: Not sent, because as many were open as are allowed.
        late: Sent more than 0.1 s after their time: this machine was too slow, or its loop was held up.
        open: Sent and not ended yet.
        latencies_s: Of the answered ones, from the time they were due, so that a late start counts.
    """

    due: int = 0
    answered: Counter[int] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    given_up: int = 0
    unsent: int = 0
    late: int = 0
    open: int = 0
    latencies_s: list[float] = field(default_factory=list)

    def sent(self, behind_s: float) -> None:
        """Count one that goes out now, so much after its time."""
        self.open += 1
        self.late += behind_s > _LATE_S

    def ended(self, status: int, latency_s: float) -> None:
        """Count an answer."""
        self.open -= 1
        self.answered[status] += 1
        self.latencies_s.append(latency_s)

    def failed(self, kind: str, *, by_timeout: bool) -> None:
        """Count one that got no answer."""
        self.open -= 1
        self.lost[kind] += 1
        self.given_up += by_timeout

    @property
    def good(self) -> int:
        """Return how many were answered below 400."""
        return sum(count for status, count in self.answered.items() if status < 400)

    @property
    def accounted(self) -> int:
        """Return how many have an end or are open; equal to `due` at any time."""
        return sum(self.answered.values()) + sum(self.lost.values()) + self.unsent + self.open

    def quantile_s(self, share: float) -> float | None:
        """Return the nearest-rank quantile of the latency; None = nothing was answered."""
        return nearest_rank(sorted(self.latencies_s), share)


def nearest_rank(ranked: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least `share` of the ranked values reach; None for none."""
    if not ranked:
        return None
    return ranked[min(len(ranked) - 1, max(0, -int(-share * len(ranked) // 1) - 1))]
