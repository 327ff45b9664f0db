"""The starts that a process has seen to their end: one entry per replica, the last ones kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fleet import labels
from fleet.draw import Draw
from warmpool.starts.parts import Moments, Part, Start, start_of

_KEPT = 256  # of each pool
_MOST_OPEN = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One replica's start.

    Attributes:
        pod: NAMESPACE/NAME.
        draw: How its draw from a pool ended; None = it needed none: a serving node had room.
    """

    pod: str
    draw: Draw | None
    start: Start

    @property
    def pool(self) -> str:
        """Return the pool it drew from, "" = none."""
        return self.draw.pool if self.draw is not None else ""

    @property
    def outcome(self) -> str:
        """Return `hit`, `miss` or `room`."""
        if self.draw is None:
            return "room"
        return "hit" if self.draw.is_hit else "miss"


@dataclass(slots=True)
class StartBook:
    """Takes pods as the watch shows them, and notes each start once, when the pod is Ready.

    A pod that was Ready when it was first seen is left out: it may have been Ready before, and not be starting at all.

    Attributes:
        entries: The last ones by pool, oldest first; "" = those that drew from none.
        told: Called with each new one.
    """

    told: Callable[[Entry], None] = lambda entry: None
    entries: dict[str, deque[Entry]] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def see(self, uid: str, pod: str, scheduler: str, draw: Draw | None, moments: Moments | None) -> Entry | None:
        """Take a new or changed pod; returns its start if it has just become Ready."""
        if moments is None or (scheduler != labels.SCHEDULER_NAME and draw is None):
            return None
        if moments.ready_s is None:
            if len(self._open) < _MOST_OPEN:
                self._open.add(uid)
            return None
        if uid not in self._open:
            return None
        self._open.discard(uid)
        entry = Entry(pod=pod, draw=draw, start=start_of(moments, moments.ready_s))
        self.entries.setdefault(entry.pool, deque(maxlen=_KEPT)).append(entry)
        self.told(entry)
        return entry

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone before it was Ready."""
        self._open.discard(uid)

    def forget_pool(self, pool: str) -> None:
        """Forget the starts of a pool that is gone."""
        self.entries.pop(pool, None)

    def medians_s(self, pool: str, outcome: str) -> tuple[int, dict[Part, float], float | None]:
        """Return of a pool's hits or misses how many were seen, the median of each part and of the whole start."""
        found = [entry.start for entry in self.entries.get(pool, ()) if entry.outcome == outcome]
        parts_s = {
            part: _median([start.parts_s[part] for start in found if part in start.parts_s])
            for part in Part
            if any(part in start.parts_s for start in found)
        }
        return len(found), parts_s, _median([start.total_s for start in found]) if found else None


def summary(book: StartBook, pool: str) -> str:
    """Return in one line how long starts of a pool's draws took, hits beside misses; "" = none was seen."""
    said = []
    for outcome in ("hit", "miss"):
        count, parts_s, total_s = book.medians_s(pool, outcome)
        if total_s is not None:
            spent = ", ".join(f"{part} {value:.0f}" for part, value in parts_s.items())
            said.append(f"{outcome} p50 {total_s:.0f} s of {count} ({spent})")
    return "; ".join(said)


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0
