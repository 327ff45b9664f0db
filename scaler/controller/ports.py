"""What the controller needs of others: where load comes from. Implemented elsewhere, faked in tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class ServerSecond(Protocol):
    """One server of a backend in one second; None = not known."""

    @property
    def name(self) -> str:
        """Return the balancer's name of it."""
        ...

    @property
    def address(self) -> str:
        """Return HOST or HOST:PORT."""
        ...

    @property
    def state(self) -> str:
        """Return the balancer's word for its state."""
        ...

    @property
    def in_flight(self) -> float | None:
        """Return requests in progress on it, averaged over the second."""
        ...

    @property
    def completions(self) -> float | None:
        """Return requests that ended on it."""
        ...

    @property
    def errors(self) -> float | None:
        """Return requests that failed on it."""
        ...

    @property
    def latency_mean_s(self) -> float | None:
        """Return the mean time in the replica."""
        ...

    @property
    def latency_p95_s(self) -> float | None:
        """Return the 95th percentile of the time in the replica."""
        ...


class BackendSecond(Protocol):
    """One backend in one second; None = not known."""

    @property
    def at_s(self) -> float:
        """Return when it was received, on the receiver's clock."""
        ...

    @property
    def arrivals(self) -> float | None:
        """Return requests that came."""
        ...

    @property
    def completions(self) -> float | None:
        """Return requests that ended."""
        ...

    @property
    def in_flight(self) -> float | None:
        """Return requests in progress on all its servers."""
        ...

    @property
    def queued(self) -> float | None:
        """Return requests waiting, for a server or for a slot of one."""
        ...

    @property
    def errors(self) -> float | None:
        """Return requests that failed."""
        ...

    @property
    def servers(self) -> Sequence[ServerSecond]:
        """Return its servers."""
        ...


class LoadSource(Protocol):
    """One balancer. `poll` asks it once, within its own time-out; `take` hands out what came since the last take."""

    async def poll(self) -> None:
        """Ask; what goes wrong is counted by the source and leaves it without news."""
        ...

    def take(self, backend: str) -> Sequence[BackendSecond]:
        """Return the seconds of a backend that were not taken yet, oldest first."""
        ...
