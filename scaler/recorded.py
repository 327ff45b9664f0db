"""The past of one endpoint as JSON: what the controller serves, and what `berthmaster replay` reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fleet.errors import DecodeError
from scaler.decision import Reason
from scaler.policy import LONGEST_S
from scaler.ring import DECISIONS, SECONDS, History

_Column = list[float | None]
# A second or a decision that is longer ago than any ring reaches is none; it also bounds what a file may ask for.
_MOST_ROWS = 86_400
# What no ring holds: (lowest, highest, whether it may be missing). More replicas than these fit into no cluster.
_LOAD = (0.0, 1e9, True)
_REPLICAS = (0.0, 200_000.0, True)
_SECOND_BOUNDS = dict.fromkeys(SECONDS, _LOAD) | dict.fromkeys(("ready", "starting", "draining"), _REPLICAS)
_DECISION_BOUNDS = {
    "at_s": (-1e11, 1e11, False),
    "current": (0.0, 2.0**31, False),
    "desired": (0.0, 2.0**31, False),
    "reason": (0.0, 1e3, False),
    "target": (1e-4, 1e7, False),
    "slots": (1e-4, 1e7, True),
    "start_time_s": (0.0, LONGEST_S, False),
}
# The ring holds 32-bit floats: more digits would be noise. Times since the epoch need more.
_DIGITS = 7
_TIME_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A part of the past of one autoscaler.

    Attributes:
        autoscaler: namespace/name.
        spec: Of the custom resource, as it is now.
        history: Times in seconds since the epoch.
    """

    autoscaler: str
    spec: Mapping[str, Any]
    history: History


class _Wire(msgspec.Struct, rename="camel", frozen=True):
    autoscaler: str
    spec: dict[str, Any]
    from_seconds: float
    seconds: dict[str, _Column]
    decisions: dict[str, _Column]
    reasons: list[str]


def to_json(recorded: Recorded, epoch_s: float = 0.0) -> bytes:
    """Return the document; what is missing is null.

    Args:
        recorded: The part to tell.
        epoch_s: Seconds since the epoch at zero of the clock that the history was kept on.
    """
    history = recorded.history
    decisions = {**history.decisions, "at_s": history.decisions["at_s"] + epoch_s}
    return msgspec.json.encode(
        _Wire(
            autoscaler=recorded.autoscaler,
            spec=dict(recorded.spec),
            from_seconds=history.from_s + epoch_s,
            seconds={name: _told(column, _DIGITS) for name, column in history.seconds.items()},
            decisions={name: _told(column, _TIME_DIGITS) for name, column in decisions.items()},
            reasons=[reason.value for reason in history.reasons],
        )
    )


def from_json(document: bytes) -> Recorded:
    """Return what a document tells.

    Raises:
        DecodeError: It is no such document; the message says what is wrong with it.
    """
    try:
        wire = msgspec.json.decode(document, type=_Wire)
        reasons = tuple(Reason(reason) for reason in wire.reasons)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DecodeError(f"the history cannot be read: {error}") from error
    if not abs(wire.from_seconds) <= 1e11:
        raise DecodeError(f"the history cannot be read: it begins at {wire.from_seconds:g} s since the epoch")
    return Recorded(
        autoscaler=wire.autoscaler,
        spec=wire.spec,
        history=History(
            from_s=wire.from_seconds,
            seconds=_columns(wire.seconds, SECONDS, "seconds", _SECOND_BOUNDS),
            decisions=_columns(wire.decisions, DECISIONS, "decisions", _DECISION_BOUNDS, len(reasons)),
            reasons=reasons,
        ),
    )


def _told(column: npt.NDArray[np.float64], digits: int) -> _Column:
    return [None if not np.isfinite(value) else float(f"{value:.{digits}g}") for value in column]


def _columns(
    told: Mapping[str, _Column],
    names: tuple[str, ...],
    part: str,
    bounds: Mapping[str, tuple[float, float, bool]],
    length: int | None = None,
) -> dict[str, npt.NDArray[np.float64]]:
    lengths = {len(told[name]) for name in names if name in told} | ({length} if length is not None else set())
    missing = [name for name in names if name not in told]
    if missing:
        raise DecodeError(f"the history cannot be read: {part} lack {', '.join(missing)}")
    if len(lengths) > 1 or max(lengths, default=0) > _MOST_ROWS:
        raise DecodeError(f"the history cannot be read: its {part} have {sorted(lengths)} rows")
    columns = {name: np.array([np.nan if v is None else v for v in told[name]], dtype=np.float64) for name in names}
    for name, column in columns.items():
        low, high, may_be_missing = bounds[name]
        is_good = (column >= low) & (column <= high) | (np.isnan(column) & may_be_missing)
        if not is_good.all():
            value = column[int(np.argmin(is_good))]
            raise DecodeError(f"the history cannot be read: {part} have {name} {value:g}, not {low:g} to {high:g}")
    return columns
