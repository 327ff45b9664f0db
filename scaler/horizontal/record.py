"""The margin for a burst that is larger than any before."""

from __future__ import annotations

from typing import Final

from scaler.horizontal.bounds import whole
from scaler.horizontal.shadow import Level
from scaler.policy import Style

_MARGIN: Final = {Style.STEADY: 1.0, Style.THRIFTY: 1.5}


def with_margin(level: Level, slots: float, style: Style) -> int:
    """Return the replicas to hold for a shadow level.

    replicas = ceil(level (1 + margin / (1 + k))),
    k = minutes of the last 30 in which a fleet of half the level was late

    After k bursts the next is a record with chance 1 / (k + 1). Under steady load k is large and the margin vanishes.
    Without it Azure code, start 60 s, had 12.8 to 13.9 % late instead of 7.1 to 8.2, for 16 to 18 % less cost.
    Measured: bench/scaler.

    Args:
        level: What would have kept the promise.
        slots: Of one replica.
        style: Steady or thrifty.
    """
    return whole(level.slots / slots * (1 + _MARGIN[style] / (1 + level.bursts)))
