"""What a cycle of 30 s looked like from each replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cycle:
    """One row per replica and second; NaN = missing.

    Attributes:
        replica: Index into `names`, shape (N,).
        second: Seconds since the cycle began, shape (N,).
        in_flight: Requests in progress, time average over the second.
        latency_s: Mean time in the replica of the requests that ended in the second.
        p95_s: Their 95th percentile.
        completions: Requests that ended, failed ones among them.
        errors: Requests that failed.
        memory_ratio: Memory in use / limit; a full second may lack it.
        size: Mean size of the requests that ended (tokens, bytes, any unit), NaN = unknown.
        resources: Further use by name, 0..1, each shape (N,): see `thresholds`.
        names: Replicas.
        replicas: Ready ones; may be more than those with rows.
        starting: Ordered and not Ready.
        is_late: Whether requests waited too long for a slot in this cycle.
        since_rollout_s: Since the last change of version or pod template; inf = never.
    """

    replica: Integers
    second: Floats
    in_flight: Floats
    latency_s: Floats
    p95_s: Floats
    completions: Floats
    errors: Floats
    memory_ratio: Floats
    size: Floats
    names: tuple[str, ...]
    replicas: int
    resources: Mapping[str, Floats] = field(default_factory=dict)
    starting: int = 0
    is_late: bool = False
    since_rollout_s: float = np.inf
