"""Our horizontal axis as a simulated autoscaler: the same track and the same decision as in the controller."""

from __future__ import annotations

from scaler.decision import Decision, Sizing
from scaler.horizontal.decide import decide
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.track import Track
from scaler.policy import Policy
from scaler.seen import Fleet, Sample


class Ours:
    """One endpoint under our rules.

    Attributes:
        period_s: Whole seconds between two decisions, from the policy.
        last: The newest decision; None before the first.
        sizing: What the next decision aims at.
    """

    def __init__(self, policy: Policy, sizing: Sizing, start_time_s: float, *, service_s: float | None = None) -> None:
        """Begin without memory; `service_s` is the mean time in a replica where it is known, as after a restart."""
        self.period_s = max(1, round(policy.behavior.period_s))
        self.last: Decision | None = None
        self.sizing = sizing
        self._policy, self._start_time_s = policy, start_time_s
        self._track = Track(policy, 0.0, service_s)
        self._state: HorizontalState | None = None

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Take in one second."""
        self._track.see(sample, fleet)

    def resize(self, sizing: Sizing, longest_service_s: float | None = None) -> None:
        """Take what the vertical axis learnt, as the controller does: the size of a replica and the bound of S."""
        self.sizing = sizing
        self._track.resize(self._policy, sizing)
        self._track.service.limit_s = longest_service_s

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted; the replicas met first are the first recommendation, as after a restart."""
        state = self._state or HorizontalState.found(fleet.replicas, now_s)
        self.last, self._state = decide(
            self._track, fleet, self.sizing, self._policy, state, now_s, start_time_s=self._start_time_s
        )
        return self.last.desired
