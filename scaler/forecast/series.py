"""How many requests came in each minute of the last ten days; a gap is not a zero."""

from __future__ import annotations

from typing import Final

import numpy as np

from scaler.forecast.codes import GAP, Codes, Rates, decode, encode
from scaler.seen import usable

DAY_MIN: Final = 1440
# Seven days of profile for the oldest minute that is scored, and the two days that are scored (skill.py).
DAYS: Final = 10
MINUTES: Final = DAYS * DAY_MIN
# A minute counts when half of its seconds were seen: fewer are too few for its mean, none would be a gap in any case.
_LEAST_SECONDS: Final = 30


class History:
    """One endpoint's minutes, fed once a second; 28 KB.

    Minutes are counted on the wall clock, so that they mean the same after a restart. When the clock jumps forward the
    minutes between are gaps; when it jumps back what lies after the new time is forgotten.
    """

    __slots__ = ("_codes", "_minute", "_requests", "_seconds")

    def __init__(self) -> None:
        self._codes = np.full(MINUTES, GAP, np.uint16)
        self._minute: int | None = None
        self._requests = 0.0
        self._seconds = 0

    def see(self, wall_s: float, arrivals: float | None) -> None:
        """Add one second.

        Args:
            wall_s: When it was, seconds since the epoch.
            arrivals: Requests that came in it; None = not known.
        """
        minute = int(wall_s // 60.0)
        if minute != self._minute:
            self._turn_to(minute)
        if arrivals is not None and usable(arrivals):
            self._requests += arrivals
            self._seconds += 1

    @property
    def minute(self) -> int | None:
        """Return the minute since the epoch that is still open: the one after the last of `rates_rps`."""
        return self._minute

    def rates_rps(self) -> Rates:
        """Return the mean arrival rate of the closed minutes, oldest first, shape (MINUTES - 1,); nan is a gap."""
        return decode(self.codes())

    def codes(self) -> Codes:
        """Return the closed minutes as codes, oldest first, shape (MINUTES - 1,)."""
        if self._minute is None:
            return self._codes[1:].copy()
        at = self._minute % MINUTES
        return np.concatenate((self._codes[at + 1 :], self._codes[:at]))

    @classmethod
    def of(cls, codes: Codes, minute: int) -> History:
        """Return the history whose closed minutes end before `minute`.

        Args:
            codes: Oldest first, at most MINUTES - 1 of them count: the newest.
            minute: Since the epoch; open.
        """
        history = cls()
        history._minute = minute
        codes = codes[-(MINUTES - 1) :]
        history._codes[np.arange(minute - len(codes), minute) % MINUTES] = codes
        return history

    def _turn_to(self, minute: int) -> None:
        old = self._minute
        if old is not None:
            mean = self._requests / self._seconds if self._seconds >= _LEAST_SECONDS else float("nan")
            self._codes[old % MINUTES] = encode(mean)
            first, last = (old + 1, minute) if minute > old else (minute, old)
            between = np.arange(max(first, last - MINUTES + 1), last + 1) % MINUTES
            self._codes[between] = GAP
        self._minute, self._requests, self._seconds = minute, 0.0, 0
