"""Bookings of an index for the time of a thought: what is tried is given back, whatever happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from binpack.index import Index
from fleet.plan import Placement
from fleet.pod import Pod


@contextmanager
def what_if(index: Index) -> Iterator[list[tuple[Pod, Placement]]]:
    """Give back on leaving, in reverse, whatever was noted as booked."""
    booked: list[tuple[Pod, Placement]] = []
    try:
        yield booked
    finally:
        for pod, placement in reversed(booked):
            index.give_back(pod, placement.berth)


@contextmanager
def held(index: Index, placements: Iterable[Placement], pods: Mapping[str, Pod]) -> Iterator[None]:
    """Have these placements booked meanwhile.

    Args:
        index: Where.
        placements: Of the pods, by uid.
        pods: By uid.

    Raises:
        UnknownBerthError: The index does not know one of the berths; nothing is booked then.
    """
    with what_if(index) as booked:
        for placement in placements:
            index.take(pods[placement.pod_uid], placement.berth)
            booked.append((pods[placement.pod_uid], placement))
        yield
