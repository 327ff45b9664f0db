"""The pods of the cluster as replicas, by the workload that they belong to.

Times are when *we* saw things happen: clocks of other machines age nothing. A pod that was there before us is as old
as its creation stamp says, never younger than nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from sys import intern

from fleet import labels
from scaler.controller.objects import ReplicaObject
from scaler.controller.selector import Selector
from scaler.seen import Phase

# Waiting reasons of a container that only a person or another node can mend.
_STUCK = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
_HASH = "pod-template-hash"
_REVISION = "controller-revision-hash"
_NO_PODS: Mapping[str, Pod] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Which workload: kind and name within a namespace."""

    namespace: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod.

    Attributes:
        address: Its IP; "" = none yet.
        phase: Where it stands. FAILED is also a pod that exists but cannot come up by waiting; see is_ended.
        is_ended: It succeeded or failed as a whole: its controller has replaced it already.
        since_s: When we first saw it, or its age at our start, on the monotonic clock.
        ready_at_s: When we first saw it Ready; None = not yet.
        scheduled_at_s: When we first saw it on a node; None = not yet.
        is_seen_born: We watched it from its creation on, so that its start can be measured.
        version: Hash of the template it was made from.
        node: Name of its node; "" = none yet.
        cost: The pod-deletion-cost annotation; "" = none.
        owner: Kind and name of the controller.
        tags: Its labels.
    """

    namespace: str
    name: str
    uid: str
    address: str
    phase: Phase
    is_ended: bool
    since_s: float
    ready_at_s: float | None
    scheduled_at_s: float | None
    is_seen_born: bool
    version: str
    node: str
    cost: str
    owner: tuple[str, str]
    tags: Mapping[str, str]


class PodBook:
    """All pods, and which workload each belongs to. A pod's owner says so; for other kinds a selector does."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._members: dict[Workload, dict[str, Pod]] = {}
        self._selectors: dict[str, dict[Workload, Selector]] = {}
        self._changed: set[Workload] = set()

    def __len__(self) -> int:
        return len(self._pods)

    def set(self, pod: Pod) -> tuple[Pod | None, tuple[Workload, ...]]:
        """Take a pod; returns what it was before, and the workloads it belongs to."""
        before = self._pods.get(pod.uid)
        if before is not None:
            pod = replace(
                pod,
                since_s=before.since_s,
                is_seen_born=before.is_seen_born,
                ready_at_s=_first(before.ready_at_s, pod.ready_at_s),
                scheduled_at_s=_first(before.scheduled_at_s, pod.scheduled_at_s),
            )
            self._forget(before)
        self._pods[pod.uid] = pod
        workloads = tuple(self._workloads_of(pod))
        for workload in workloads:
            self._members.setdefault(workload, {})[pod.uid] = pod
            self._changed.add(workload)
        return before, workloads

    def remove(self, uid: str) -> None:
        """Take note that a pod is gone."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._forget(pod)

    def get(self, uid: str) -> Pod | None:
        """Return a pod."""
        return self._pods.get(uid)

    def of(self, workload: Workload) -> Mapping[str, Pod]:
        """Return the pods of a workload by uid."""
        return self._members.get(workload, _NO_PODS)

    def select(self, workload: Workload, selector: Selector | None) -> None:
        """Let a selector say which pods belong to a workload of a kind whose ownership is not known."""
        known = self._selectors.setdefault(workload.namespace, {})
        if known.get(workload) == selector:
            return
        self._members.pop(workload, None)
        self._changed.add(workload)
        if selector is None:
            known.pop(workload, None)
            return
        known[workload] = selector
        self._members[workload] = {
            pod.uid: pod
            for pod in self._pods.values()
            if pod.namespace == workload.namespace and selector.matches(pod.tags)
        }

    def touch(self, workload: Workload) -> None:
        """Let a workload count as changed, for a reason besides its pods."""
        self._changed.add(workload)

    def touch_node(self, node: str) -> None:
        """Let the workloads that have pods on a node count as changed."""
        for workload, members in self._members.items():
            if any(pod.node == node for pod in members.values()):
                self._changed.add(workload)

    def changed(self) -> Iterable[Workload]:
        """Return the workloads whose pods changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def _forget(self, pod: Pod) -> None:
        for workload in self._workloads_of(pod):
            members = self._members.get(workload)
            if members is not None:
                members.pop(pod.uid, None)
                if not members:
                    del self._members[workload]
                self._changed.add(workload)

    def _workloads_of(self, pod: Pod) -> Iterable[Workload]:
        owned = _owned_by(pod)
        if owned is not None:
            yield owned
        for workload, selector in self._selectors.get(pod.namespace, {}).items():
            if selector.matches(pod.tags):
                yield workload


def _first(before_s: float | None, now_s: float | None) -> float | None:
    return now_s if before_s is None else before_s


def _owned_by(pod: Pod) -> Workload | None:
    kind, name = pod.owner
    if kind == "StatefulSet":
        return Workload(namespace=pod.namespace, kind=kind, name=name)
    # A Deployment names its ReplicaSets after itself and the template's hash, which its pods carry as a label.
    ending = f"-{pod.tags.get(_HASH, '')}"
    if kind == "ReplicaSet" and len(ending) > 1 and name.endswith(ending):
        return Workload(namespace=pod.namespace, kind="Deployment", name=name.removesuffix(ending))
    return None


def pod_from(obj: ReplicaObject, *, now_s: float, epoch_s: float, is_new: bool) -> Pod:
    """Return a pod as read.

    Args:
        obj: As parsed.
        now_s: Monotonic time of now.
        epoch_s: The same moment since the epoch, to age a pod that was there before us.
        is_new: Whether it was created while we watched.
    """
    meta, status = obj.metadata, obj.status
    conditions = {condition.type: condition.status for condition in (status.conditions if status else None) or ()}
    tags = {intern(key): intern(value) for key, value in (meta.labels or {}).items()}
    owner = next((ref for ref in meta.owner_references or () if ref.controller), None)
    is_ended = status is not None and status.phase in ("Succeeded", "Failed")
    is_ready = conditions.get("Ready") == "True"
    node = (obj.spec.node_name if obj.spec else None) or ""
    since_s = now_s if is_new else now_s - max(0.0, epoch_s - _epoch_s(meta.creation_timestamp, epoch_s))
    return Pod(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        address=(status.pod_ip if status else None) or "",
        phase=_phase(obj, is_ended=is_ended, is_ready=is_ready),
        is_ended=is_ended,
        since_s=since_s,
        ready_at_s=now_s if is_ready else None,
        scheduled_at_s=now_s if node else None,
        is_seen_born=is_new and not is_ready,
        version=tags.get(_HASH) or tags.get(_REVISION) or "",
        node=intern(node),
        cost=(meta.annotations or {}).get(labels.POD_DELETION_COST, ""),
        owner=(intern(owner.kind), intern(owner.name)) if owner else ("", ""),
        tags=tags,
    )


def _phase(obj: ReplicaObject, *, is_ended: bool, is_ready: bool) -> Phase:
    if is_ended:
        return Phase.FAILED
    if obj.metadata.deletion_timestamp:
        return Phase.DRAINING
    if is_ready:
        return Phase.READY
    containers = (obj.status.container_statuses if obj.status else None) or ()
    waiting = (status.state.waiting for status in containers if status.state)
    is_stuck = any(reason is not None and reason.reason in _STUCK for reason in waiting)
    return Phase.FAILED if is_stuck else Phase.STARTING


def _epoch_s(stamp: str | None, default_s: float) -> float:
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else default_s
    except ValueError:
        return default_s
