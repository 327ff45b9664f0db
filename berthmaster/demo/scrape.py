"""Quantiles out of a Prometheus histogram, read from a process's own /metrics."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families


def fetch(url: str, *, timeout_s: float = 5.0) -> str:
    """Return the text at an http address on this machine."""
    if not url.startswith("http://127.0.0.1:"):
        raise ValueError(f"{url} is not on this machine")
    with urllib.request.urlopen(url, timeout=timeout_s) as answer:  # noqa: S310 - http to this machine, checked above
        text: str = answer.read().decode()
    return text


def histogram_quantile(text: str, name: str, labels: dict[str, str], quantiles: Iterable[float]) -> list[float | None]:
    """Return quantiles of one histogram by linear interpolation inside its buckets, as Prometheus does.

    None where the histogram is empty; the upper edge of the last finite bucket where the quantile lies beyond it.
    """
    buckets = sorted(
        (float(sample.labels["le"]), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"{name}_bucket" and labels.items() <= sample.labels.items()
    )
    return [_quantile(buckets, q) for q in quantiles]


def _quantile(buckets: list[tuple[float, float]], q: float) -> float | None:
    total = buckets[-1][1] if buckets else 0.0
    if total == 0:
        return None
    rank, low, below = q * total, 0.0, 0.0
    for high, count in buckets:
        if count >= rank:
            if high == float("inf"):
                return low
            return low + (high - low) * (rank - below) / max(count - below, 1e-9)
        low, below = high, count
    return low
