"""What is seen of one node at one tick, in plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fleet.constraints import Taint
from warmpool.providers.provider import Machine


class Puller(StrEnum):
    """How far the pod is that pulls the images and keeps them from garbage collection."""

    NONE = "none"
    PULLING = "pulling"
    HOLDING = "holding"  # every image is mounted, and the models are fetched
    ENDED = "ended"  # failed, or ran out: it keeps nothing any more


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The parts of one Node object that matter to a pool.

    Attributes:
        taints: All of them, in order, as read.
        devices: Allocatable devices of the shape's resource; None = not announced, which is not the same as none.
        images: Every name under which the node lists an image: digests and tags.
        lists_all_images: False where its list is as long as a kubelet's gets (50 by default, the largest first): what
            is small may lie there and not be listed.
        warm: Text of the `warm` annotation, "" = none.
        claim: Text of the `claim` annotation, "" = none.
        closing: Text of the `closing` annotation, "" = none.
        shape: Text of the `shape` annotation, "" = none.
        is_unschedulable: spec.unschedulable, whoever set it.
        is_protected: Karpenter is told not to disrupt it.
        condition: Status, reason and message of the condition berthmaster.dev/Warm; None = there is none.
        heartbeat: The last sign of life as the node wrote it; "" = it gives none. Only its changing means anything.
        has_annotations: Whether there is any annotation: a JSON patch must know.
    """

    name: str
    uid: str
    is_ready: bool = False
    is_unschedulable: bool = False
    is_deleting: bool = False
    taints: tuple[Taint, ...] = ()
    devices: int | None = None
    images: frozenset[str] = frozenset()
    lists_all_images: bool = True
    warm: str = ""
    claim: str = ""
    closing: str = ""
    shape: str = ""
    is_spare: bool = False
    is_kept: bool = False
    is_protected: bool = False
    condition: tuple[str, str, str] | None = None
    heartbeat: str = ""
    has_annotations: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """One node at one tick.

    Attributes:
        machine: What the provider shows; None = it knows nothing of it (any more).
        facts: The Node; None = there is none (yet, or any more).
        pods: UIDs of pods bound or pinned to it that are not terminal; the pool's own, DaemonSets' and static pods
            left out: a node that holds only those is empty.
        puller: How far the pulling pod is.
        age_s: How old it is by the API server's own clock; None = not known. Counts at first sight only.
        gone: UIDs of pods of the claim on it that are not in the cluster: deleted, ended, or not seen yet.
    """

    machine: Machine | None = None
    facts: NodeFacts | None = None
    pods: tuple[str, ...] = ()
    puller: Puller = Puller.NONE
    age_s: float | None = None
    gone: frozenset[str] = frozenset()
