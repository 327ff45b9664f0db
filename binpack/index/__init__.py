"""The index: the class-value policy over arrays, any pod answered at once."""

from binpack.index.bookings import UnknownBerthError
from binpack.index.index import Index
from binpack.index.mix import Mix, Shape, default_mix, mix_of
from binpack.index.potential import Weights

__all__ = ["Index", "Mix", "Shape", "UnknownBerthError", "Weights", "default_mix", "mix_of"]
