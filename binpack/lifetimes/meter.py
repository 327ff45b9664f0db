"""Integrals over time of what waits and what is free."""

from __future__ import annotations

from collections import defaultdict

from binpack.arrivals import class_of, milli_gpu_of
from fleet.device import WHOLE_MILLI
from fleet.pod import Pod

_S_PER_H = 3600.0


class Meter:
    """Adds up what waits, by class, and what is free meanwhile; between two events nothing changes."""

    def __init__(self, capacity_milli_gpu: int, from_s: float) -> None:
        """Start with everything free and nobody waiting; what was before `from_s` does not count."""
        self._capacity = capacity_milli_gpu
        self._free = capacity_milli_gpu
        self._waiting_milli = 0
        self._now_s = self._from_s = from_s
        self._milli: defaultdict[str, int] = defaultdict(int)
        self._pods: defaultdict[str, int] = defaultdict(int)
        self._since_s: dict[str, float] = {}
        self._milli_s: defaultdict[str, float] = defaultdict(float)
        self._pods_s: defaultdict[str, float] = defaultdict(float)
        self._free_s = self._stranded_s = self._wanted_s = 0.0

    def pass_to(self, now_s: float) -> None:
        """Let time pass with nothing changed."""
        if now_s <= self._now_s:
            return
        passed_s, self._now_s = now_s - self._now_s, now_s
        self._free_s += self._free * passed_s
        if self._waiting_milli:
            self._stranded_s += self._free * passed_s
            self._wanted_s += min(self._free, self._waiting_milli) * passed_s

    def allocate(self, pod: Pod, sign: int) -> None:
        """Count a pod that got (1) or gave back (-1) its devices."""
        self._free -= sign * milli_gpu_of(pod)

    def wait(self, pod: Pod, sign: int) -> None:
        """Count a pod that begins (1) or ends (-1) to wait."""
        name = class_of(pod)
        self._settle(name)
        self._pods[name] += sign
        self._milli[name] += sign * milli_gpu_of(pod)
        self._waiting_milli += sign * milli_gpu_of(pod)

    def _settle(self, name: str) -> None:
        passed_s = self._now_s - self._since_s.get(name, self._from_s)
        self._milli_s[name] += self._milli[name] * passed_s
        self._pods_s[name] += self._pods[name] * passed_s
        self._since_s[name] = self._now_s

    @property
    def unallocated_ratio(self) -> float:
        """Return the mean free part of the capacity so far."""
        return self._free_s / (self._capacity * (self._now_s - self._from_s))

    @property
    def stranded_gpu_hours(self) -> float:
        """Return the GPU time that was free while a pod that asks GPU waited."""
        return self._stranded_s / WHOLE_MILLI / _S_PER_H

    @property
    def wanted_gpu_hours(self) -> float:
        """Return the same, at each moment no more than what the waiting pods asked."""
        return self._wanted_s / WHOLE_MILLI / _S_PER_H

    def pending(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return GPU-hours and pod-hours of waiting, by class, sorted."""
        for name in list(self._pods):
            self._settle(name)
        gpu = {name: self._milli_s[name] / WHOLE_MILLI / _S_PER_H for name in sorted(self._pods)}
        return gpu, {name: self._pods_s[name] / _S_PER_H for name in sorted(self._pods)}
