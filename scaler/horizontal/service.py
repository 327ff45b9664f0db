"""How long a request takes in a replica, by Little's law."""

from __future__ import annotations

from typing import Final

_HALF_LIFE_S: Final = 120.0
_KEPT: Final = 0.5 ** (1.0 / _HALF_LIFE_S)
_FEWEST_COMPLETIONS: Final = 5.0
_SHORTEST_S, _LONGEST_S = 1e-4, 1e5  # beyond, a counter is broken


class ServiceTime:
    """S = sum F / (sum C + max(0, rise of F) / 2): requests in progress over those that ended, halved every 120 s.

    While F rises, those that began are ahead of those that ended by its rise; the mean of both counts is without bias,
    completions alone over-order by the first of long requests (Mooncake, start 180 s: 68K replica-seconds, now 56K).

    With fewer than 5 completions in the sums the last S stands. `limit_s`, where the fitted latency curve gives one,
    bounds S: a saturated fleet inflates it, which would order more replicas for being slow.
    Source: Little 1961. Measured: bench/scaler.
    """

    __slots__ = ("_before", "_completions", "_filled", "_in_flight", "_last_s", "limit_s")

    def __init__(self, known_s: float | None = None) -> None:
        """Start from a known S, as after a restart, or from none; one that no counter could have shown is none."""
        self._in_flight = 0.0
        self._completions = 0.0
        self._filled = 0.0
        self._before: float | None = None
        self._last_s = known_s if known_s is not None and _SHORTEST_S <= known_s <= _LONGEST_S else None
        self.limit_s: float | None = None

    def add(self, in_flight: float, completions: float) -> None:
        """Take one second."""
        self._in_flight = self._in_flight * _KEPT + in_flight
        self._completions = self._completions * _KEPT + completions
        self._filled = self._filled * _KEPT + in_flight - (in_flight if self._before is None else self._before)
        self._before = in_flight
        if self._completions >= _FEWEST_COMPLETIONS and self._in_flight > 0:
            ended = self._completions + max(0.0, self._filled) / 2
            self._last_s = min(max(self._in_flight / ended, _SHORTEST_S), _LONGEST_S)

    @property
    def seconds(self) -> float | None:
        """Return S > 0; None = never known."""
        if self._last_s is None or self.limit_s is None:
            return self._last_s
        return min(self._last_s, self.limit_s)
