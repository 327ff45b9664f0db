"""Multi-instance GPUs: which instance may start where on a card, and which start keeps most others open. Pure."""

from binpack.mig.geometry import Geometry, Start, geometry_of
from binpack.mig.occupancy import fits, free_slices, occupied
from binpack.mig.worth import Choices, choices, worth

__all__ = ["Choices", "Geometry", "Start", "choices", "fits", "free_slices", "geometry_of", "occupied", "worth"]
