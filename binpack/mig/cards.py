"""The profiles of each card with MIG, made from what its vendor documents.

Two chips tell all: one whose memory is cut in eight and whose compute in seven, one that is cut in four. A product
differs by the sizes in its profiles' names alone. Sources: NVIDIA Multi-Instance GPU User Guide, v580 and later:
"Supported MIG Profiles" for names, parts of memory and numbers of instances (A30, A100, H100, H200, B200), "Creating
GPU Instances" for the starts that `nvidia-smi mig -lgipp` lists; GPU operator v25.3 (default mig-parted configuration)
for the names on H20, GB200 and B300. That two instances may not share a memory slice is NVML's rule
(nvmlDeviceGetGpuInstancePossiblePlacements). It bounds the compute too: the eighth slice of memory is only ever the
last of an instance that has fewer slices of compute than of memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_MIB_PER_GIB: Final = 1024
_TOLERANCE_RATIO: Final = 0.1  # drivers keep some of a card's memory to themselves


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of instance.

    Attributes:
        name: As users and nvidia-smi write it.
        compute: Slices of compute, the number before its g.
        slices: Slices of memory it takes, without a gap.
        starts: The memory slices at which it may begin.
        has_media: It takes the media extensions, of which a card has one set.
    """

    name: str
    compute: int
    slices: int
    starts: tuple[int, ...]
    has_media: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One product.

    Attributes:
        product: A word of its product name.
        memory_gb: By which products of one name differ.
        slices: Of its memory.
    """

    product: str
    memory_gb: int
    slices: int
    profiles: tuple[Profile, ...]


# product, memory, and the memory in the names of instances of 1, 2, 4 and 8 slices
_SEVENTHS: Final = (
    ("A100", 40, (5, 10, 20, 40)),
    ("A100", 80, (10, 20, 40, 80)),
    ("H100", 80, (10, 20, 40, 80)),
    ("H100", 94, (12, 24, 47, 94)),
    ("H100", 96, (12, 24, 48, 96)),
    ("GH200", 96, (12, 24, 48, 96)),
    ("H20", 96, (12, 24, 48, 96)),
    ("H200", 141, (18, 35, 71, 141)),
    ("B200", 180, (23, 45, 90, 180)),
    ("GB200", 186, (23, 47, 93, 186)),
    ("B300", 269, (34, 67, 135, 269)),
)


def _in_seventh(gb: tuple[int, int, int, int]) -> Iterator[Profile]:
    """Yield the profiles of a card whose memory is cut in eight and whose compute in seven."""
    first = tuple(range(7))
    yield Profile(name=f"1g.{gb[0]}gb", compute=1, slices=1, starts=first)
    yield Profile(name=f"1g.{gb[0]}gb+me", compute=1, slices=1, starts=first, has_media=True)
    yield Profile(name=f"1g.{gb[1]}gb", compute=1, slices=2, starts=(0, 2, 4, 6))
    yield Profile(name=f"2g.{gb[1]}gb", compute=2, slices=2, starts=(0, 2, 4))
    yield Profile(name=f"3g.{gb[2]}gb", compute=3, slices=4, starts=(0, 4))
    yield Profile(name=f"4g.{gb[2]}gb", compute=4, slices=4, starts=(0,))
    yield Profile(name=f"7g.{gb[3]}gb", compute=7, slices=8, starts=(0,))


def _in_fourth() -> Iterator[Profile]:
    """Yield the profiles of the A30."""
    yield Profile(name="1g.6gb", compute=1, slices=1, starts=(0, 1, 2, 3))
    yield Profile(name="1g.6gb+me", compute=1, slices=1, starts=(0, 1, 2, 3), has_media=True)
    yield Profile(name="2g.12gb", compute=2, slices=2, starts=(0, 2))
    yield Profile(name="2g.12gb+me", compute=2, slices=2, starts=(0, 2), has_media=True)
    yield Profile(name="4g.24gb", compute=4, slices=4, starts=(0,))


CARDS: Final = (
    *(
        Card(product=product, memory_gb=memory_gb, slices=8, profiles=tuple(_in_seventh(gb)))
        for product, memory_gb, gb in _SEVENTHS
    ),
    Card(product="A30", memory_gb=24, slices=4, profiles=tuple(_in_fourth())),
)


@lru_cache(maxsize=1024)
def card_of(model: str, memory_mib: int | None) -> Card | None:
    """Return the card with this product name and memory; None where none is known, or more than one could be meant.

    Args:
        model: NVIDIA-H100-80GB-HBM3, say.
        memory_mib: As the driver tells it; None = unknown, then a size in the name must tell products apart.
    """
    words = re.split(r"[^A-Z0-9]+", model.upper())
    named = [card for card in CARDS if card.product in words]
    if memory_mib is None:
        sized = [card for card in named if f"{card.memory_gb}GB" in words]
        found = sized or named
        return found[0] if len(found) == 1 else None
    gb = memory_mib / _MIB_PER_GIB
    near = [card for card in named if abs(gb - card.memory_gb) <= _TOLERANCE_RATIO * card.memory_gb]
    return min(near, key=lambda card: abs(gb - card.memory_gb), default=None)
