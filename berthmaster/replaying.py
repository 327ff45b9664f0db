"""What a replay shows: a part of the past, both counts as lines, and the decisions that differ. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleet.condition import stamp
from fleet.errors import BerthmasterError
from scaler.decision import Reason
from scaler.replay import Replay
from scaler.ring import History

_BARS: Final = "▁▂▃▄▅▆▇█"
# Two decisions so near to each other that come to the same count are one: the clocks of both runs tick every 5 s.
_SAME_S: Final = 5.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A decision that moved the count.

    Attributes:
        at_s: Seconds since the epoch.
        replicas: Wanted from then on.
        reason: The rule that bound.
    """

    at_s: float
    replicas: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A moment at which only one of the two moved, or both to different counts; None = it did not move."""

    at_s: float
    was: Move | None
    would: Move | None


def part(history: History, from_s: float | None, to_s: float | None) -> History:
    """Return what lies before the end of the part that is asked for, all of its beginning for the rules' memory.

    Args:
        history: Times in seconds since the epoch.
        from_s: Where the part begins; None = wherever the replay may begin.
        to_s: Where it ends; None = where the history does.

    Raises:
        BerthmasterError: Nothing of the history lies there; the message tells what it holds.
    """
    length = len(history.seconds["ready"])
    last = length if to_s is None else min(length, round(to_s - history.from_s))
    first = 0 if from_s is None else max(0, round(from_s - history.from_s))
    if last <= first:
        held = f"; what is kept is {stamp(history.from_s)} to {stamp(history.from_s + length)}" if length else ""
        raise BerthmasterError(f"nothing was recorded between these moments{held}")
    kept = history.decisions["at_s"] <= history.from_s + last
    return History(
        from_s=history.from_s,
        seconds={name: column[:last] for name, column in history.seconds.items()},
        decisions={name: column[kept] for name, column in history.decisions.items()},
        reasons=tuple(reason for reason, is_kept in zip(history.reasons, kept, strict=True) if is_kept),
    )


def moves_of(history: History, from_s: float) -> tuple[Move, ...]:
    """Return the recorded decisions since a moment that moved the count; one that was repeated stands once."""
    decisions = history.decisions
    found = [
        Move(at_s=float(at_s), replicas=round(desired), reason=reason)
        for at_s, current, desired, reason in zip(
            decisions["at_s"], decisions["current"], decisions["desired"], history.reasons, strict=True
        )
        if at_s >= from_s and desired != current
    ]
    repeated = {later.at_s for earlier, later in pairwise(found) if later.replicas == earlier.replicas}
    return tuple(move for move in found if move.at_s not in repeated)


def moves_in(replayed: Replay) -> tuple[Move, ...]:
    """Return the simulated decisions of the compared part that moved the count."""
    begin_s = float(replayed.at_s[0])
    return tuple(
        Move(at_s=at_s, replicas=count, reason=reason) for at_s, count, reason in replayed.reasons if at_s >= begin_s
    )


def differences(was: Sequence[Move], would: Sequence[Move]) -> tuple[Difference, ...]:
    """Return what differs, by time; moves that are near to each other stand in one line, equal ones in none."""
    left = list(would)
    found = []
    for move in was:
        near = next((other for other in left if abs(other.at_s - move.at_s) <= _SAME_S), None)
        if near is not None:
            left.remove(near)
        if near is None or near.replicas != move.replicas:
            found.append(Difference(at_s=move.at_s, was=move, would=near))
    found += [Difference(at_s=move.at_s, was=None, would=move) for move in left]
    return tuple(sorted(found, key=lambda difference: difference.at_s))


def line(values: Floats, width: int, highest: float) -> str:
    """Return a line of bars, one for the largest known value of each of `width` equal parts; a gap is a space.

    Args:
        values: Oldest first.
        width: Characters, at most.
        highest: What the full bar stands for; above 0.
    """
    shown = []
    for piece in np.array_split(values, min(width, len(values))):
        known = piece[np.isfinite(piece)]
        step = None if not known.size else int(known.max() / highest * (len(_BARS) - 1) + 0.5)
        shown.append(" " if step is None else _BARS[max(0, min(len(_BARS) - 1, step))])
    return "".join(shown)


def highest(*series: Iterable[float]) -> float:
    """Return the largest known value of all series, 1 where there is none above 0."""
    known = [value for values in series for value in values if np.isfinite(value) and value > 0]
    return max(known, default=1.0)
