"""Which pinned pods are beyond hope and must be deleted so that their controllers make new ones. Pure.

Only pins that the planner wrote are judged: a DaemonSet's or a user's own are theirs. A pin cannot be changed once the
gate is gone (the API accepts additions to node affinity on gated pods only).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import Enum

from fleet.pod import Pod

# kube-scheduler's back-off ends at 10 s, so a pod still refused this long after its first refusal was refused again.
_SECOND_REFUSAL_AFTER_S = 12.0


class RepairReason(Enum):
    """Why a pinned pod is given up."""

    NODE_GONE = "PinnedNodeGone"
    REFUSED_TWICE = "PinnedNodeRefusedTwice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A pod to delete with preconditions on uid and resource version."""

    pod: Pod
    reason: RepairReason


class RepairShop:
    """Watches pinned, unbound pods and says which to delete, at most one per owner and `per_owner_s`."""

    def __init__(self, *, per_owner_s: float = 10.0) -> None:
        self._refused_since_s: dict[str, float] = {}
        self._last_per_owner_s: dict[str, float] = {}
        self._per_owner_s = per_owner_s

    def observe(self, pod: Pod, now_s: float) -> None:
        """Note whether kube-scheduler refuses the pod at this moment."""
        if pod.is_unschedulable and pod.is_pin_ours and not pod.node_name:
            self._refused_since_s.setdefault(pod.uid, now_s)
        else:
            self._refused_since_s.pop(pod.uid, None)

    def forget(self, uid: str) -> None:
        """Drop what is known of a pod that is gone or bound."""
        self._refused_since_s.pop(uid, None)

    def due(self, pinned: Mapping[str, Pod], nodes: Container[str], now_s: float) -> tuple[Repair, ...]:
        """Return the pods to delete now, by uid order, and count each against its owner's allowance."""
        repairs: list[Repair] = []
        for uid in sorted(pinned):
            pod = pinned[uid]
            reason = self._reason(pod, nodes, now_s)
            if reason is None or pod.owner is None:
                continue
            last_s = self._last_per_owner_s.get(pod.owner.uid)
            if last_s is not None and now_s - last_s < self._per_owner_s:
                continue
            self._last_per_owner_s[pod.owner.uid] = now_s
            repairs.append(Repair(pod=pod, reason=reason))
        self._last_per_owner_s = {
            owner: at_s for owner, at_s in self._last_per_owner_s.items() if now_s - at_s < self._per_owner_s
        }
        return tuple(repairs)

    def _reason(self, pod: Pod, nodes: Container[str], now_s: float) -> RepairReason | None:
        if pod.node_name or pod.is_terminating or not pod.is_live or not pod.is_pin_ours:
            return None
        if pod.pinned_node not in nodes:
            return RepairReason.NODE_GONE
        since_s = self._refused_since_s.get(pod.uid)
        if since_s is not None and now_s - since_s >= _SECOND_REFUSAL_AFTER_S:
            return RepairReason.REFUSED_TWICE
        return None
