"""What an autoscaler must answer to be simulated."""

from __future__ import annotations

from typing import Protocol

from scaler.seen import Fleet, Sample


class Autoscaler(Protocol):
    """One endpoint's horizontal axis, ours or a rival's.

    Attributes:
        period_s: Whole seconds between two decisions.
    """

    period_s: int

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Take in one second; called every second, before a decision of the same second."""
        ...

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted, ready and starting together."""
        ...
