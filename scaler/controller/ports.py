"""What the controller needs of others: where load comes from. Implemented elsewhere, faked in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from scaler.balancer.values import BackendSecond
from scaler.signals.balancer import ExporterState


class LoadSource(Protocol):
    """One balancer. `poll` asks it once, within its own time-out; `take` hands out what came since the last take."""

    async def poll(self) -> None:
        """Ask; what goes wrong is counted by the source and leaves it without news."""
        ...

    def take(self, backend: str) -> Sequence[BackendSecond]:
        """Return the seconds of a backend that were not taken yet, oldest first."""
        ...

    def states(self) -> Sequence[ExporterState]:
        """Return how each of its exporters does."""
        ...
