"""Knative's pod autoscaler, re-made from pkg/autoscaler/scaling of knative/serving v0.48.0 for machines without Go."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.scaler.rivals.knative_windows import Buckets, DelayWindow
from bench.scaler.rivals.seen import bounded, requests
from scaler.seen import Fleet, Sample

TICK_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class KpaSpec:
    """What a revision may set; the defaults are those of Knative's ConfigMap config-autoscaler.

    Attributes:
        target: Concurrency wanted per pod.
        total: Concurrency that a pod can hold.
        up_rate: Largest growth in one tick, times the ready pods.
        down_rate: Largest shrink in one tick, as divisor of the ready pods.
        panic_ratio: Load of the panic window over ready capacity from which it panics.
        stable_window_s: Long average, and how long a panic lasts after its last cause.
        panic_window_s: Short average.
        burst_capacity: Burst to be held without the buffering proxy; 0 = proxy only at zero, -1 = always.
        shrink_delay_s: How long a lower count must have been wanted.
        activation_replicas: Least count that is above zero.
        is_reachable: Whether a route leads to the revision; without one it shrinks at once.
    """

    target: float
    total: float
    up_rate: float = 1000.0
    down_rate: float = 2.0
    panic_ratio: float = 2.0
    stable_window_s: int = 60
    panic_window_s: int = 6
    burst_capacity: float = 211.0
    shrink_delay_s: float = 0.0
    activation_replicas: int = 1
    is_reachable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One answer: pods wanted, and the burst that they could hold (negative: put the proxy in the path)."""

    desired: int
    burst_headroom: int


class Kpa:
    """The decision and its memory: whether it panics, and the most it wanted since."""

    def __init__(self, spec: KpaSpec, *, ready: int | None, now_s: float) -> None:
        """Start; with more than one ready pod in a panic, so that a restart without history does not shrink."""
        self._spec = spec
        self._panic_since_s = now_s if ready is not None and ready > 1 else None
        self._panic_most = ready or 0
        self._delay = DelayWindow(spec.shrink_delay_s, TICK_S) if spec.shrink_delay_s > 0 else None

    @property
    def panic_since_s(self) -> float | None:
        """Return when the panic was last renewed; None = it does not panic."""
        return self._panic_since_s

    def update(self, spec: KpaSpec) -> None:
        """Take other settings; memory and delay window stay."""
        self._spec = spec

    def scale(self, stable: float | None, panic: float | None, *, ready: int | None, now_s: float) -> Scale | None:
        """Return what is wanted; None where load or pods are unknown: then nothing is changed.

        d = clamp(ceil(stable / target), floor(ready / down_rate), ceil(ready x up_rate)), p likewise of the panic
        window; outside a panic d, inside the running maximum of max(d, p). It panics from ceil(panic / target) / ready
        >= panic_ratio until a stable window has passed since that was last so. No ready pod counts as one.

        Args:
            stable: Mean concurrency of the stable window.
            panic: Mean concurrency of the panic window.
            ready: Pods that serve.
            now_s: Seconds.
        """
        if stable is None or panic is None or ready is None:
            return None
        spec = self._spec
        pods = max(1, ready)
        wanted = math.ceil(stable / spec.target)
        panic_wanted = math.ceil(panic / spec.target)
        desired = self._limited(wanted, pods)
        panic_desired = self._limited(panic_wanted, pods)
        self._judge_panic(panic_wanted / pods >= spec.panic_ratio, now_s)
        if self._panic_since_s is not None:
            self._panic_most = max(self._panic_most, desired, panic_desired)
            desired = self._panic_most
        if spec.is_reachable and self._delay is not None:
            desired = self._delay.record(now_s, desired)
        return Scale(desired=desired, burst_headroom=self._headroom(panic, ready))

    def _limited(self, wanted: int, pods: int) -> int:
        spec = self._spec
        most = math.ceil(spec.up_rate * pods)
        least = math.floor(pods / spec.down_rate) if spec.is_reachable else 0
        limited = min(max(wanted, least), most)
        if wanted > 0 and spec.activation_replicas > 1:
            limited = max(limited, spec.activation_replicas)
        return limited

    def _judge_panic(self, is_over: bool, now_s: float) -> None:
        if is_over:
            self._panic_since_s = now_s
        elif self._panic_since_s is not None and self._panic_since_s + self._spec.stable_window_s < now_s:
            self._panic_since_s = None
            self._panic_most = 0

    def _headroom(self, panic: float, ready: int) -> int:
        """Return floor(ready x total - burst_capacity - panic), and what is said where that is not asked for."""
        if self._spec.burst_capacity == 0:
            return 0
        if self._spec.burst_capacity < 0:
            return -1
        return math.floor(ready * self._spec.total - self._spec.burst_capacity - panic)


class Knative:
    """The re-made autoscaler as a rival: evaluated every 2 s on 1 s averages of all requests in the system."""

    period_s = TICK_S

    def __init__(self, target: float, slots: float, start_s: float, maximum: int) -> None:
        """Take the shared target; it is told nothing of the start time, because Knative has no such setting."""
        self._spec = KpaSpec(target=target, total=slots)
        self._maximum = maximum
        self._stable = Buckets(self._spec.stable_window_s)
        self._panic = Buckets(self._spec.panic_window_s)
        self._kpa: Kpa | None = None
        self._wanted: int | None = None

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Record one second; an unknown load is not recorded."""
        self._begun(sample.at_s, fleet)
        load = requests(sample)
        if load is not None:
            self._stable.record(sample.at_s, load)
            self._panic.record(sample.at_s, load)

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted; the last answer where nothing is known."""
        kpa = self._begun(now_s, fleet)
        if not self._stable.is_empty(now_s):
            scale = kpa.scale(self._stable.average(now_s), self._panic.average(now_s), ready=fleet.ready, now_s=now_s)
            if scale is not None:
                self._wanted = scale.desired
        return bounded(fleet.replicas if self._wanted is None else self._wanted, self._maximum)

    def _begun(self, now_s: float, fleet: Fleet) -> Kpa:
        if self._kpa is None:
            self._kpa = Kpa(self._spec, ready=fleet.ready, now_s=now_s)
        return self._kpa
