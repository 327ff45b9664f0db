"""Nodes by a CapacityBuffer (autoscaling.x-k8s.io/v1beta1): Karpenter or Cluster Autoscaler keeps room for them.

It is told a number and refills by itself; which node goes is its own affair, and no image is ever pulled by it, so the
nodes are proven warm by us like any other. Its condition `Provisioning` means different things with different
autoscalers (all fits, or: pods were injected): only nodes are believed.

One virtual pod fills one node of the shape. The NodePool or node group behind it must label its nodes
`berthmaster.dev/pool=NAME` and give them the pool's two taints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fleet import labels
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.providers.adopt import AdoptProvider
from warmpool.providers.objects import offer_labels, requests, setting
from warmpool.providers.provider import Capabilities, Machine, Receipt, Refusal
from warmpool.values import Offer, PoolSpec, ProviderKind

API_VERSION = "autoscaling.x-k8s.io/v1beta1"
PLURAL = "capacitybuffers"


class CapacityBufferProvider:
    """Sets the size of buffers.

    Settings of a pool: `namespace` of the buffer (ours by default).

    Args:
        client: May apply CapacityBuffers and PodTemplates, and list Nodes.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._nodes = AdoptProvider(client)

    @property
    def kind(self) -> ProviderKind:
        """Return `capacitybuffer`."""
        return ProviderKind.CAPACITY_BUFFER

    def capabilities(self) -> Capabilities:
        """Return what it can promise: a number of free nodes, and not which."""
        return Capabilities(can_order=False, is_counted=True, taints_at_birth=True)

    async def provision(self, pool: PoolSpec, offer: Offer, count: int, key: str) -> Receipt:
        """Refuse: it is told a number."""
        return Receipt(refusal=Refusal.UNAVAILABLE, detail=f"pool {pool.name}: a buffer is told a number, not orders")

    async def resize(self, pool: PoolSpec, count: int) -> None:
        """Write how many nodes are to be kept free."""
        namespace, name = buffer_names(pool)
        template = paths.custom("v1", "podtemplates", namespace=namespace, name=name)
        await self._client.apply(template, msgspec.json.encode(pod_template(pool)))
        buffer = paths.custom(API_VERSION, PLURAL, namespace=namespace, name=name)
        await self._client.apply(buffer, msgspec.json.encode(capacity_buffer(pool, count)))

    async def list(self, pools: Sequence[PoolSpec]) -> tuple[Machine, ...]:
        """Return the pools' nodes."""
        return await self._nodes.list(pools)

    async def state(self, pool: PoolSpec, name: str) -> Machine | None:
        """Return one node."""
        return await self._nodes.state(pool, name)

    async def release(self, pool: PoolSpec, machine: Machine) -> None:
        """Hand the node back: the autoscaler removes it when nothing is on it and the buffer does not want it."""
        await self._nodes.release(pool, machine)

    async def turn(self) -> None:
        """Leave time to the autoscaler."""
        return


def buffer_names(pool: PoolSpec) -> tuple[str, str]:
    """Return namespace and name of a pool's buffer and its PodTemplate."""
    return setting(pool, "namespace", labels.NAMESPACE), f"berthmaster-{pool.name}"


def pod_template(pool: PoolSpec) -> dict[str, Any]:
    """Return the virtual pod: it asks for a whole node of the shape, and tolerates what the pool's nodes carry."""
    namespace, name = buffer_names(pool)
    offer = pool.shape.offers[0] if len(pool.shape.offers) == 1 else Offer()
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": namespace, "labels": {labels.POOL: pool.name}},
        "template": {
            "metadata": {"labels": {labels.POOL: pool.name}},
            "spec": {
                "nodeSelector": {labels.POOL: pool.name, **offer_labels(pool.shape, offer)},
                "tolerations": [
                    {"key": pool.pool_taint.key, "operator": "Equal", "value": pool.name, "effect": "NoSchedule"},
                    {"key": pool.readiness_taint.key, "operator": "Exists", "effect": "NoSchedule"},
                ],
                "containers": [
                    {
                        "name": "room",
                        "image": "registry.k8s.io/pause:3.10.1",
                        "resources": {"requests": requests(pool.shape), "limits": _limits(pool)},
                    }
                ],
            },
        },
    }


def capacity_buffer(pool: PoolSpec, count: int) -> dict[str, Any]:
    """Return the buffer of so many nodes."""
    namespace, name = buffer_names(pool)
    return {
        "apiVersion": API_VERSION,
        "kind": "CapacityBuffer",
        "metadata": {"name": name, "namespace": namespace, "labels": {labels.POOL: pool.name}},
        "spec": {"podTemplateRef": {"name": name}, "replicas": count},
    }


def _limits(pool: PoolSpec) -> dict[str, str]:
    """Return the limits that extended resources must have: the same as their requests."""
    return {name: amount for name, amount in requests(pool.shape).items() if "/" in name}
