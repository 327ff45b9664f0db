"""The queue and the slots: which request starts when.

First come, first served, one queue, perfect balancing: a request starts when it comes or when a slot falls free. A
second in which nothing can wait costs nothing (the curves know it); any other is walked request by request, exactly.
"""

from __future__ import annotations

import heapq

import numpy as np

from scaler.simulate.curves import Curves, Ints
from scaler.simulate.load import Floats, Load

_GONE = -1.0  # serving end of a request that left the serving replicas
_CHUNK = 4096  # waiting requests looked at together; a long queue is not copied every second


class Plant:
    """What waits and what runs on serving replicas.

    Attributes:
        start_s: When each request started; valid for the first `head`, ascending.
        head: Requests that have started; the next one waits or has not come.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._curves = Curves(load)
        self._longest_s = float(load.service_s.max()) if load.service_s.size else 0.0
        self._ends_s: list[float] | None = None  # a heap of running ends; None = not up to date
        self._end_s: Floats = load.arrival_s + load.service_s
        self._in_flight = 0.0
        self._lingering = 0
        self.start_s: Floats = load.arrival_s.copy()
        self.head = 0

    def second(self, second: int, slots: int) -> tuple[int, int, float, int]:
        """Run one second with that many slots in service.

        Returns:
            Arrivals, completions, time average in progress, and requests that wait at its end.
        """
        curves = self._curves
        come, last = int(curves.first[second]), int(curves.first[second + 1])
        self._lingering += int(curves.tail[second])
        if self.head == come and curves.peak[second] + self._lingering <= slots:
            self.head = last
            self._ends_s = None
        else:
            self._walk(second, slots, come, last)
        self._in_flight += float(curves.step[second])
        return last - come, int(curves.ends[second]), max(0.0, self._in_flight), last - self.head

    def drain(self, now_s: int, victims: int, ready: int) -> list[float]:
        """Take what runs on `victims` of `ready` replicas out of service; return when each is empty.

        The running requests are spread evenly, so each victim holds every ready-th of them; the least busy go.
        """
        running = self._running(now_s)
        self._ends_s = None
        empty_s = []
        for place in range(ready - victims, ready):
            taken = running[place::ready]
            end_s = self._end_s[taken]
            empty_s.append(float(end_s.max(initial=now_s)))
            self._in_flight -= taken.size
            self._curves.add_ends(end_s, -1)
            self._end_s[taken] = _GONE
        return empty_s

    def _running(self, now_s: int) -> Ints:
        begin = int(np.searchsorted(self.start_s[: self.head], now_s - self._longest_s))
        return begin + np.flatnonzero(self._end_s[begin : self.head] > now_s)

    def _walk(self, second: int, slots: int, come: int, last: int) -> None:
        if self._ends_s is None:
            self._ends_s = self._end_s[self._running(second)].tolist()
            heapq.heapify(self._ends_s)
        begun: list[float] = []
        head = self.head
        while True:
            stop = min(head + len(begun) + _CHUNK, last)
            part = slice(head + len(begun), stop)
            begun += _starts(
                self._load.arrival_s[part].tolist(), self._load.service_s[part].tolist(), self._ends_s, slots, second
            )
            if head + len(begun) < stop or stop == last:
                break
        self._enter(np.array(begun), second, come, last)

    def _enter(self, begun_s: Floats, second: int, come: int, last: int) -> None:
        """Correct the curves by what did not start when it came."""
        load, curves, head = self._load, self._curves, self.head
        self.head = done = head + begun_s.size
        planned = slice(max(head, come), last)  # older ones were taken out when they began to wait
        arrival_s, service_s = load.arrival_s[planned], load.service_s[planned]
        waits = np.ones(last - planned.start, dtype=bool)
        started = done - planned.start
        if started > 0:
            waits[:started] = begun_s[begun_s.size - started :] > arrival_s[:started]
        if waits.any():
            curves.add(arrival_s[waits], arrival_s[waits] + service_s[waits], -1)
        late = begun_s > load.arrival_s[head:done]
        if late.any():
            start_s, held_s = begun_s[late], load.service_s[head:done][late]
            curves.add(start_s, start_s + held_s, 1)
            curves.linger(load.arrival_s[head:done][late] + held_s, start_s + held_s, second + 1)
            self.start_s[head:done] = begun_s
            self._end_s[head:done] = begun_s + load.service_s[head:done]


def _starts(
    arrival_s: list[float], service_s: list[float], ends_s: list[float], slots: int, second: int
) -> list[float]:
    """Return when requests start, first come, first served, up to the first that cannot within this second.

    Args:
        arrival_s: When each came, ascending.
        service_s: How long each holds its slot.
        ends_s: Heap of the ends of running requests; kept up to date.
        slots: Slots in service.
        second: The second looked at.
    """
    begun: list[float] = []
    for came_s, held_s in zip(arrival_s, service_s, strict=True):
        at_s = came_s if came_s > second else float(second)
        while ends_s and ends_s[0] <= at_s:
            heapq.heappop(ends_s)
        if len(ends_s) < slots:
            heapq.heappush(ends_s, at_s + held_s)
        elif ends_s and ends_s[0] < second + 1:
            at_s = ends_s[0]
            heapq.heapreplace(ends_s, at_s + held_s)
        else:
            break
        begun.append(at_s)
    return begun
