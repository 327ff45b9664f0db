"""Soft taints: nodes that a pod had better leave alone (effect PreferNoSchedule).

Node autoscalers put one on a node that they are about to take away (cluster-autoscaler:
DeletionCandidateOfClusterAutoscaler), operators on nodes meant for others. kube-scheduler scores them down; a planner
that names the node has to heed them itself.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from binpack.index.columns import Ints
from fleet.constraints import Taint, Toleration
from fleet.node import Node

SOFT: Final = "PreferNoSchedule"
_ANSWERS_KEPT: Final = 256


class SoftTaints:
    """Which slots have soft taints, and which of them a pod does not tolerate. Costs nothing where there are none."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Taint, ...]] = {}
        self._avoided: dict[tuple[Toleration, ...], Ints] = {}

    def set_node(self, slot: int, node: Node) -> None:
        """Take a new or changed node."""
        taints = tuple(taint for taint in node.taints if taint.effect == SOFT)
        if taints != self._of.get(slot, ()):
            self._avoided.clear()
            if taints:
                self._of[slot] = taints
            else:
                del self._of[slot]

    def remove_node(self, slot: int) -> None:
        """Forget a node."""
        if self._of.pop(slot, None):
            self._avoided.clear()

    def avoided(self, tolerations: tuple[Toleration, ...]) -> Ints | None:
        """Return the slots with a soft taint that none of these tolerates; None where no node has any at all."""
        if not self._of:
            return None
        found = self._avoided.get(tolerations)
        if found is None:
            if len(self._avoided) >= _ANSWERS_KEPT:
                self._avoided.clear()
            verdicts = {taints: _puts_off(taints, tolerations) for taints in set(self._of.values())}
            found = np.array([slot for slot, taints in self._of.items() if verdicts[taints]], np.int64)
            self._avoided[tolerations] = found
        return found


def _puts_off(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> bool:
    return any(not any(one.tolerates(taint) for one in tolerations) for taint in taints)
