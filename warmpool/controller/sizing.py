"""Which rule sizes a pool: the number that a person fixed, or what was learnt from draws."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from fleet.errors import DecodeError
from warmpool.size.rule import Learnt
from warmpool.sizing import Rule, Size
from warmpool.values import PoolSpec, Static

log = logging.getLogger(__name__)


class Fixed:
    """The size that a person fixed: `objective.static`.

    Args:
        pool: Says it.
        kept: What a rule that learns had stored, so that a person may go back to it.
    """

    def __init__(self, pool: PoolSpec, kept: bytes = b"") -> None:
        self.apply(pool)
        self._kept = kept

    def apply(self, pool: PoolSpec) -> None:
        """Take a changed spec."""
        self._count = pool.objective.count if isinstance(pool.objective, Static) else pool.min_nodes

    def drew(self, wall_s: float, nodes: int, misses: int) -> None:
        """Nothing changes."""

    def led(self, lead_s: float) -> None:
        """Nothing changes."""

    def pass_to(self, wall_s: float, serving: int | None, *, is_known: bool) -> None:
        """Nothing changes."""

    def recall(self, minute: int, draws: Sequence[int | None]) -> None:
        """Nothing changes."""

    def size(self, wall_s: float, coming_draws: int) -> Size:
        """Return it."""
        return Size(target=self._count, reason="Static", text=f"{self._count} wanted, as the spec says")

    def stored(self) -> bytes:
        """Return what a rule that learns had stored."""
        return self._kept


def rule_for(pool: PoolSpec, stored: bytes) -> Rule:
    """Return the rule that a pool's objective asks for, with what was stored where that can be read."""
    if isinstance(pool.objective, Static):
        return Fixed(pool, stored)
    try:
        return Learnt(pool, stored)
    except DecodeError as error:
        log.warning("pool %s begins anew: %s", pool.name, error)
        return Learnt(pool)
