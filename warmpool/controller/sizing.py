"""The rule for a size that a person fixed."""

from __future__ import annotations

from warmpool.sizing import Rule, Size
from warmpool.values import PoolSpec, Static

__all__ = ["Fixed", "Rule", "Size"]


class Fixed:
    """The size that a person fixed: `objective.static`."""

    def __init__(self, pool: PoolSpec) -> None:
        self.apply(pool)

    def apply(self, pool: PoolSpec) -> None:
        """Take a changed spec."""
        self._count = pool.objective.count if isinstance(pool.objective, Static) else pool.min_nodes

    def drew(self, wall_s: float, nodes: int, misses: int) -> None:
        """Nothing changes."""

    def led(self, lead_s: float) -> None:
        """Nothing changes."""

    def pass_to(self, wall_s: float, serving: int | None, *, is_known: bool) -> None:
        """Nothing changes."""

    def size(self, wall_s: float, coming_draws: int) -> Size:
        """Return it."""
        return Size(target=self._count, reason="Static", text=f"{self._count} wanted, as the spec says")

    def stored(self) -> bytes:
        """Return nothing."""
        return b""
