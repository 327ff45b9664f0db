"""Packing quality on the openb protocol."""

from bench.openb.published import PUBLISHED
from bench.openb.store import RESULTS

__all__ = ["PUBLISHED", "RESULTS"]
