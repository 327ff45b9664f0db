"""The pods that need several whole devices of one node: which run, how many of them are usual, and who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Final

from binpack.index.ahead import Ahead, Expected, Present, kind_of
from binpack.index.kept import asks_several
from fleet.pod import Pod

_LOOK_EVERY_S: Final = 1.0


class Several:
    """Follows the watch and counts by kind, so that a look costs as many steps as there are kinds."""

    def __init__(self) -> None:
        """Know of no pod."""
        self._kind_of: dict[str, Hashable] = {}
        self._running = Counter[Hashable]()
        self._example: dict[Hashable, Pod] = {}
        self._ahead = Ahead()
        self._looked: tuple[float, Counter[Hashable]] | None = None

    def seen(self, pod: Pod) -> None:
        """Count a pod while it holds, or is about to hold, devices of a node."""
        self.gone(pod.uid)
        if pod.is_live and (pod.node_name or pod.pinned_node) and asks_several(pod):
            kind = self._kind_of[pod.uid] = kind_of(pod)
            self._running[kind] += 1
            self._example.setdefault(kind, pod)

    def gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        kind = self._kind_of.pop(uid, None)
        if kind is not None:
            self._running[kind] -= 1
            if not self._running[kind]:
                del self._running[kind], self._example[kind]

    def expected(self, waiting: Iterable[Pod], now_s: float) -> list[Expected] | None:
        """Return what nodes are to be kept for, with these pods waiting for room; None = as a moment ago.

        Who waits is heeded at once, who came or left within a second.
        """
        waits = [pod for pod in waiting if asks_several(pod)]
        queued = Counter(map(kind_of, waits))
        if self._looked is not None and now_s - self._looked[0] < _LOOK_EVERY_S and queued == self._looked[1]:
            return None
        self._looked = (now_s, queued)
        pods = {kind_of(pod): pod for pod in waits} | self._example
        present = {kind: Present(pod=pods[kind], running=self._running[kind], waiting=queued[kind]) for kind in pods}
        return self._ahead.expected(present, now_s)
