"""Which nodes names, labels and taints allow a pod: one mask per distinct constraint, mended as nodes change."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import numpy as np

from binpack.index.arrays import Arrays
from binpack.index.columns import Bools
from fleet.constraints import NodeConstraints, Taint

_MASKS_KEPT: Final = 256


class _Mask:
    __slots__ = ("allowed", "read_up_to")

    def __init__(self, allowed: Bools, read_up_to: int) -> None:
        self.allowed = allowed
        self.read_up_to = read_up_to


class Eligibility:
    """Masks over slots, (capacity,), for the constraints seen last; dead slots are never allowed."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._masks: OrderedDict[NodeConstraints, _Mask] = OrderedDict()

    def mask(self, constraints: NodeConstraints) -> Bools:
        """Return which slots the constraints allow; the array is shared, so it must not be changed."""
        arrays = self._arrays
        log = arrays.relabelled
        mask = self._masks.get(constraints)
        if mask is None or len(mask.allowed) != arrays.capacity:
            mask = _Mask(np.zeros(arrays.capacity, np.bool_), len(log))
            self._judge(constraints, range(arrays.count), mask.allowed)
            self._masks[constraints] = mask
            if len(self._masks) > _MASKS_KEPT:
                self._masks.popitem(last=False)
        else:
            self._masks.move_to_end(constraints)
            if mask.read_up_to < len(log):
                self._judge(constraints, set(log[mask.read_up_to :]), mask.allowed)
                mask.read_up_to = len(log)
        if len(log) > 4 * arrays.capacity:
            self._forget_log()
        return mask.allowed

    def _forget_log(self) -> None:
        """Drop the log of changed nodes, and with it the masks that have not read it to its end."""
        end = len(self._arrays.relabelled)
        self._masks = OrderedDict((key, mask) for key, mask in self._masks.items() if mask.read_up_to == end)
        for mask in self._masks.values():
            mask.read_up_to = 0
        self._arrays.relabelled.clear()

    def _judge(self, constraints: NodeConstraints, slots: range | set[int], allowed: Bools) -> None:
        """Judge each slot; nodes that differ in nothing the constraints read are judged once."""
        terms = [*(constraints.terms or ()), *(term for any_of in constraints.volumes for term in any_of)]
        keys = sorted({key for key, _ in constraints.node_selector} | {r.key for term in terms for r in term.labels})
        names_count = any(term.fields for term in terms)
        verdicts: dict[tuple[str, tuple[str | None, ...], tuple[Taint, ...], bool], bool] = {}
        for slot in slots:
            node = self._arrays.nodes[slot]
            if node is None:
                allowed[slot] = False
                continue
            what_counts = (
                node.name if names_count else "",
                tuple(map(node.labels.get, keys)),
                node.taints,
                node.is_cordoned,
            )
            verdict = verdicts.get(what_counts)
            if verdict is None:
                verdict = constraints.mismatch(node.name, node.labels, node.taints, node.is_cordoned) is None
                verdicts[what_counts] = verdict
            allowed[slot] = verdict
