"""Nodes left to drain for the pods that wait for several whole devices of one node.

Wherever pods come and go, small ones fill every hole at once, and a pod that needs several whole devices would wait
until a node empties by chance. So while such pods wait, one node is *kept* for each: of those that could ever hold it,
the ones on which most of the opening is free already. Everybody else goes there only where no other node has room, and
then first to the kept nodes that are furthest from being of use. All nodes that could hold a waiting pod are besides
filled in one fixed order, so that the same ones stay full and the same ones drain.

A kept node is never refused to anybody: nothing that fits waits for this. What is kept follows from the state alone.
The idea is that of a drain in batch systems (backfilling around a reservation: Lifka 1995; Mu'alem & Feitelson 2001),
and of first fit for items that leave (Coffman, Garey & Johnson 1983); differs: nothing is known of how long pods stay,
so nothing is held idle by force.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from binpack.index.arrays import Arrays, Bools, Floats, Ints
from binpack.index.eligibility import Eligibility
from fleet.device import WHOLE_MILLI
from fleet.pod import Pod

_SEVERAL: Final = 2
_STEP_MILLI: Final = 10_000.0  # dearer than all other costs: a kept node is a last resort, and the nearer the dearer
_ORDER_MILLI: Final = 2_000.0  # from the first to the last node of the fixed order: it decides between like nodes


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How many pods wait for so many devices on one of these slots, (n,); the slots' places in the order, 0 to 1."""

    devices: int
    slots: Ints
    pods: int
    places: Floats


class Kept:
    """Which nodes are kept, for one set of waiting pods over one inventory of nodes."""

    def __init__(self, arrays: Arrays, eligibility: Eligibility, waiting: Iterable[tuple[Pod, int]]) -> None:
        """Prepare.

        Args:
            arrays: What is free is read from here at every question.
            eligibility: Which nodes names, labels and taints allow.
            waiting: One pod of each kind and how many of it wait; kinds that ask no more than one whole device are
                passed over.
        """
        self._arrays = arrays
        found: dict[tuple[int, bytes], tuple[Ints, int]] = {}
        for pod, pods in waiting:
            if pod.ask is None or not asks_several(pod):
                continue
            slots = np.flatnonzero(_could_hold(arrays, pod) & eligibility.mask(pod.constraints)[: arrays.count])
            if len(slots):
                key = (pod.ask.count, slots.tobytes())
                found[key] = (slots, pods + (found[key][1] if key in found else 0))
        ordered = sorted(found.items(), key=lambda item: (-item[0][0], len(item[1][0]), item[0][1]))
        self._wanted = [
            _Wanted(devices, slots, pods, np.argsort(np.argsort(arrays.order[slots])) / len(slots))
            for (devices, _), (slots, pods) in ordered
        ]

    def __bool__(self) -> bool:
        """Return whether any node is kept at all."""
        return bool(self._wanted)

    def charge(self, pod: Pod, cost: Floats) -> None:
        """Add to the cost, (count,), what it costs the pod to go to a node that is kept for others."""
        own = pod.ask.count if pod.ask is not None and asks_several(pod) else 0
        taken: Bools | None = None
        for wanted in self._wanted:
            if wanted.devices <= own:
                break
            if taken is None:
                taken = np.zeros(len(cost), np.bool_)
            is_open = ~taken[wanted.slots]
            slots, places = wanted.slots[is_open], wanted.places[is_open]
            free = np.sort(self._arrays.residual[slots], axis=1)
            opening_milli = free[:, -wanted.devices :].sum(axis=1)
            nearest = np.lexsort((-places, free.sum(axis=1), -opening_milli))[: wanted.pods]
            taken[slots[nearest]] = True
            cost[slots] += _ORDER_MILLI * places
            cost[slots[nearest]] += _STEP_MILLI * (1 + opening_milli[nearest] // WHOLE_MILLI)


def asks_several(pod: Pod) -> bool:
    """Return whether the pod needs several whole devices of one node."""
    return pod.ask is not None and pod.ask.is_whole and pod.ask.count >= _SEVERAL


def _could_hold(arrays: Arrays, pod: Pod) -> Bools:
    """Return which slots could hold the pod if nothing else were on them, (count,)."""
    assert pod.ask is not None
    accepted = arrays.ranks(pod.ask.models) >= 0
    by_class = np.array(
        [
            one.devices >= pod.ask.count
            and one.milli_cpu >= pod.requests.milli_cpu
            and one.memory_bytes >= pod.requests.memory_bytes
            and bool(accepted[one.model])
            for one in arrays.classes
        ],
        np.bool_,
    )
    found: Bools = by_class[arrays.node_class[: arrays.count]] & (arrays.live[: arrays.count] > 0)
    return found
