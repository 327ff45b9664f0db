"""What a node offers and a pod requests besides devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Stands for "not limited" where an amount is left out; far above any real machine, far below int64's end.
UNLIMITED = 2**52


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Integer amounts; `extended` holds every other resource name by whole units, sorted by name, without zeros."""

    milli_cpu: int = 0
    memory_bytes: int = 0
    pod_slots: int = 0
    extended: tuple[tuple[str, int], ...] = field(default=())

    def __add__(self, other: Resources) -> Resources:
        """Return the element-wise sum."""
        return self._merge(other, 1)

    def __sub__(self, other: Resources) -> Resources:
        """Return the element-wise difference; it may be negative, so that over-commitment stays visible."""
        return self._merge(other, -1)

    def _merge(self, other: Resources, sign: int) -> Resources:
        if other.extended:
            amounts = dict(self.extended)
            for name, amount in other.extended:
                amounts[name] = amounts.get(name, 0) + sign * amount
            extended = extended_of(amounts)
        else:
            extended = self.extended
        return Resources(
            milli_cpu=self.milli_cpu + sign * other.milli_cpu,
            memory_bytes=self.memory_bytes + sign * other.memory_bytes,
            pod_slots=self.pod_slots + sign * other.pod_slots,
            extended=extended,
        )

    def of(self, name: str) -> int:
        """Return the amount of one extended resource, 0 where it is not offered or requested."""
        for key, amount in self.extended:
            if key == name:
                return amount
        return 0

    def peak(self, other: Resources) -> Resources:
        """Return the element-wise maximum: what a phase-wise user needs at its worst moment."""
        amounts = dict(self.extended)
        for name, amount in other.extended:
            amounts[name] = max(amounts.get(name, 0), amount)
        return Resources(
            milli_cpu=max(self.milli_cpu, other.milli_cpu),
            memory_bytes=max(self.memory_bytes, other.memory_bytes),
            pod_slots=max(self.pod_slots, other.pod_slots),
            extended=extended_of(amounts),
        )

    def lacks(self, wanted: Resources) -> tuple[tuple[str, int], ...]:
        """Return (resource, missing amount) for everything `wanted` asks beyond this; empty if it fits."""
        missing: list[tuple[str, int]] = []
        if wanted.milli_cpu > self.milli_cpu and wanted.milli_cpu > 0:
            missing.append(("milli_cpu", wanted.milli_cpu - self.milli_cpu))
        if wanted.memory_bytes > self.memory_bytes and wanted.memory_bytes > 0:
            missing.append(("memory_bytes", wanted.memory_bytes - self.memory_bytes))
        if wanted.pod_slots > self.pod_slots and wanted.pod_slots > 0:
            missing.append(("pod_slots", wanted.pod_slots - self.pod_slots))
        for name, amount in wanted.extended:
            have = self.of(name)
            if amount > have:
                missing.append((name, amount - have))
        return tuple(missing)


def extended_of(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the canonical form of extended amounts: sorted by name, zeros left out."""
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount != 0))
