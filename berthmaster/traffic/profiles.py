"""How long a replica takes, by how much it has in progress: five kinds of model, none of which burns CPU.

The shapes are those on which the learner was measured (bench/scaler): the knee is the smallest number in progress with
95 % of the best goodput.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What one request gets.

    Attributes:
        duration_s: Time in the replica.
        fails: Whether it is answered 500.
    """

    duration_s: float
    fails: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of replica.

    Attributes:
        knee: Requests in progress that it is good for.
        serve: Service from (in progress including this one, a draw in 0..1).
        memory_ratio: Memory in use from what is in progress; 1 = the container's limit.
    """

    knee: int
    serve: Callable[[int, float], Service]
    memory_ratio: Callable[[int], float]


def _small_memory(in_progress: int) -> float:
    return 0.3 + 0.005 * in_progress


def _cpu(in_progress: int, draw: float) -> Service:
    return Service(duration_s=0.1 * max(1.0, in_progress / 8) * (0.8 + 0.4 * draw))


def _batching(in_progress: int, draw: float) -> Service:
    return Service(duration_s=max(0.2 + 0.004 * in_progress, in_progress / 96) * (0.9 + 0.2 * draw))


def _memory(in_progress: int, draw: float) -> Service:
    beyond = max(0, in_progress - 20)
    return Service(duration_s=(0.15 + 0.002 * in_progress + 0.2 * beyond), fails=draw < 0.15 * beyond)


def _downstream(in_progress: int, draw: float) -> Service:
    return Service(duration_s=max(0.12, in_progress / 70) * (0.8 + 0.4 * draw))


def _bimodal(in_progress: int, draw: float) -> Service:
    size = 5.0 if draw > 0.9 else 0.55
    return Service(duration_s=0.1 * size * max(1.0, in_progress / 8))


PROFILES: Mapping[str, Profile] = {
    "cpu": Profile(knee=8, serve=_cpu, memory_ratio=_small_memory),
    "batching": Profile(knee=31, serve=_batching, memory_ratio=_small_memory),
    "memory": Profile(knee=19, serve=_memory, memory_ratio=lambda k: 0.3 + 0.032 * k),
    "downstream": Profile(knee=9, serve=_downstream, memory_ratio=_small_memory),
    "bimodal": Profile(knee=8, serve=_bimodal, memory_ratio=_small_memory),
}
