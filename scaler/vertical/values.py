"""What a cycle of 30 s looked like from each replica, and what of it can be learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

HIGHEST_CONCURRENCY = 20_000.0  # past it a reading is a fault, not a load
SHORTEST_LATENCY_S, LONGEST_LATENCY_S = 1e-6, 86_400.0
KNOWN_SIZES_RATIO = 0.8  # from this share of known sizes on, latency is counted per unit of size


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """The usable part of a cycle, averaged over windows as long as the requests need; shapes (M,).

    Attributes:
        replica: Index of the replica.
        k: Requests in progress.
        latency_s: Mean latency, per unit of size where sizes are known.
        p95_s: 95th percentile as measured, NaN = missing.
        completions: Requests that ended.
        errors: Requests that failed.
        memory_ratio: NaN = missing.
        resources: As in the cycle.
        seconds: Replica-seconds behind all rows.
        dropped: Replica-seconds that were not usable.
    """

    replica: Integers
    k: Floats
    latency_s: Floats
    p95_s: Floats
    completions: Floats
    errors: Floats
    memory_ratio: Floats
    resources: Mapping[str, Floats]
    seconds: int
    dropped: int


def usable_rows(cycle: Cycle, *, skip_s: float = 0.0) -> Rows:
    """Return what can be learnt from.

    Rows without a finite, plausible in-flight and completion count are dropped and counted. A missing latency is
    Little's: in_flight / completions. Requests that take long are averaged over max(1 s, 2 x latency), so that what
    ended is compared with what was in progress while it ran.

    Args:
        cycle: As seen.
        skip_s: Seconds at the beginning to leave out, because a limit changed then: requests begun under the old one
            say nothing about the new.
    """
    with np.errstate(all="ignore"):
        errors = np.where(np.isfinite(cycle.errors) & (cycle.errors > 0), cycle.errors, 0.0)
        latency = np.where(
            np.isfinite(cycle.latency_s) & (cycle.latency_s > 0), cycle.latency_s, cycle.in_flight / cycle.completions
        )
        good = (
            (cycle.in_flight >= 0)
            & (cycle.in_flight <= HIGHEST_CONCURRENCY)
            & (cycle.completions >= 0)
            & np.isfinite(cycle.completions)
            & (cycle.replica >= 0)
            & (cycle.replica < len(cycle.names))
        )
        within = (latency >= SHORTEST_LATENCY_S) & (latency <= LONGEST_LATENCY_S)
        good &= within | (cycle.completions == 0)
    kept = good & (cycle.second >= skip_s)
    completions = np.where(kept, cycle.completions, 0.0)
    latency = np.where(within, latency, 0.0)
    sized = kept & np.isfinite(cycle.size) & (cycle.size > 0)
    known = completions[sized].sum()
    if known > 0 and known >= KNOWN_SIZES_RATIO * completions.sum():
        usual = np.average(cycle.size[sized], weights=completions[sized])
        latency = latency / np.where(sized, cycle.size, usual)
    rows = Rows(
        replica=cycle.replica[kept],
        k=cycle.in_flight[kept],
        latency_s=latency[kept],
        p95_s=cycle.p95_s[kept],
        completions=completions[kept],
        errors=np.minimum(errors[kept], completions[kept]),
        memory_ratio=_ratio(cycle.memory_ratio[kept]),
        resources={name: _ratio(values[kept]) for name, values in cycle.resources.items()},
        seconds=int(kept.sum()),
        dropped=int((~good).sum()),
    )
    return _windowed(rows, cycle.second[kept], len(cycle.names))


def _ratio(values: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where((values >= 0) & (values <= 2.0), values, np.nan)


def _windowed(rows: Rows, second: Floats, replicas: int) -> Rows:
    total = rows.completions.sum()
    raw_s = rows.k.sum() / total if total > 0 else 0.0  # Little: real seconds, whatever the sizes
    window_s = max(1.0, np.ceil(2 * raw_s))
    if window_s <= 1 or not rows.k.size:
        return _ended(rows)
    at = np.clip(np.nan_to_num(second) // window_s, 0, 10_000).astype(np.int64)
    _, group = np.unique(rows.replica * (at.max() + 1) + at, return_inverse=True)
    count = np.bincount(group).astype(np.float64)
    ended: Floats = np.bincount(group, rows.completions).astype(np.float64)
    first = np.unique(group, return_index=True)[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        return _ended(
            replace(
                rows,
                replica=rows.replica[first],
                k=np.bincount(group, rows.k) / count,
                latency_s=np.bincount(group, rows.latency_s * rows.completions) / ended,
                p95_s=_mean(group, rows.p95_s, rows.completions),
                completions=ended,
                errors=np.bincount(group, rows.errors).astype(np.float64),
                memory_ratio=_mean(group, rows.memory_ratio),
                resources={name: _mean(group, values) for name, values in rows.resources.items()},
            )
        )


def _mean(group: Integers, values: Floats, weights: Floats | None = None) -> Floats:
    """Return the mean of the known values of each group; call where a division by zero may be NaN."""
    known = np.isfinite(values) * (1.0 if weights is None else weights)
    return np.bincount(group, np.nan_to_num(values) * known) / np.bincount(group, known)


def _ended(rows: Rows) -> Rows:
    """Leave out the rows in which nothing ended: they have no latency."""
    some = rows.completions > 0
    return replace(
        rows,
        replica=rows.replica[some],
        k=rows.k[some],
        latency_s=rows.latency_s[some],
        p95_s=rows.p95_s[some],
        completions=rows.completions[some],
        errors=rows.errors[some],
        memory_ratio=rows.memory_ratio[some],
        resources={name: values[some] for name, values in rows.resources.items()},
    )
