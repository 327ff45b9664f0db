"""Five kinds of replica whose knee is known, each from a mechanism of its own rather than from a fitted shape.

Tables over whole numbers of requests in progress, 0..MOST. Times are those of a model server: tenths of a second to
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

MOST = 400
ENOUGH_RATIO = 0.95
ACCEPTABLE_ERROR_RATIO = 0.02

_K = np.arange(MOST + 1, dtype=float)


@dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """A replica.

    Attributes:
        name: For the table.
        latency_s: Mean time in the replica with k in progress, shape (MOST + 1,).
        error_ratio: Share that fails.
        memory_ratio: Memory in use, NaN = not reported.
        resources: Further use, by the learner's names.
        size_large: Size of a large request; a small one is 1.
        large_share: Share of large requests.
        spread_ratio: Standard deviation / mean of the time of requests of one size.
    """

    name: str
    latency_s: np.ndarray
    error_ratio: np.ndarray = field(default_factory=lambda: np.zeros(MOST + 1))
    memory_ratio: np.ndarray = field(default_factory=lambda: np.full(MOST + 1, np.nan))
    resources: Mapping[str, np.ndarray] = field(default_factory=dict)
    size_large: float = 1.0
    large_share: float = 0.0
    spread_ratio: float = 0.4

    @property
    def goodput_rps(self) -> np.ndarray:
        """Requests per second that succeed, shape (MOST + 1,)."""
        return _K / self.latency_s * (1 - self.error_ratio)

    @property
    def knee(self) -> float:
        """Smallest k whose goodput reaches 95 % of the largest among all k with fewer than 2 % errors.

        Between whole numbers goodput is straight: an average of requests in progress need not be whole.
        """
        good = np.where(self.error_ratio < ACCEPTABLE_ERROR_RATIO, self.goodput_rps, 0.0)
        enough = ENOUGH_RATIO * good.max()
        at = int(np.argmax(good >= enough))
        return at - float((good[at] - enough) / (good[at] - good[at - 1]))


def profiles() -> tuple[Profile, ...]:
    """Return the five of the table."""
    return cpu_bound(), batching_gpu(), memory_cliff(), downstream_bound(), bimodal()


def cpu_bound() -> Profile:
    """8 cores and a little waiting outside: a closed network of 8 servers and a delay, solved exactly."""
    latency = closed_network_s(servers=8, service_s=0.40, delay_s=0.04)
    return Profile(name="CPU, 8 cores", latency_s=latency, resources={"cpu_ratio": _K / latency * 0.40 / 8})


def batching_gpu() -> Profile:
    """A step serves the whole batch of up to 32 and gets 1 % longer with each member; what is over waits for a place.

    The GPU is busy whenever anything runs, whatever the batch: utilisation says nothing of room, bandwidth does.
    """
    batch = np.minimum(np.maximum(_K, 1), 32)
    latency = (1.0 + 0.01 * batch) * np.maximum(_K / 32, 1.0)
    return Profile(
        name="batching GPU",
        latency_s=latency,
        resources={
            "gpu_utilisation_ratio": np.where(_K > 0, 0.97, 0.0),
            "gpu_bandwidth_ratio": 0.35 + 0.4 * batch / 32,
            "gpu_memory_ratio": np.full(MOST + 1, 0.92),  # reserved by the engine at its start
        },
    )


def memory_cliff() -> Profile:
    """Memory for 20: past it three times as slow, and 30 % fail."""
    over = _K > 20
    return Profile(
        name="memory cliff at 20",
        latency_s=(0.5 + 0.01 * _K) * np.where(over, 3.0, 1.0),
        error_ratio=np.where(over, 0.3, 0.0),
        memory_ratio=np.minimum(0.15 + 0.0425 * _K, 1.0),
    )


def downstream_bound() -> Profile:
    """Most of the time is spent waiting for a service that takes 7 at once: own CPU stays idle."""
    latency = closed_network_s(servers=7, service_s=0.30, delay_s=0.05)
    return Profile(name="downstream-bound", latency_s=latency, resources={"cpu_ratio": 0.05 + 0.01 * _K / latency})


def bimodal() -> Profile:
    """The CPU-bound replica with one request in five eight times as large, and no size in the signals."""
    plain = cpu_bound()
    return Profile(
        name="bimodal sizes",
        latency_s=plain.latency_s,
        resources=plain.resources,
        size_large=8.0,
        large_share=0.2,
        spread_ratio=0.2,
    )


def closed_network_s(*, servers: int, service_s: float, delay_s: float) -> np.ndarray:
    """Return the mean time per round of k customers between a delay and a station of several servers.

    Product form (Gordon and Newell 1967): p(n at the station) ~ delay^(k-n) / (k-n)! x prod_{i<=n} service / min(i, c);
    throughput = sum p(n) min(n, c) / service, time = k / throughput.
    """
    log_station = np.cumsum(np.log(service_s / np.minimum(np.maximum(_K, 1), servers)))
    log_station -= log_station[0]
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(_K[1:]))])
    latency = np.empty(MOST + 1)
    for k in range(1, MOST + 1):
        n = np.arange(k + 1)
        weight = (k - n) * np.log(delay_s) - log_factorial[k - n] + log_station[n]
        p = np.exp(weight - weight.max())
        latency[k] = k * service_s * p.sum() / (p * np.minimum(n, servers)).sum()
    latency[0] = latency[1]
    return latency
