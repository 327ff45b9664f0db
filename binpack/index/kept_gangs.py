"""Nodes left to drain for gangs that wait: as many as all members of one could be on if nothing else were there.

A gang holds nothing before all of it fits, so pods that come and go one by one could keep it waiting for ever. Of the
nodes that could hold its members those are kept of which the largest part is free already, until there is room for all
of them: everybody else goes there only where no other node has room, and first to those that are furthest from being of
use. That is the reservation of backfilling schedulers (Lifka 1995; Mu'alem & Feitelson 2001) as far as it goes where
nobody knows how long pods stay: nothing that fits is refused for it.

Members that ask no whole device are passed over: where the others have room, they mostly have it too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

import numpy as np

from binpack.index.ahead import kind_of
from binpack.index.arrays import Arrays
from binpack.index.columns import Bools, Floats, Ints
from binpack.index.eligibility import Eligibility
from binpack.index.kept import could_hold
from fleet.device import WHOLE_MILLI
from fleet.pod import Pod

_STEP_MILLI: Final = 10_000.0  # dearer than all other costs: a kept node is a last resort, and the freer the dearer
_MOST_GANGS: Final = 8  # the first ones: others have their turn once these are placed


class KeptForGangs:
    """Which nodes are kept for waiting gangs, as the books were when this was made."""

    def __init__(self, arrays: Arrays, eligibility: Eligibility, units: Iterable[Sequence[Pod]]) -> None:
        """Choose the nodes.

        Args:
            arrays: What is free.
            eligibility: Which nodes names, labels and taints allow.
            units: The members to be placed together of each gang, those to be placed first first.
        """
        self._slots: Ints = np.zeros(0, np.int64)
        self._cost: Floats = np.zeros(0)
        self._gangs: set[tuple[str, str]] = set()
        cost = np.zeros(arrays.count)
        for unit in list(units)[:_MOST_GANGS]:
            is_open = cost == 0.0
            for pod, members in _kinds(unit):
                self._gangs.add((pod.namespace, pod.gang))
                slots, free = _nearest(arrays, eligibility, pod, members, is_open)
                cost[slots] = _STEP_MILLI * (1 + free // WHOLE_MILLI)
                is_open[slots] = False
        self._slots = np.flatnonzero(cost)
        self._cost = cost[self._slots]

    def __bool__(self) -> bool:
        """Return whether any node is kept at all."""
        return bool(len(self._slots))

    def charge(self, pod: Pod, cost: Floats) -> None:
        """Add to the cost, (count,), what it costs the pod to go to a node that is kept; members of the gangs may."""
        if not pod.gang or (pod.namespace, pod.gang) not in self._gangs:
            cost[self._slots] += self._cost


def _kinds(unit: Sequence[Pod]) -> list[tuple[Pod, int]]:
    """Return one member of each kind that asks whole devices, and how many there are: most devices each first."""
    found: dict[Hashable, tuple[Pod, int]] = {}
    for pod in unit:
        if pod.ask is not None and pod.ask.is_whole:
            found[kind_of(pod)] = (pod, found.get(kind_of(pod), (pod, 0))[1] + 1)
    return sorted(found.values(), key=lambda one: -one[0].ask.count if one[0].ask is not None else 0)


def _nearest(arrays: Arrays, eligibility: Eligibility, pod: Pod, members: int, is_open: Bools) -> tuple[Ints, Floats]:
    """Return the nodes to keep for so many members of a kind, and what is free of what they would take there."""
    assert pod.ask is not None
    able = could_hold(arrays, pod) & eligibility.mask(pod.constraints)[: arrays.count] & is_open
    slots = np.flatnonzero(able)
    each = np.array([_most(one.devices, one.milli_cpu, one.memory_bytes, pod) for one in arrays.classes], np.int64)
    fit = np.minimum(each[arrays.node_class[slots]], members)
    freest_first = np.sort(arrays.residual[slots], axis=1)[:, ::-1].cumsum(axis=1)
    opening = freest_first[np.arange(len(slots)), fit * pod.ask.count - 1]
    part = opening / np.maximum(1, fit * pod.ask.count)
    order = np.lexsort((arrays.order[slots], -part))
    many = int(np.searchsorted(np.cumsum(fit[order]), members)) + 1
    chosen = order[:many]
    return slots[chosen], opening[chosen].astype(np.float64)


def _most(devices: int, milli_cpu: int, memory_bytes: int, pod: Pod) -> int:
    """Return how many such pods an empty node of these amounts can hold."""
    assert pod.ask is not None
    amounts = [devices // pod.ask.count]
    for have, wanted in ((milli_cpu, pod.requests.milli_cpu), (memory_bytes, pod.requests.memory_bytes)):
        if wanted > 0:
            amounts.append(have // wanted)
    return min(amounts)
