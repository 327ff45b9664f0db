"""Pods that our gate holds no more and no node has yet: whether kube-scheduler takes them, and what if not. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from binpack.controller.repair import Repair, RepairShop
from binpack.index import Index
from binpack.ledger import Ledger
from fleet import labels
from fleet.pod import Berth, Pod
from fleet.pool import tolerations_for

_STEER_AGAIN_S = 10.0
_UNSAY_AGAIN_S = 10.0


class Unbound:
    """Keeps an eye on pods of ours from their pin to their node.

    Attributes:
        pods: Those that are not bound, by uid.
        to_unsay: Those with a berth whose condition still says that they wait.
    """

    def __init__(self, ledger: Ledger, index: Index) -> None:
        self.pods: dict[str, Pod] = {}
        self.to_unsay: dict[str, Pod] = {}
        self._ledger = ledger
        self._index = index
        self._shop = RepairShop()
        self._tried: dict[str, set[str]] = {}
        self._steer_again_s: dict[str, float] = {}
        self._unsaid_s: dict[str, float] = {}

    def seen(self, pod: Pod, now_s: float) -> None:
        """Take a pod that our gate does not hold."""
        if pod.scheduler_name == labels.SCHEDULER_NAME and not pod.node_name and pod.is_live and not pod.gates:
            self.pods[pod.uid] = pod
            self._shop.observe(pod, now_s)
        else:
            self._forget(pod.uid)
        if not pod.says_waiting or pod.is_terminating or not pod.is_live:
            self._said(pod.uid)
            return
        has_berth = bool(pod.node_name or pod.pinned_node or pod.candidates)
        if has_berth and now_s - self._unsaid_s.get(pod.uid, float("-inf")) >= _UNSAY_AGAIN_S:
            self._unsaid_s[pod.uid] = now_s
            self.to_unsay[pod.uid] = pod

    def gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        self._forget(uid)
        self._said(uid)

    def repairs(self, now_s: float) -> tuple[Repair, ...]:
        """Return the pinned pods that can never start and are to be deleted now."""
        return self._shop.due(self.pods, self._ledger.known(), now_s)

    def steered_anew(self, now_s: float, most: int) -> Iterator[tuple[Pod, tuple[Berth, ...]]]:
        """Yield un-pinned pods that kube-scheduler refused on all their candidates, with others to try.

        The caller books each before it asks for the next, so that no two are sent to the same device.

        What the planner does not know (a filter of another plug-in, a rule it cannot read) may rule out every candidate
        it named; nodes tried before come last, and a pod gets a new list at most every ten seconds.
        """
        for uid, pod in list(self.pods.items()):
            if not (pod.candidates and pod.is_unschedulable) or pod.is_terminating:
                continue
            if now_s < self._steer_again_s.get(uid, float("-inf")):
                continue
            tried = self._tried.setdefault(uid, set())
            tried.update(berth.node for berth in pod.candidates)
            options = [option.berth for option in self._index.options(pod, most + len(tried))]
            options = [berth for berth in options if self._is_tolerated(pod, berth.node)]
            fresh = [berth for berth in options if berth.node not in tried] or options
            self._steer_again_s[uid] = now_s + _STEER_AGAIN_S
            if len(fresh) == len(options):
                tried.clear()
            if fresh:
                yield pod, tuple(fresh[:most])

    def _is_tolerated(self, pod: Pod, name: str) -> bool:
        """Return True if the pod can go there as it is: only a patch that removes our gate brings tolerations."""
        state = self._ledger.state(name)
        return state is not None and not tolerations_for(pod, state.node)

    def _forget(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self._shop.forget(uid)
            self._tried.pop(uid, None)
            self._steer_again_s.pop(uid, None)

    def _said(self, uid: str) -> None:
        self.to_unsay.pop(uid, None)
        self._unsaid_s.pop(uid, None)
