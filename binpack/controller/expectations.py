"""What the index is told of demand before a batch: what a fresh planner finds running, whom to keep nodes for. Pure.

Pods of batches are learnt where they are decided on (`deciding`); these are the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from binpack.controller.several import Several
from binpack.index import Index
from fleet import labels
from fleet.pod import Pod


class Expectations:
    """Follows the watch, and tells the index when it is asked to."""

    def __init__(self, index: Index) -> None:
        self._index = index
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
