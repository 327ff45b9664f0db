"""Pods that have a berth and might be asked to leave it: what the ledger's sums do not keep of them. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from binpack.books import is_agent
from fleet import labels
from fleet.pod import Pod


class Berthed:
    """Bound and pinned pods by uid.

    Args:
        keeps_all: False = only pods that tolerate the taint of some warm pool, for only they can be on its nodes.
    """

    def __init__(self, *, keeps_all: bool = False) -> None:
        self._keeps_all = keeps_all
        self._pods: dict[str, Pod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())

    def seen(self, pod: Pod) -> None:
        """Take a new or changed pod."""
        if self._is_kept(pod):
            self._pods[pod.uid] = pod
        else:
            self._pods.pop(pod.uid, None)

    def gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        self._pods.pop(uid, None)

    def get(self, uid: str) -> Pod | None:
        """Return the pod, None where it has no berth or is none of those kept."""
        return self._pods.get(uid)

    def _is_kept(self, pod: Pod) -> bool:
        if not pod.is_live or is_agent(pod) or not (pod.node_name or (pod.pinned_node and not pod.gates)):
            return False
        return self._keeps_all or any(t.key in ("", labels.POOL) for t in pod.constraints.tolerations)
