"""What the index is told of demand before a batch: what a fresh planner finds running, whom to keep nodes for. Pure.

Nodes are kept for pods that need several whole devices of one node, waiting or usual, and for gangs that wait.

Pods of batches are learnt where they are decided on (`deciding`); these are the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from binpack.controller.several import Several
from binpack.controller.together import Together
from binpack.gangs.roll import Key
from binpack.index import Index
from fleet import labels
from fleet.pod import Pod

_LOOK_EVERY_S: Final = 1.0


class Expectations:
    """Follows the watch, and tells the index when it is asked to."""

    def __init__(self, index: Index, together: Together) -> None:
        self._index = index
        self._together = together
        self._kept_for: frozenset[Key] = frozenset()
        self._kept_at_s = float("-inf")
        self._several = Several()
        self._found: dict[str, Pod] | None = {}  # until the first batch

    def seen(self, pod: Pod) -> None:
        """Take a new or changed pod."""
        self._several.seen(pod)
        if self._found is not None and pod.node_name and pod.scheduler_name == labels.SCHEDULER_NAME:
            self._found[pod.uid] = pod

    def gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        self._several.gone(uid)
        if self._found is not None:
            self._found.pop(uid, None)

    def tell(self, waiting: Iterable[Pod], now_s: float) -> None:
        """Bring the index up to date; before its first batch it learns the mix of the pods that were found.

        Args:
            waiting: The pods that wait for room.
            now_s: On any clock that does not go back.
        """
        if self._found is not None:
            self._index.learn(self._found.values())
            self._found = None
        expected = self._several.expected(waiting, now_s)
        if expected is not None:
            self._index.keep_for(expected)
        gangs = self._together.without_room
        if gangs != self._kept_for or (gangs and now_s - self._kept_at_s >= _LOOK_EVERY_S):
            self._kept_for, self._kept_at_s = frozenset(gangs), now_s
            self._index.keep_for_gangs(self._together.left_out())
