"""Nodes and pods of the API to what the state machine sees of them; only the fields that matter are parsed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fleet import labels
from fleet.constraints import Taint
from fleet.kube.objects import PodSpecObject
from warmpool.nodes.seen import NodeFacts, Puller
from warmpool.starts.reading import StartStatus
from warmpool.values import PoolSpec

_PULLER_PHASES = {"Pending": Puller.PULLING, "Running": Puller.HOLDING}
_LONGEST_LIST = 50  # kubelet's nodeStatusMaxImages, by default
_MIRROR = "kubernetes.io/config.mirror"


class _Part(msgspec.Struct, rename="camel", gc=False):
    """Base of the parts read."""


class _Owner(_Part):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Meta(_Part):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[_Owner] | None = None


class _Taint(_Part):
    key: str = ""
    value: str | None = None
    effect: str | None = None


class _NodeSpec(_Part):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _Condition(_Part):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class _Image(_Part):
    names: list[str] | None = None


class _NodeStatus(_Part):
    allocatable: dict[str, str | int | float] | None = None
    conditions: list[_Condition] | None = None
    images: list[_Image] | None = None


class WarmNode(_Part):
    """A v1 Node, as far as a pool looks at it."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None

    @property
    def pool(self) -> str:
        """Return the pool that the node says it is of, "" = none."""
        return (self.metadata.labels or {}).get(labels.POOL, "")


class WarmPod(_Part):
    """A v1 Pod, as far as a pool looks at it."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: PodSpecObject = msgspec.field(default_factory=PodSpecObject)
    status: StartStatus | None = None

    @property
    def node(self) -> str:
        """Return the node that it is bound to, or that the planner pinned it to; "" = neither."""
        return self.spec.node_name or (self.metadata.annotations or {}).get(labels.PINNED, "")


def facts_from(node: WarmNode, pool: PoolSpec, *, heartbeat: str = "", sliced: int | None = None) -> NodeFacts:
    """Return what matters of a node.

    Args:
        node: As the API shows it. Amounts that cannot be read count as not announced.
        pool: For the resource that its devices are advertised as.
        heartbeat: The renew time of its lease, as text; "" = it has none.
        sliced: How many GPUs its resource slices tell of; None = nothing. They count where no plugin announces any.
    """
    meta, spec, status = node.metadata, node.spec or _NodeSpec(), node.status or _NodeStatus()
    notes = meta.annotations or {}
    conditions = {condition.type: condition for condition in status.conditions or ()}
    ready, warm = conditions.get("Ready"), conditions.get(labels.WARM_CONDITION)
    return NodeFacts(
        name=meta.name,
        uid=meta.uid,
        is_ready=ready is not None and ready.status == "True",
        is_unschedulable=bool(spec.unschedulable),
        is_deleting=meta.deletion_timestamp is not None,
        taints=tuple(Taint(key=t.key, value=t.value or "", effect=t.effect or "") for t in spec.taints or ()),
        devices=_devices(status, pool, sliced),
        images=frozenset(name for image in status.images or () for name in image.names or ()),
        lists_all_images=len(status.images or ()) < _LONGEST_LIST,
        warm=notes.get(labels.WARM, ""),
        claim=notes.get(labels.CLAIM, ""),
        closing=notes.get(labels.CLOSING, ""),
        shape=notes.get(labels.SHAPE, ""),
        is_spare=notes.get(labels.SPARE) == "true",
        is_kept=notes.get(labels.KEEP) == "true",
        is_protected=notes.get(labels.DO_NOT_DISRUPT) == "true",
        condition=(warm.status, warm.reason or "", warm.message or "") if warm is not None else None,
        heartbeat=heartbeat,
        has_annotations=meta.annotations is not None,
    )


def users(pods: Iterable[WarmPod]) -> tuple[str, ...]:
    """Return the UIDs of the pods that use their node, sorted.

    A node that holds only the pool's own pods, DaemonSets' and static ones is empty: otherwise spare capacity would
    keep itself alive (kubernetes-sigs/cluster-proportional-autoscaler#142). A pod that is being deleted still runs.
    """
    return tuple(sorted(pod.metadata.uid for pod in pods if _is_user(pod)))


def puller_of(pod: WarmPod | None) -> Puller:
    """Return how far a pulling pod is; None = there is none. One being deleted holds nothing for long."""
    if pod is None:
        return Puller.NONE
    if pod.metadata.deletion_timestamp is not None:
        return Puller.ENDED
    status = pod.status or StartStatus()
    return _PULLER_PHASES.get(status.phase or "Pending", Puller.ENDED)


def _is_user(pod: WarmPod) -> bool:
    meta = pod.metadata
    if (pod.status or StartStatus()).phase in ("Succeeded", "Failed"):
        return False
    if labels.PULLER in (meta.labels or {}) or _MIRROR in (meta.annotations or {}):
        return False
    return not any(owner.kind in ("DaemonSet", "Node") for owner in meta.owner_references or ())


def _devices(status: _NodeStatus, pool: PoolSpec, sliced: int | None) -> int | None:
    amount = (status.allocatable or {}).get(pool.shape.device_resource)
    try:
        return sliced if amount is None else int(amount)
    except (ValueError, OverflowError):
        return None
