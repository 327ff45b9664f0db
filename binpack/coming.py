"""Pods that have a node and are not bound to it yet: kube-scheduler takes them in an order of its own. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fleet.company import NOBODY, Guest
from fleet.pod import Pod


class Coming:
    """Who is on the way, moved pod by pod; what a pod costs that no rule depends on is two entries of dictionaries.

    Attributes:
        minded: Those of whom it matters in which order they are bound, by uid.
    """

    def __init__(self) -> None:
        self.minded: dict[str, Pod] = {}
        self._pods: dict[str, tuple[Pod, str]] = {}
        self._counted: dict[Guest, Counter[str]] | None = None

    def __iter__(self) -> Iterator[tuple[Pod, str]]:
        return iter(self._pods.values())

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, pod: object) -> bool:
        return pod in self._pods.values()

    def seen(self, pod: Pod, node: str) -> None:
        """Take note that a pod is on its way to a node."""
        self._pods[pod.uid] = pod, node
        self._counted = None
        if is_minded(pod.guest):
            self.minded[pod.uid] = pod

    def turned(self, uid: str, node: str) -> None:
        """Take note that a pod is on its way elsewhere; one that was not on its way is no error."""
        if uid in self._pods:
            self.seen(self._pods[uid][0], node)

    def gone(self, uid: str) -> None:
        """Take note that a pod has arrived, or will not come; one that was not on its way is no error."""
        if self._pods.pop(uid, None) is not None:
            self._counted = None
            self.minded.pop(uid, None)

    def node_of(self, uid: str) -> str | None:
        """Return where a pod is on its way to; None = it is not."""
        known = self._pods.get(uid)
        return None if known is None else known[1]

    def counted(self) -> Mapping[Guest, Counter[str]]:
        """Return per guest how many are on their way to which node; shared, not to be changed."""
        if self._counted is None:
            self._counted = {}
            for pod, node in self._pods.values():
                if pod.guest is not NOBODY:
                    self._counted.setdefault(pod.guest, Counter())[node] += 1
        return self._counted


def is_minded(guest: Guest) -> bool:
    """Return True for a pod of whom it matters in which order it and others are bound.

    A pin leaves a spread that honors node affinity nothing to compare, and who keeps away from others does so in any
    order.
    """
    return bool(guest.affinity) or any(spread.is_hard and not spread.honors_affinity for spread in guest.spreads)
