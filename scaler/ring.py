"""The last hour of one endpoint: what was seen each second and what was decided, so that any part can be replayed.

Both are kept as 32-bit floats; all but the last five minutes are deflated. About 30 KB for an hour of traffic, at most
150 KB.
"""

from __future__ import annotations

import zlib
from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from scaler.decision import Decision, Reason, Sizing
from scaler.seen import Fleet, Sample

KEPT_S = 3600
_BLOCK_S = 300
SECONDS = ("arrivals", "completions", "in_flight", "queued", "errors", "ready", "starting", "draining")
DECISIONS = ("at_s", "current", "desired", "reason", "target", "slots", "start_time_s")
_LARGEST = float(np.finfo(np.float32).max)
_REASONS = tuple(Reason)
_CODES = {reason: code for code, reason in enumerate(_REASONS)}

Table = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A part of the past, oldest first.

    Attributes:
        from_s: Time of the first second.
        seconds: One value a second and name of SECONDS; NaN = missing.
        decisions: One value a decision and name of DECISIONS; slots NaN = unknown.
        reasons: Of the decisions.
    """

    from_s: float
    seconds: Mapping[str, npt.NDArray[np.float64]]
    decisions: Mapping[str, npt.NDArray[np.float64]]
    reasons: tuple[Reason, ...]


class Ring:
    """Bounded memory of samples and decisions; times are whole seconds since `started_at_s`."""

    def __init__(self, started_at_s: float) -> None:
        self._started_at_s = started_at_s
        self._blocks: deque[tuple[int, bytes, bytes]] = deque(maxlen=KEPT_S // _BLOCK_S)
        self._block = 0
        self._now = _empty()
        self._decisions = array("f")

    @property
    def size_bytes(self) -> int:
        """Return about what is held, in bytes."""
        closed = sum(len(seconds) + len(decisions) for _, seconds, decisions in self._blocks)
        return self._now.nbytes + closed + self._decisions.itemsize * len(self._decisions)

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Keep one second; what comes twice for a second replaces it, and what is older than the block is let go."""
        block, second = divmod(int(sample.at_s - self._started_at_s), _BLOCK_S)
        if block < self._block or sample.at_s < self._started_at_s:
            return
        if block > self._block:
            self._close(block)
        self._now[second] = (
            _number(sample.arrivals),
            _number(sample.completions),
            _number(sample.in_flight),
            _number(sample.queued),
            _number(sample.errors),
            fleet.ready,
            fleet.starting,
            fleet.draining,
        )

    def decided(self, decision: Decision, sizing: Sizing, start_time_s: float) -> None:
        """Keep a decision."""
        row = (
            decision.at_s - self._started_at_s,
            decision.current,
            decision.desired,
            _CODES[decision.reason],
            sizing.target,
            np.nan if sizing.slots is None else sizing.slots,
            start_time_s,
        )
        self._decisions.extend(row)

    def history(self, from_s: float = -np.inf, to_s: float = np.inf) -> History:
        """Return what is kept of these times; seconds that nothing is known of are NaN."""
        parts = [(number, _seconds(seconds)) for number, seconds, _ in self._blocks] + [(self._block, self._now)]
        first = parts[0][0]
        table = np.full(((parts[-1][0] - first + 1) * _BLOCK_S, len(SECONDS)), np.nan)
        for number, part in parts:
            table[(number - first) * _BLOCK_S :][:_BLOCK_S] = part
        at_s = self._started_at_s + first * _BLOCK_S + np.arange(len(table))
        known = np.isfinite(table[:, -1]) & (at_s > from_s - 1) & (at_s <= to_s)
        begin, end = (int(np.argmax(known)), len(known) - int(np.argmax(known[::-1]))) if known.any() else (0, 0)
        closed = b"".join(zlib.decompress(decisions) for _, _, decisions in self._blocks)
        rows = np.frombuffer(closed + self._decisions.tobytes(), dtype=np.float32)
        made = rows.reshape(-1, len(DECISIONS)).astype(np.float64)
        made[:, 0] += self._started_at_s
        made = made[(made[:, 0] >= from_s) & (made[:, 0] <= to_s)]
        return History(
            from_s=float(at_s[begin]),
            seconds={name: table[begin:end, column] for column, name in enumerate(SECONDS)},
            decisions={name: made[:, column] for column, name in enumerate(DECISIONS)},
            reasons=tuple(_REASONS[int(code)] for code in made[:, DECISIONS.index("reason")]),
        )

    def _close(self, block: int) -> None:
        # Column by column: neighbours are alike, and constant columns cost nothing.
        seconds = zlib.compress(self._now.T.tobytes(), 6)
        self._blocks.append((self._block, seconds, zlib.compress(self._decisions.tobytes(), 6)))
        self._decisions = array("f")
        while self._blocks and self._blocks[0][0] <= block - KEPT_S // _BLOCK_S - 1:
            self._blocks.popleft()
        self._block = block
        self._now = _empty()


def _empty() -> Table:
    return np.full((_BLOCK_S, len(SECONDS)), np.nan, dtype=np.float32)


def _seconds(block: bytes) -> Table:
    return np.frombuffer(zlib.decompress(block), dtype=np.float32).reshape(len(SECONDS), _BLOCK_S).T


def _number(value: float | None) -> float:
    """Return a value that 32 bits can hold; what is larger was rejected by the rules, too."""
    return np.nan if value is None or value > _LARGEST else value
