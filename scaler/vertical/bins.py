"""What was seen at each level of concurrency, 12 % wide, old cycles fading."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.vertical.rows import HIGHEST_CONCURRENCY, LOWEST_CONCURRENCY, Rows
from scaler.vertical.values import Floats, Integers

WIDTH_RATIO = 1.12
COUNT = 1 + int(np.ceil(np.log(HIGHEST_CONCURRENCY / LOWEST_CONCURRENCY) / np.log(WIDTH_RATIO)))
HALF_LIFE_CYCLES = 23  # of cycles that had traffic: about 12 minutes (measured: bench/scaler)
FADE_RATIO = 0.5 ** (1 / HALF_LIFE_CYCLES)
FEWEST_COMPLETIONS = 5.0  # below it a bin says nothing

_COMPLETIONS, _K, _LATENCY, _P95, _P95_COUNT, _ENDED, _ENDED_K, _FAILED = range(8)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """Means of the bins that hold enough, lowest concurrency first; shapes (B,).

    Attributes:
        k: Requests in progress.
        latency_s: Mean latency.
        p95_s: 95th percentile, NaN = never measured there.
        completions: Faded count behind it.
    """

    k: Floats
    latency_s: Floats
    p95_s: Floats
    completions: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Failures:
    """Failed requests by the concurrency of the second in which they ended, lowest first; shapes (B,).

    Attributes:
        k: Requests in progress.
        ended: Faded count.
        failed: Of them.
    """

    k: Floats
    ended: Floats
    failed: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Faded sums, shape (8, COUNT), read-only: about 7 KB.

    Latencies stand at the concurrency that requests lived in, failures at that of the second in which they ended: what
    runs out of memory fails at once.

    Attributes:
        sums: Completions, and weighted by them k, latency, and p95 with its own weight; ended, their k, and failed.
    """

    sums: Floats

    @staticmethod
    def empty() -> Bins:
        """Return bins that saw nothing."""
        return Bins(_frozen(np.zeros((8, COUNT))))

    def faded(self) -> Bins:
        """Return the bins one cycle later."""
        return Bins(_frozen(self.sums * FADE_RATIO))

    def rescaled(self, latency_ratio: float, most: float = np.inf) -> Bins:
        """Return the bins with all latencies times a ratio, and none of more weight than `most` requests.

        What slows a replica down as a whole leaves the form of its curve, and so its knee, where it was.
        """
        sums = self.sums * np.minimum(1.0, most / np.maximum(self.sums[_COMPLETIONS], 1e-9))
        sums[[_LATENCY, _P95]] *= latency_ratio
        return Bins(_frozen(sums))

    def with_rows(self, rows: Rows) -> Bins:
        """Return the bins with a cycle added."""
        index = bin_of(rows.k)
        has_p95 = np.isfinite(rows.p95_s) & (rows.p95_s > 0)
        p95_weight = np.where(has_p95, rows.completions, 0.0)
        columns = (
            rows.completions,
            rows.completions * rows.k,
            rows.completions * rows.latency_s,
            np.where(has_p95, rows.p95_s, 0.0) * p95_weight,
            p95_weight,
        )
        ended = bin_of(rows.in_flight), (rows.completions, rows.completions * rows.in_flight, rows.errors)
        added = [np.bincount(at, column, COUNT) for at, group in ((index, columns), ended) for column in group]
        return Bins(_frozen(self.sums + np.stack(added)))

    def points(self) -> Points:
        """Return the means of the bins with at least FEWEST_COMPLETIONS."""
        sums = self.sums[:, self.sums[_COMPLETIONS] >= FEWEST_COMPLETIONS]
        ended = sums[_COMPLETIONS]
        return Points(
            k=sums[_K] / ended,
            latency_s=sums[_LATENCY] / ended,
            p95_s=np.divide(sums[_P95], sums[_P95_COUNT], out=np.full(ended.shape, np.nan), where=sums[_P95_COUNT] > 0),
            completions=ended,
        )

    def failures(self) -> Failures:
        """Return failures by concurrency, of the bins with at least FEWEST_COMPLETIONS."""
        sums = self.sums[:, self.sums[_ENDED] >= FEWEST_COMPLETIONS]
        return Failures(k=sums[_ENDED_K] / sums[_ENDED], ended=sums[_ENDED], failed=sums[_FAILED])


def bin_of(k: Floats) -> Integers:
    """Return the bin of each concurrency: floor(ln(k / 0.25) / ln 1.12), the ends holding what lies outside."""
    at = np.floor(np.log(np.maximum(k, LOWEST_CONCURRENCY) / LOWEST_CONCURRENCY) / np.log(WIDTH_RATIO))
    index: Integers = np.clip(at, 0, COUNT - 1).astype(np.int64)
    return index


def _frozen(values: Floats) -> Floats:
    values.flags.writeable = False
    return values
