"""Nodes left to drain for the pods that need several whole devices of one node, before they wait and while they do.

Wherever pods come and go, small ones fill every hole at once, and a pod that needs several whole devices would wait
until a node empties by chance. So nodes are *kept* for such pods: one for each that waits; and of pods that need a node
each, as many as are usually there and not running now (`binpack.index.ahead`). Of the nodes that could ever hold them
those are kept on which most of the opening is free already, so that one that is kept stays so until it is of use.
Everybody else goes there only where no other node has room, and then first to the kept nodes that are furthest from
being of use. All nodes that could hold a pod that needs a node for itself are besides filled in one fixed order, also
while none is missing once some have left, so that the same ones stay full and the same ones drain.

A kept node is never refused to anybody: nothing that fits waits for this. What is kept follows from the books and from
what is usual. The idea is that of a drain in batch systems (backfilling around a reservation: Lifka 1995; Mu'alem &
Feitelson 2001), and of first fit for items that leave (Coffman, Garey & Johnson 1983); differs: nothing is known of how
long pods stay, so nothing is held idle by force.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from binpack.index.ahead import Expected
from binpack.index.arrays import Arrays
from binpack.index.columns import Bools, Floats, Ints
from binpack.index.eligibility import Eligibility
from fleet.device import WHOLE_MILLI
from fleet.pod import Pod

_SEVERAL: Final = 2
_STEP_MILLI: Final = 10_000.0  # dearer than all other costs: a kept node is a last resort, and the nearer the dearer
_ORDER_MILLI: Final = 2_000.0  # from the first to the last node of the fixed order: it decides between like nodes


@dataclass(frozen=True, slots=True)
class _Wanted:
    """How many openings of so many devices to keep on these slots, (n,).

    `places` are those of the slots in the order of names, 0 to 1, and `is_ordered` says whether others fill them in it.
    """

    devices: int
    slots: Ints
    openings: int
    places: Floats
    is_ordered: bool


class Kept:
    """Which nodes are kept, for one set of expected pods over one inventory of nodes."""

    def __init__(self, arrays: Arrays, eligibility: Eligibility, expected: Iterable[Expected]) -> None:
        """Prepare.

        Args:
            arrays: What is free is read from here at every question.
            eligibility: Which nodes names, labels and taints allow.
            expected: Kinds that ask no more than one whole device are passed over. Kinds that the same nodes could
                hold are added up: where one runs more often than usual, less of the other is expected.
        """
        self._arrays = arrays
        found: dict[tuple[int, bytes], tuple[Ints, int, float, bool]] = {}
        for one in expected:
            pod = one.pod
            if pod.ask is None or not asks_several(pod):
                continue
            slots = np.flatnonzero(could_hold(arrays, pod) & eligibility.mask(pod.constraints)[: arrays.count])
            if len(slots):
                key = (pod.ask.count, slots.tobytes())
                _, waiting, missing, leave = found.get(key, (slots, 0, 0.0, False))
                found[key] = (slots, waiting + one.waiting, missing + one.missing, leave or one.leaves)
        ordered = sorted(found.items(), key=lambda item: (-item[0][0], len(item[1][0]), item[0][1]))
        self._wanted = []
        for (devices, _), (slots, waiting, missing, leave) in ordered:
            is_node_each = _is_node_each(arrays, devices, slots)
            openings = max(waiting, round(missing)) if is_node_each else waiting
            if openings > 0 or (leave and is_node_each):
                places = np.argsort(np.argsort(arrays.order[slots])) / len(slots)
                self._wanted.append(_Wanted(devices, slots, max(0, openings), places, is_ordered=is_node_each))

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
            nearest = np.lexsort((-places, free.sum(axis=1), -opening_milli))[: wanted.openings]
            taken[slots[nearest]] = True
            if wanted.is_ordered:
                cost[slots] += _ORDER_MILLI * places
            cost[slots[nearest]] += _STEP_MILLI * (1 + opening_milli[nearest] // WHOLE_MILLI)


def _is_node_each(arrays: Arrays, devices: int, slots: Ints) -> bool:
    """Return whether no node could hold two such pods.

    Smaller openings come by themselves more often, and to keep them would put nodes of all sizes into one order.
    """
    held = np.array([one.devices for one in arrays.classes], np.int64)[arrays.node_class[slots]]
    return bool((held < 2 * devices).all())


def asks_several(pod: Pod) -> bool:
    """Return whether the pod needs several whole devices of one node."""
    return pod.ask is not None and pod.ask.is_whole and pod.ask.count >= _SEVERAL


def could_hold(arrays: Arrays, pod: Pod) -> Bools:
    """Return which slots could hold the pod if nothing else were on them, (count,)."""
    assert pod.ask is not None
    accepted = arrays.models.ranks(pod.ask.models) >= 0
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
