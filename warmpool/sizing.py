"""How many nodes a pool should keep warm, and what the controller needs of a rule that says so. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from warmpool.values import PoolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many warm unclaimed nodes are wanted, and why.

    Attributes:
        target: That many.
        reason: In one word.
        text: For people, with the numbers.
        numbers: Behind it.
        horizon_s: One lead time: what is ordered now is warm by then; None = not known.
        quantiles: Probability and draws within the horizon that are not exceeded with it; empty = no opinion.
        saves: Misses that one node more would have saved in what was seen, and idle node-hours that it would have
            cost; None = not known.
        is_informed: Enough was seen for the goal to be kept.
    """

    target: int
    reason: str
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    horizon_s: float | None = None
    quantiles: Sequence[tuple[float, float]] = ()
    saves: tuple[float, float] | None = None
    is_informed: bool = True


class Rule(Protocol):
    """Sizes one pool. Time is that of the epoch: what is usual at an hour of the week is part of it."""

    def apply(self, pool: PoolSpec) -> None:
        """Take a changed spec."""
        ...

    def drew(self, wall_s: float, nodes: int, misses: int) -> None:
        """Take draws, in nodes, and how many of them found none."""
        ...

    def led(self, lead_s: float) -> None:
        """Take a lead time that was completed, order to warm."""
        ...

    def pass_to(self, wall_s: float, serving: int | None, *, is_known: bool) -> None:
        """Let time pass; where draws could not be seen (`is_known` False) the time is a gap, not a quiet one."""
        ...

    def recall(self, minute: int, draws: Sequence[int | None]) -> None:
        """Live through draws by the minute of a time before anything was seen; None = not known."""
        ...

    def size(self, wall_s: float, coming_draws: int) -> Size:
        """Return the size; `coming_draws` nodes will be drawn within the horizon, as autoscalers say."""
        ...

    def stored(self) -> bytes:
        """Return what is to be remembered."""
        ...
