"""What one pool remembers across restarts, as the data of one ConfigMap of at most 256 KiB. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from warmpool.controller.ledger import Ledger, ledger_from
from warmpool.nodes.limits import StepTimes
from warmpool.values import NodeState

LARGEST_BYTES = 256 * 1024
_MOST_COUNTED = 2048
_WEEK_HOURS = 7 * 24
_HASH_BYTES = 8
_MOST_LEADS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What is remembered.

    Attributes:
        ledger: Draws, misses and idle time by the hour.
        times: Step and lead times.
        counted: Marks of the pods whose draws were counted and that may still be there (`mark`).
        history: What the rule of the size remembers, as it stores it; empty = nothing.
    """

    ledger: Ledger
    times: StepTimes = StepTimes()
    counted: frozenset[bytes] = frozenset()
    history: bytes = b""


def mark(uid: str) -> bytes:
    """Return a short text that stands for a pod."""
    return hashlib.blake2b(uid.encode(), digest_size=_HASH_BYTES).digest()


def data_of(memory: Memory) -> dict[str, str]:
    """Return the ConfigMap's data. What would not fit in it is left out: old hours of the ledger, then the history."""
    counted = b"".join(sorted(memory.counted)[:_MOST_COUNTED])
    rows = memory.ledger.rows()
    data = {
        "ledger": _packed(msgspec.json.encode(rows)),
        "times": msgspec.json.encode(
            {
                "leads": [round(value, 1) for value in memory.times.leads_s],
                "steps": {state.value: [round(value, 1) for value in values] for state, values in memory.times.steps_s},
            }
        ).decode(),
        "counted": base64.b64encode(counted).decode(),
    }
    history = base64.b64encode(memory.history).decode()
    short = {**data, "ledger": _packed(msgspec.json.encode(rows[-_WEEK_HOURS:]))}
    for fits in ({**data, "history": history}, {**short, "history": history}, data):
        if sum(map(len, fits.values())) <= LARGEST_BYTES:
            return fits
    return short


def memory_from(data: Mapping[str, Any]) -> Memory:
    """Return what the data says; what cannot be read counts as forgotten, and the rest stands."""
    counted = _unbased(data.get("counted"))
    marks = (counted[start : start + _HASH_BYTES] for start in range(0, len(counted), _HASH_BYTES))
    return Memory(
        ledger=ledger_from(_json(_unpacked(data.get("ledger")))),
        times=_times(_json(str(data.get("times", "")).encode())),
        counted=frozenset(one for one in marks if len(one) == _HASH_BYTES),
        history=_unbased(data.get("history")),
    )


def _packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def _unpacked(text: Any) -> bytes:
    try:
        unpacker = zlib.decompressobj()
        return unpacker.decompress(_unbased(text), LARGEST_BYTES)
    except zlib.error:
        return b""


def _unbased(text: Any) -> bytes:
    if not isinstance(text, str):
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _json(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, ValueError):
        return None


def _times(told: Any) -> StepTimes:
    if not isinstance(told, dict):
        return StepTimes()
    steps = told.get("steps")
    known = {state.value: state for state in NodeState}
    return StepTimes(
        leads_s=_seconds(told.get("leads")),
        steps_s=tuple(
            sorted(
                (known[name], _seconds(values))
                for name, values in (steps.items() if isinstance(steps, dict) else ())
                if name in known
            )
        ),
    )


def _seconds(values: Any) -> tuple[float, ...]:
    found: Iterable[Any] = values if isinstance(values, list) else ()
    return tuple(
        float(value)
        for value in found
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    )[-_MOST_LEADS:]
