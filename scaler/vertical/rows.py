"""What of a cycle can be learnt from: usable rows, each latency beside the concurrency that its requests lived in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scaler.vertical.values import Booleans, Cycle, Floats, Integers

HIGHEST_CONCURRENCY = 20_000.0  # past it a reading is a fault, not a load
LOWEST_COMPLETIONS, HIGHEST_COMPLETIONS = 1e-3, 1e9  # a second shared by several may be told in parts
SHORTEST_LATENCY_S, LONGEST_LATENCY_S = 1e-6, 86_400.0
SMALLEST_SIZE, LARGEST_SIZE = 1e-6, 1e12
LOWEST_CONCURRENCY = 0.25  # below it an average says how seldom requests came, not what they met
KNOWN_SIZES_RATIO = 0.8  # from this share of known sizes on, latency is counted per unit of size
LONGEST_CYCLE_S = 600.0
_FEWEST_COVER = 0.5  # of a request's life that must lie in the cycle, for its concurrency to be known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """The usable part of a cycle in which requests ended; shapes (M,).

    Attributes:
        replica: Index of the replica.
        in_flight: Requests in progress in the row's second.
        k: Requests in progress while those lived that ended in the row's second.
        latency_s: Their mean latency, per unit of size where sizes are known.
        p95_s: 95th percentile as measured, NaN = missing.
        completions: Requests that ended.
        errors: Requests that failed.
        memory_ratio: NaN = missing.
        resources: As in the cycle.
        seconds: Usable replica-seconds, those in which nothing ended among them.
        dropped: Replica-seconds that were not usable.
    """

    replica: Integers
    in_flight: Floats
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
    Little's: in_flight / completions.

    Args:
        cycle: As seen.
        skip_s: Seconds at the beginning to leave out, because a limit changed then: requests begun under the old one
            say nothing about the new.
    """
    latency = _latency_s(cycle)
    within = (latency >= SHORTEST_LATENCY_S) & (latency <= LONGEST_LATENCY_S)
    good = _plausible(cycle) & (within | (cycle.completions == 0))
    ended = good & (cycle.completions > 0)
    lived_k, cover = _lived_in(cycle, good, ended)
    chosen = ended & (cycle.second >= skip_s) & (cover >= min(_FEWEST_COVER, cover[ended].max(initial=0.0)))
    completions = cycle.completions[chosen]
    errors = np.nan_to_num(cycle.errors[chosen], nan=0.0, posinf=0.0, neginf=0.0)
    return Rows(
        replica=cycle.replica[chosen],
        in_flight=cycle.in_flight[chosen],
        k=np.maximum(lived_k[chosen], LOWEST_CONCURRENCY),
        latency_s=_per_size(latency[chosen], cycle.size[chosen], completions),
        p95_s=_plausible_p95_s(cycle.p95_s[chosen]),
        completions=completions,
        errors=np.clip(errors, 0.0, completions),
        memory_ratio=_ratio(cycle.memory_ratio[chosen]),
        resources={name: _ratio(values[chosen]) for name, values in cycle.resources.items()},
        seconds=int((good & (cycle.second >= skip_s)).sum()),
        dropped=int((~good).sum()),
    )


def _plausible(cycle: Cycle) -> Booleans:
    return np.asarray(
        (cycle.in_flight >= 0)
        & (cycle.in_flight <= HIGHEST_CONCURRENCY)
        & ((cycle.completions == 0) | (cycle.completions >= LOWEST_COMPLETIONS))
        & (cycle.completions <= HIGHEST_COMPLETIONS)
        & (cycle.second >= 0)
        & (cycle.second < LONGEST_CYCLE_S)
        & (cycle.replica >= 0)
        & (cycle.replica < len(cycle.names))
    )


def _latency_s(cycle: Cycle) -> Floats:
    with np.errstate(all="ignore"):
        is_measured = np.isfinite(cycle.latency_s) & (cycle.latency_s > 0)
        return np.asarray(np.where(is_measured, cycle.latency_s, cycle.in_flight / cycle.completions))


def _plausible_p95_s(p95_s: Floats) -> Floats:
    return np.where((p95_s >= SHORTEST_LATENCY_S) & (p95_s <= LONGEST_LATENCY_S), p95_s, np.nan)


def _per_size(latency_s: Floats, size: Floats, completions: Floats) -> Floats:
    """Return latency per unit of size where the sizes of most requests are known, else as it is."""
    sized = (size >= SMALLEST_SIZE) & (size <= LARGEST_SIZE)
    known = completions[sized].sum()
    if not known or known < KNOWN_SIZES_RATIO * completions.sum():
        return latency_s
    usual = np.average(size[sized], weights=completions[sized])
    return np.asarray(latency_s / np.where(sized, size, usual))


def _ratio(values: Floats) -> Floats:
    return np.where((values >= 0) & (values <= 2.0), values, np.nan)


def _lived_in(cycle: Cycle, good: Booleans, ended: Booleans) -> tuple[Floats, Floats]:
    """Return the concurrency that the requests which ended in each row lived in, and how much of their life is known.

    A request that ends at t lived in [t - R, t]. k = sum_j w_j k(second - j), w the average overlap of such lives with
    the second that is j earlier; R = Little's mean of the cycle. Comparing a latency with the second of its end instead
    reads fast changes of load as a slow replica at low concurrency (measured: bench/scaler).
    """
    k = np.where(ended, cycle.in_flight, 0.0)
    cover = np.where(ended, 1.0, 0.0)
    if not ended.any():
        return k, cover
    life_s = float(cycle.in_flight[good].sum() / cycle.completions[good].sum())
    length = int(cycle.second[good].max()) + 1
    weights = _overlaps(min(life_s, float(length)))
    shape = (len(cycle.names), length)
    at = cycle.replica[good], cycle.second[good].astype(np.int64)
    load, known = np.zeros(shape), np.zeros(shape)
    load[at], known[at] = cycle.in_flight[good], 1.0
    sum_k, sum_known = np.zeros(shape), np.zeros(shape)
    for lag, weight in enumerate(weights[:length]):
        sum_k[:, lag:] += weight * load[:, : length - lag]
        sum_known[:, lag:] += weight * known[:, : length - lag]
    k[good] = (sum_k / np.maximum(sum_known, 1e-12))[at]
    cover[good] = sum_known[at]
    return k, np.where(ended, cover, 0.0)


def _overlaps(life_s: float) -> Floats:
    """Return w_j, shape (J,), summing to 1: of lives that end anywhere in a second, the part j seconds earlier."""
    life_s = max(life_s, 1e-3)
    end = (np.arange(16) + 0.5) / 16
    j = np.arange(int(np.ceil(life_s)) + 1)[:, None]
    overlap = np.minimum(end, 1.0 - j) - np.maximum(end - life_s, -j)
    weights = np.maximum(overlap, 0.0).mean(axis=1)
    return np.asarray(weights / weights.sum(), dtype=np.float64)
