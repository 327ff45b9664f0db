"""KEDA (2.22), re-made: it feeds an HPA with a metric that is asked afresh, and itself moves between 0 and 1."""

from __future__ import annotations

from bench.scaler.rivals.hpa import Fresh, Hpa
from bench.scaler.rivals.seen import requests
from scaler.seen import Fleet, Sample

_POLL_S = 30.0
_COOLDOWN_S = 300.0


class Keda:
    """An HPA whose every question is passed on to the source (kedacore/keda 2282), with default behaviour.

    With a minimum of 0: a poll every 30 s, asleep, wakes one replica if there is load; awake, no load for 300 s puts
    the last one to sleep.
    """

    period_s = 15

    def __init__(self, target: float, slots: float, start_s: float, maximum: int, *, min_replicas: int = 1) -> None:
        """Take the shared target; in comparisons it keeps one replica, as every rival does."""
        self._hpa = Hpa(target, slots, start_s, maximum, metric=Fresh())
        self._min_replicas = min_replicas
        self._load: float | None = None
        self._active_s: float | None = None
        self._poll_due_s: float | None = None

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Pass one second on."""
        self._load = requests(sample)
        self._hpa.see(sample, fleet)

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted."""
        if self._min_replicas > 0:
            return self._hpa.decide(now_s, fleet)
        self._poll(now_s)
        is_awake = self._active_s is not None and now_s - self._active_s < _COOLDOWN_S
        if not is_awake:
            return 0
        return self._hpa.decide(now_s, fleet) if fleet.replicas > 0 else 1

    def _poll(self, now_s: float) -> None:
        if self._poll_due_s is None:
            self._poll_due_s = self._active_s = now_s
        if now_s < self._poll_due_s:
            return
        self._poll_due_s = now_s + _POLL_S
        if self._load:
            self._active_s = now_s
