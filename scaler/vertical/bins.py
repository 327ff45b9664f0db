"""What was seen at each level of concurrency, 12 % wide, old cycles fading."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.vertical.values import HIGHEST_CONCURRENCY, Floats, Integers, Rows

WIDTH_RATIO = 1.12
LOWEST = 0.25
COUNT = 1 + int(np.ceil(np.log(HIGHEST_CONCURRENCY / LOWEST) / np.log(WIDTH_RATIO)))
HALF_LIFE_CYCLES = 23  # of cycles that had traffic: about 12 minutes (measured: bench/scaler)
FADE_RATIO = 0.5 ** (1 / HALF_LIFE_CYCLES)
FEWEST_COMPLETIONS = 5.0  # below it a bin says nothing

_COMPLETIONS, _K, _LATENCY, _P95, _P95_COUNT, _ERRORS = range(6)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """Means of the bins that hold enough, lowest concurrency first; shapes (B,).

    Attributes:
        k: Requests in progress.
        latency_s: Mean latency.
        p95_s: 95th percentile, NaN = never measured there.
        completions: Faded count behind it.
        error_ratio: Failed / ended.
    """

    k: Floats
    latency_s: Floats
    p95_s: Floats
    completions: Floats
    error_ratio: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Faded sums, shape (6, COUNT), read-only: about 5 KB.

    Attributes:
        sums: Completions, and weighted by them k, latency and p95 with its own weight, and errors.
    """

    sums: Floats

    @staticmethod
    def empty() -> Bins:
        """Return bins that saw nothing."""
        return Bins(_frozen(np.zeros((6, COUNT))))

    def faded(self) -> Bins:
        """Return the bins one cycle later."""
        return Bins(_frozen(self.sums * FADE_RATIO))

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
            rows.errors,
        )
        return Bins(_frozen(self.sums + np.stack([np.bincount(index, column, COUNT) for column in columns])))

    def points(self) -> Points:
        """Return the means of the bins with at least FEWEST_COMPLETIONS."""
        sums = self.sums[:, self.sums[_COMPLETIONS] >= FEWEST_COMPLETIONS]
        ended = sums[_COMPLETIONS]
        return Points(
            k=sums[_K] / ended,
            latency_s=sums[_LATENCY] / ended,
            p95_s=np.divide(sums[_P95], sums[_P95_COUNT], out=np.full(ended.shape, np.nan), where=sums[_P95_COUNT] > 0),
            completions=ended,
            error_ratio=sums[_ERRORS] / ended,
        )


def bin_of(k: Floats) -> Integers:
    """Return the bin of each concurrency: floor(ln(k / 0.25) / ln 1.12), the ends holding what lies outside."""
    at = np.floor(np.log(np.maximum(k, LOWEST) / LOWEST) / np.log(WIDTH_RATIO))
    index: Integers = np.clip(at, 0, COUNT - 1).astype(np.int64)
    return index


def _frozen(values: Floats) -> Floats:
    values.flags.writeable = False
    return values
