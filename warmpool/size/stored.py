"""What was learnt, as bytes: tables in two bytes a value, so that four weeks of lessons are some ten kilobytes.

Every array is (shape, largest, sqrt codes): code = round(sqrt(x / largest) 65535). The root keeps the small tails, that
decide at high goals, as exact as the rest.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fleet.errors import DecodeError

Floats = NDArray[np.float64]

_CODES: Final = 65534
_MISSING: Final = 65535
# Nothing that a pool of the largest size learns is longer; what is longer is not ours.
LARGEST_RAW: Final = 1 << 20


def packed(arrays: Mapping[str, Floats], exact: Mapping[str, Floats], version: int) -> bytes:
    """Return arrays as bytes.

    Args:
        arrays: Not negative, nan allowed; 1/130,000 of the root of the largest is lost.
        exact: Kept as they are, in eight bytes a value.
        version: Of the meaning.
    """
    told = {
        "v": version,
        "a": {name: _coded(one) for name, one in arrays.items()},
        "e": {name: [list(one.shape), one.astype("<f8").tobytes()] for name, one in exact.items()},
    }
    return zlib.compress(msgspec.msgpack.encode(told), 9)


def unpacked(stored: bytes, version: int) -> dict[str, Floats]:
    """Return the arrays of `packed`, all in one.

    Raises:
        DecodeError: The bytes are none that `packed` wrote for this version.
    """
    try:
        raw = zlib.decompressobj().decompress(stored, LARGEST_RAW)
        told = msgspec.msgpack.decode(raw)
        if told["v"] != version:
            raise DecodeError(f"what a pool learnt was stored as version {told['v']}, not {version}")
        found = {str(name): _decoded(one) for name, one in told["a"].items()}
        for name, (shape, values) in told["e"].items():
            found[str(name)] = np.frombuffer(values, "<f8").astype(np.float64).reshape(shape)
    except (zlib.error, msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DecodeError(f"what a pool learnt cannot be read: {error}") from error
    return found


def _coded(values: Floats) -> list[Any]:
    known = np.isfinite(values)
    largest = float(values[known].max()) if known.any() else 0.0
    part = np.where(known, np.clip(values, 0.0, None), 0.0) / largest if largest > 0 else np.zeros(values.shape)
    codes = np.where(known, np.rint(np.sqrt(part) * _CODES), _MISSING).astype("<u2")
    return [list(values.shape), largest, codes.tobytes()]


def _decoded(told: list[Any]) -> Floats:
    shape, largest, raw = told
    codes = np.frombuffer(raw, "<u2").astype(np.float64)
    values = np.where(codes == _MISSING, np.nan, (codes / _CODES) ** 2 * float(largest))
    return values.reshape(shape)
