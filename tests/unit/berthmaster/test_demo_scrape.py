"""Quantiles out of a process's own histogram."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from berthmaster.demo.scrape import fetch, histogram_quantile

BUCKETS = (0.001, 0.01, 0.1, 1.0)


def text_of(*observed, verb="filter"):
    registry = CollectorRegistry()
    histogram = Histogram("berthmaster_x_seconds", "x", ["verb"], buckets=BUCKETS, registry=registry)
    histogram.labels(verb="other").observe(0.5)
    for value in observed:
        histogram.labels(verb=verb).observe(value)
    return generate_latest(registry).decode()


def quantiles(text, *qs):
    return histogram_quantile(text, "berthmaster_x_seconds", {"verb": "filter"}, qs)


def test_inside_a_bucket_it_is_interpolated():
    # Ten values in (0.001, 0.01]: the median lies in the middle of the bucket.
    assert quantiles(text_of(*[0.005] * 10), 0.5)[0] == pytest.approx(0.0055)


def test_other_labels_are_not_counted():
    assert quantiles(text_of(0.005), 1.0)[0] == pytest.approx(0.01)


def test_nothing_observed_is_none_and_not_zero():
    assert quantiles(text_of(), 0.5, 0.99) == [None, None]
    assert quantiles("", 0.5) == [None]


def test_beyond_the_last_bucket_its_edge_is_told():
    assert quantiles(text_of(5.0, 6.0), 0.5) == [1.0]


@given(st.lists(st.floats(0.0001, 0.9), min_size=1, max_size=50))
def test_quantiles_grow_with_q_and_stay_in_the_buckets_of_what_was_observed(observed):
    low, middle, high = quantiles(text_of(*observed), 0.1, 0.5, 1.0)
    assert low <= middle <= high
    edge = next(bucket for bucket in BUCKETS if bucket >= max(observed))
    assert high <= edge * (1 + 1e-9)


def test_only_this_machine_is_asked():
    with pytest.raises(ValueError, match="not on this machine"):
        fetch("http://example.com/metrics")
