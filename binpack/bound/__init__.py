"""How far any method could get: a proven limit beside every result."""

from binpack.bound.limit import Bound, Bounds, bound_of
from binpack.bound.milestones import bounds_at

__all__ = ["Bound", "Bounds", "bound_of", "bounds_at"]
