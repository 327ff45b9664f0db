"""Each resource's own stable threshold, as a limit of concurrency.

A resource of room (memory) is a wall. A resource of time (CPU, GPU, bandwidth, I/O wait) can be full while throughput
still rises, as on a GPU whose batches grow for free: it counts only where throughput past it was not seen to rise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scaler.vertical.bins import Points
from scaler.vertical.memory import Line
from scaler.vertical.rows import Rows

MEMORY_RATIO = 0.90  # of the pod's limit: what the line may reach
MEMORY_FULL_RATIO = 0.95  # seen: cut at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Where a resource is used up.

    Attributes:
        level_ratio: Share in use from which no raise goes further.
        is_room: Whether running out ends requests (memory), not only slows them.
    """

    level_ratio: float
    is_room: bool = False


# Of a resource of time 95 % in use is 95 % of its throughput, the knee's own definition. I/O wait is time lost, not
# work done: a fifth of it is a disk or network that cannot follow.
THRESHOLDS: Mapping[str, Threshold] = {
    "cpu_ratio": Threshold(level_ratio=0.95),
    "gpu_utilisation_ratio": Threshold(level_ratio=0.95),
    "gpu_memory_ratio": Threshold(level_ratio=MEMORY_RATIO, is_room=True),
    "gpu_bandwidth_ratio": Threshold(level_ratio=0.90),
    "tensor_ratio": Threshold(level_ratio=0.90),
    "io_wait_ratio": Threshold(level_ratio=0.20),
}
_STILL_RISING_RATIO = 1.05  # throughput past the threshold against that at it


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """The resource that binds first.

    Attributes:
        name: Of the resource.
        k: Concurrency at which it reaches its threshold.
    """

    name: str
    k: float


def with_readings(lines: Mapping[str, Line], rows: Rows) -> Mapping[str, Line]:
    """Return the lines of the known resources one cycle later; names without a threshold are not followed."""
    return {
        name: lines.get(name, Line()).with_readings(rows.in_flight, rows.resources[name])
        if name in rows.resources
        else lines[name]
        for name in THRESHOLDS
        if name in rows.resources or name in lines
    }


def cap(lines: Mapping[str, Line], points: Points) -> Cap | None:
    """Return the resource whose threshold lies at the lowest concurrency, or None."""
    found = []
    for name, line in lines.items():
        threshold = THRESHOLDS[name]
        k = line.reaches(threshold.level_ratio)
        if k is not None and (threshold.is_room or not _still_rises(points, k)):
            found.append(Cap(name=name, k=k))
    return min(found, key=lambda cap: cap.k, default=None)


def _still_rises(points: Points, k: float) -> bool:
    """Return whether bins above k had more than 5 % more throughput than those up to k."""
    throughput = points.k / points.latency_s
    above, below = throughput[points.k > k], throughput[points.k <= k]
    return bool(above.size and below.size and above.max() > _STILL_RISING_RATIO * below.max())
