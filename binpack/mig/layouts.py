"""Which instances to make on an empty card for the pods that wait: a person's decision, so it is only proposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from binpack.mig.geometry import Geometry, of_card
from binpack.mig.worth import worth
from fleet.device import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Instances for one empty card.

    Attributes:
        partitions: Ascending by start.
        slices: How many memory slices of what waits they serve.
    """

    partitions: tuple[Partition, ...]
    slices: int


def best_layout(model: str, memory_mib: int | None, waiting: Mapping[str, int]) -> Layout | None:
    """Return the instances that serve most of what waits, None where the card is not known or can serve none of it.

    Every combination of starts is weighed: most memory slices served first, then most of the card left open (see
    `worth`), then the lowest starts.

    Args:
        model: Product name.
        memory_mib: Of the card; None = unknown.
        waiting: Pods by the profile that they ask for.
    """
    geometry = of_card(model, memory_mib)
    if geometry is None:
        return None
    names = sorted(name for name, many in waiting.items() if many > 0 and geometry.of(name))
    found = _best(geometry, tuple((name, min(waiting[name], len(geometry.of(name)))) for name in names))
    return found if found.partitions else None


@lru_cache(maxsize=4096)
def _best(geometry: Geometry, waiting: tuple[tuple[str, int], ...]) -> Layout:
    wanted = dict(waiting)
    starts = [start for start in geometry.starts if start.partition.profile in wanted]
    values = worth(geometry)
    best: tuple[int, int, tuple[Partition, ...]] = (0, -int(values[0]), ())

    def search(at: int, busy: int, served: int, chosen: tuple[Partition, ...]) -> None:
        nonlocal best
        key = (-served, -int(values[busy]), tuple(sorted(chosen, key=lambda one: one.start)))
        best = min(best, key)
        for place in range(at, len(starts)):
            start = starts[place]
            profile = start.partition.profile
            if wanted[profile] and not start.mask & busy:
                wanted[profile] -= 1
                search(place + 1, busy | start.mask, served + start.slices, (*chosen, start.partition))
                wanted[profile] += 1

    search(0, 0, 0, ())
    return Layout(partitions=best[2], slices=-best[0])
