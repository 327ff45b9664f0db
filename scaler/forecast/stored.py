"""The history as a few kilobytes of bytes, so that a restart does not lose a week."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np

from fleet.errors import DecodeError
from scaler.forecast.codes import GAP, decode, encode_all
from scaler.forecast.series import MINUTES, History

_MAGIC: Final = b"BH1"
_HEADER: Final = struct.Struct("<3sqH")
# The profile is a mean over eleven minutes: ten-minute means lose little of it, and 1,440 of them are small.
BUCKET_MIN: Final = 10


def to_bytes(history: History) -> bytes:
    """Return the history in ten-minute means, deflated: 1 to 3 KB for ten days; empty where nothing was seen."""
    if history.minute is None:
        return b""
    rates = history.rates_rps()
    # Buckets stand on the clock, so that one written an hour later holds the same numbers.
    last = history.minute // BUCKET_MIN
    tail = history.minute % BUCKET_MIN
    rates = rates[: len(rates) - tail] if tail else rates
    rates = rates[len(rates) % BUCKET_MIN :].reshape(-1, BUCKET_MIN)
    known = np.isfinite(rates)
    counts = known.sum(axis=1)
    sums = np.where(known, rates, 0.0).sum(axis=1)
    means = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    codes = encode_all(means.astype(np.float32))
    steps = np.diff(codes, prepend=np.uint16(0)).astype("<u2")
    return _HEADER.pack(_MAGIC, last, len(codes)) + zlib.compress(steps.tobytes(), 9)


def from_bytes(stored: bytes, now_s: float) -> History:
    """Return the history as it was written; each minute of a bucket has the bucket's mean.

    Args:
        stored: From `to_bytes`; empty = a fresh history.
        now_s: Seconds since the epoch; what the stored minutes do not reach is a gap.

    Raises:
        DecodeError: The bytes are none that `to_bytes` wrote, or come from the future.
    """
    minute = int(now_s // 60.0)
    if not stored:
        return History()
    try:
        magic, last, count = _HEADER.unpack_from(stored)
        inflate = zlib.decompressobj()
        steps = np.frombuffer(inflate.decompress(stored[_HEADER.size :], 2 * MINUTES), "<u2")
    except (struct.error, zlib.error, ValueError) as error:
        raise DecodeError(f"a stored forecast history cannot be read: {error}") from error
    if magic != _MAGIC or len(steps) != count or count > MINUTES // BUCKET_MIN:
        raise DecodeError(f"a stored forecast history cannot be read: {count} buckets told, {len(steps)} found")
    end = last * BUCKET_MIN
    if end > minute:
        raise DecodeError(f"a stored forecast history ends {end - minute} minutes after now: a clock is wrong")
    codes = np.cumsum(steps, dtype=np.uint16)
    minutes = encode_all(np.repeat(decode(codes), BUCKET_MIN))
    since = np.full(min(minute - end, MINUTES), GAP, np.uint16)
    return History.of(np.concatenate((minutes, since)), minute)
