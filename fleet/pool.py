"""A warm pool as a planner sees it: whom it serves, and what one of its nodes could take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet import labels
from fleet.constraints import Taint, Toleration
from fleet.image import digest_of, full_name
from fleet.node import Node
from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolImage:
    """An image that its nodes hold: how replicas write it, and its digest ("" = not known)."""

    reference: str
    digest: str = ""

    def serves(self, image: str) -> bool:
        """Return True if a container with this image finds it there."""
        if self.digest and digest_of(image) == self.digest:
            return True
        return full_name(image) == full_name(self.reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One WarmPool.

    Attributes:
        is_acting: It orders nodes; one that only observes owns no pod's wait.
        images: What its nodes hold; empty = no image is asked for.
        namespaces: Where it serves every pod with `match_labels`.
        match_labels: Sorted by name; with no namespaces they name nobody.
        template: An empty node of its shape, without taints.
    """

    name: str
    is_acting: bool = False
    images: tuple[PoolImage, ...] = ()
    namespaces: tuple[str, ...] = ()
    match_labels: tuple[tuple[str, str], ...] = ()
    template: Node

    def names(self, pod: Pod) -> bool:
        """Return True if the pool says that it serves this pod, or the pod says that it draws from this pool."""
        asked = pod.labels.get(labels.POOL)
        if asked is not None:
            return asked == self.name
        return pod.namespace in self.namespaces and all(pod.labels.get(key) == text for key, text in self.match_labels)

    def holds(self, images: tuple[str, ...]) -> int:
        """Return how many of these images its nodes hold."""
        return sum(any(image.serves(wanted) for image in self.images) for wanted in images)


def pool_taint(pool: str) -> Taint:
    """Return the taint that keeps everybody else's pods off a pool's nodes."""
    return Taint(key=labels.POOL, value=pool, effect="NoSchedule")


def tolerations_for(pod: Pod, node: Node) -> tuple[Toleration, ...]:
    """Return the toleration that a pod needs on top of its own to go to this node; empty = none."""
    if not node.pool or any(own.tolerates(pool_taint(node.pool)) for own in pod.constraints.tolerations):
        return ()
    return (Toleration(key=labels.POOL, operator="Equal", value=node.pool, effect="NoSchedule"),)


def node_labels(pool: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a pool's nodes carry in any case."""
    return {**extra, labels.POOL: pool}
