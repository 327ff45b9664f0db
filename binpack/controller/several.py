"""The pods that need several whole devices of one node: which run, how many of them are usual, and who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from binpack.index.ahead import Ahead, Expected, Present, kind_of
from binpack.index.kept import asks_several
from fleet.pod import Pod


class Several:
    """Follows the watch; bad or odd pods are those that do not run here."""

    def __init__(self) -> None:
        """Know of no pod."""
        self._running: dict[str, Pod] = {}
        self._ahead = Ahead()

    def seen(self, pod: Pod) -> None:
        """Count a pod while it holds, or is about to hold, devices of a node."""
        if pod.is_live and (pod.node_name or pod.pinned_node) and asks_several(pod):
            self._running[pod.uid] = pod
        else:
            self._running.pop(pod.uid, None)

    def gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        self._running.pop(uid, None)

    def expected(self, waiting: Iterable[Pod], now_s: float) -> list[Expected]:
        """Return what nodes are to be kept for, with these pods waiting for room."""
        waits = [pod for pod in waiting if asks_several(pod)]
        if not waits and not self._running and not self._ahead:
            return []
        running = Counter(map(kind_of, self._running.values()))
        queued = Counter(map(kind_of, waits))
        pods = {kind_of(pod): pod for pod in (*self._running.values(), *waits)}
        present = {kind: Present(pod=pod, running=running[kind], waiting=queued[kind]) for kind, pod in pods.items()}
        return self._ahead.expected(present, now_s)
