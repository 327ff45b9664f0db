"""Ray Serve's default policy (request based), re-made from python/ray/serve/autoscaling_policy.py at 00590c45."""

from __future__ import annotations

from bench.scaler.rivals.seen import WindowMean, bounded, replicas_for, requests
from scaler.seen import Fleet, Sample

_LOOK_BACK_S = 30.0
_PUSH_S = 10.0
_UP_S = 30.0
_DOWN_S = 600.0


class RayServe:
    """Ongoing requests over the target, if that was wanted long enough without a break.

    wanted = ceil(running x load / (target x running)), load being the mean of 30 s as last pushed (every 10 s); it is
    carried out when *some* higher count was wanted for 30 s, or some lower one for 600 s. Ray looks 10 times a second,
    here once: the waits are the same, the reaction at most 1 s later. Factors 1; from no running replica 1 at once.
    """

    period_s = 1

    def __init__(self, target: float, slots: float, start_s: float, maximum: int) -> None:
        """Take the shared target as target_ongoing_requests."""
        self._target = target
        self._maximum = maximum
        self._mean = WindowMean(_LOOK_BACK_S)
        self._push_due_s: float | None = None
        self._load: float | None = None
        self._wanted: int | None = None
        self._agreed = 0  # ticks of agreement: up above 0, down below

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Record one second; push the mean if it is time."""
        self._mean.add(sample.at_s, requests(sample))
        if self._push_due_s is None:
            self._push_due_s = sample.at_s + _PUSH_S
        if sample.at_s >= self._push_due_s:
            self._push_due_s += _PUSH_S
            pushed = self._mean.at(sample.at_s)
            self._load = self._load if pushed is None else pushed

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted; the last answer where nothing was pushed yet."""
        if self._wanted is None:
            self._wanted = bounded(fleet.replicas, self._maximum)
        if self._load is None:
            return self._wanted
        if fleet.ready == 0:
            return max(1, self._wanted) if self._load > 0 else self._wanted
        desired = bounded(replicas_for(self._load, self._target), self._maximum)
        if desired > self._wanted:
            self._agreed = max(0, self._agreed) + 1
            is_due = self._agreed > _UP_S / self.period_s
        elif desired < self._wanted:
            self._agreed = min(0, self._agreed) - 1
            is_due = -self._agreed > _DOWN_S / self.period_s
        else:
            self._agreed = 0
            is_due = False
        if is_due:
            self._agreed = 0
            self._wanted = desired
        return self._wanted
