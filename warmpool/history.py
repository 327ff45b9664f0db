"""What happened to one pool in the last four weeks, small enough for one object.

Draws are kept for every minute, because bunches are what a pool is sized for; the nodes in use are coarsened with age:
two days by the minute, a week by five minutes, four weeks by fifteen. A gap is not a zero. 53 KB in memory at most.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleet.errors import DecodeError

DAY_MIN: Final = 1440
MINUTES: Final = 28 * DAY_MIN
# (minutes a value stands for, how many values are kept), finest first.
TIERS: Final = ((1, 2 * DAY_MIN), (5, 7 * DAY_MIN // 5), (15, MINUTES // 15))
_DRAWS_GAP: Final = 255
_EXACT: Final = 199
_PER_E: Final = 20.0  # steps in which a count above 199 grows by e: 5 % apart, up to 2,900 a minute
_IN_USE_GAP: Final = 65535
_MAGIC: Final = b"WH1"
_HEADER: Final = struct.Struct("<3sq")
_RAW_BYTES: Final = MINUTES + 2 * sum(count for _, count in TIERS)


class History:
    """Rings over the minutes since the epoch; fed in the order of time."""

    __slots__ = ("_draws", "_in_use", "_minute")

    def __init__(self) -> None:
        self._minute: int | None = None
        self._draws: NDArray[np.uint8] = np.full(MINUTES, _DRAWS_GAP, np.uint8)
        self._in_use = tuple(np.full(count, _IN_USE_GAP, np.uint16) for _, count in TIERS)

    @property
    def minute(self) -> int | None:
        """Return the newest minute that was seen; None = none."""
        return self._minute

    def see(self, minute: int, draws: int | None, in_use: float | None) -> None:
        """Add a minute.

        Args:
            minute: Since the epoch; one that is not after the last is ignored.
            draws: Nodes drawn; None = not known.
            in_use: Nodes that serve; None = not known.
        """
        if self._minute is not None:
            if minute <= self._minute:
                return
            between = np.arange(max(self._minute + 1, minute - MINUTES), minute)
            self._draws[between % MINUTES] = _DRAWS_GAP
            for (width, count), ring in zip(TIERS, self._in_use, strict=True):
                first, last = self._minute // width + 1, minute // width
                ring[np.arange(max(first, last - count + 1), last + 1) % count] = _IN_USE_GAP
        self._minute = minute
        self._draws[minute % MINUTES] = _DRAWS_GAP if draws is None else _code(draws)
        if in_use is None or not 0 <= in_use < _IN_USE_GAP:
            return
        for (width, count), ring in zip(TIERS, self._in_use, strict=True):
            place = minute // width % count
            # The most nodes in use within a value's minutes: what a coarser view must not lose is the peak.
            known = ring[place] != _IN_USE_GAP
            ring[place] = max(int(ring[place]), round(in_use)) if known else round(in_use)

    def draws(self) -> NDArray[np.float64]:
        """Return draws per minute, oldest first, shape (MINUTES,); nan is a gap."""
        if self._minute is None:
            return np.full(MINUTES, np.nan)
        codes = np.roll(self._draws, -(self._minute + 1) % -MINUTES)
        return _DRAWS[codes]

    def in_use(self, ago_min: int) -> float | None:
        """Return the nodes in use so many minutes before the newest, as fine as is still known; None = not known."""
        if self._minute is None or not 0 <= ago_min < MINUTES:
            return None
        minute = self._minute - ago_min
        for (width, count), ring in zip(TIERS, self._in_use, strict=True):
            if self._minute // width - minute // width < count:
                value = int(ring[minute // width % count])
                return None if value == _IN_USE_GAP else float(value)
        return None

    def to_bytes(self) -> bytes:
        """Return everything, deflated; empty where nothing was seen."""
        if self._minute is None:
            return b""
        raw = b"".join((self._draws.tobytes(), *(ring.astype("<u2").tobytes() for ring in self._in_use)))
        return _HEADER.pack(_MAGIC, self._minute) + zlib.compress(raw, 9)

    @classmethod
    def from_bytes(cls, stored: bytes) -> History:
        """Return the history as it was written.

        Raises:
            DecodeError: The bytes are none that `to_bytes` wrote.
        """
        history = cls()
        if not stored:
            return history
        try:
            magic, minute = _HEADER.unpack_from(stored)
            raw = zlib.decompressobj().decompress(stored[_HEADER.size :], _RAW_BYTES + 1)
        except (struct.error, zlib.error) as error:
            raise DecodeError(f"a pool's stored history cannot be read: {error}") from error
        if magic != _MAGIC or len(raw) != _RAW_BYTES or not 0 <= minute < 2**40:
            raise DecodeError(f"a pool's stored history cannot be read: {len(raw)} bytes instead of {_RAW_BYTES}")
        history._minute = minute
        history._draws = np.frombuffer(raw, np.uint8, MINUTES).copy()
        offset, rings = MINUTES, []
        for _, count in TIERS:
            rings.append(np.frombuffer(raw, "<u2", count, offset).astype(np.uint16))
            offset += 2 * count
        history._in_use = tuple(rings)
        return history


def _code(draws: int) -> int:
    if draws <= _EXACT:
        return max(0, draws)
    return min(_DRAWS_GAP - 1, _EXACT + round(_PER_E * math.log(draws / _EXACT)))


def _table() -> NDArray[np.float64]:
    codes = np.arange(_DRAWS_GAP + 1, dtype=np.float64)
    above = np.rint(_EXACT * np.exp((codes - _EXACT) / _PER_E))
    values = np.where(codes <= _EXACT, codes, above)
    values[_DRAWS_GAP] = np.nan
    return values


_DRAWS: Final = _table()
