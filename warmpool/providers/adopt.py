"""Nodes that somebody else makes: every node of a label selector is the pool's, from the moment it is there.

Nothing is ordered and nothing is removed. When the pool gives a node up it is handed back: open, and without any mark.
Such nodes are not born tainted, so pods may come before the taints do; they are seen, and the node then serves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fleet import labels
from fleet.errors import Invalid, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.providers.objects import Listed, Meta, setting
from warmpool.providers.provider import Capabilities, Machine, MachinePhase, OrdersOnly, Receipt, Refusal
from warmpool.values import Offer, PoolSpec, ProviderKind

_MARKS = (labels.WARM, labels.CLOSING, labels.CLAIM, labels.DO_NOT_DISRUPT)


class _Taint(msgspec.Struct):
    key: str = ""


class _Spec(msgspec.Struct):
    taints: list[_Taint] | None = None
    unschedulable: bool | None = None


class _Node(msgspec.Struct):
    metadata: Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


_node = msgspec.json.Decoder(_Node).decode
_nodes = msgspec.json.Decoder(Listed[_Node]).decode


class AdoptProvider(OrdersOnly):
    """Watches over nodes that are there.

    Settings of a pool: `selector`, a label selector; by default the nodes labelled with the pool's name.

    Args:
        client: May list and patch Nodes.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def kind(self) -> ProviderKind:
        """Return `adopt`."""
        return ProviderKind.ADOPT

    def capabilities(self) -> Capabilities:
        """Return what it can promise: nothing of what others do."""
        return Capabilities(can_order=False)

    async def provision(self, pool: PoolSpec, offer: Offer, count: int, key: str) -> Receipt:
        """Refuse: somebody else makes the nodes."""
        return Receipt(refusal=Refusal.UNAVAILABLE, detail=f"pool {pool.name} only adopts nodes")

    async def list(self, pools: Sequence[PoolSpec]) -> tuple[Machine, ...]:
        """Return the nodes that the pools' selectors name."""
        found: list[Machine] = []
        for pool in pools:
            listed = _nodes(await self._client.get(paths.NODES, {"labelSelector": selector(pool)}))
            found += [machine_of(node, pool) for node in listed.items]
        return tuple(found)

    async def state(self, pool: PoolSpec, name: str) -> Machine | None:
        """Return one node."""
        try:
            return machine_of(_node(await self._client.get(paths.node(name))), pool)
        except NotFound:
            return None

    async def release(self, pool: PoolSpec, machine: Machine) -> None:
        """Hand the node back: remove the pool's taints and annotations, and open it."""
        try:
            node = _node(await self._client.get(paths.node(machine.node_name)))
            body = msgspec.json.encode(hand_back(node, pool))
            await self._client.json_patch(paths.node(machine.node_name), body)
        except (NotFound, Invalid):
            return  # gone, or changed meanwhile: asked again


def selector(pool: PoolSpec) -> str:
    """Return the label selector of a pool's nodes."""
    return setting(pool, "selector", f"{labels.POOL}={pool.name}")


def machine_of(node: _Node, pool: PoolSpec) -> Machine:
    """Return a node as a machine."""
    return Machine(
        name=node.metadata.name,
        pool=pool.name,
        node_name=node.metadata.name,
        phase=MachinePhase.REGISTERED,
        uid=node.metadata.uid,
        is_deleting=node.metadata.deletion_timestamp is not None,
    )


def hand_back(node: _Node, pool: PoolSpec) -> list[dict[str, Any]]:
    """Return the JSON patch that takes every mark of the pool off a node."""
    ours = (pool.readiness_taint.key, pool.pool_taint.key)
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": node.metadata.uid}]
    for position, taint in sorted(enumerate(node.spec.taints or ()), reverse=True, key=lambda one: one[0]):
        if taint.key in ours:
            path = f"/spec/taints/{position}"
            operations += [{"op": "test", "path": f"{path}/key", "value": taint.key}, {"op": "remove", "path": path}]
    for name in _MARKS:
        if node.metadata.note(name):
            escaped = name.replace("~", "~0").replace("/", "~1")
            operations.append({"op": "remove", "path": f"/metadata/annotations/{escaped}"})
    if node.spec.unschedulable and node.metadata.note(labels.CLOSING):
        operations.append({"op": "remove", "path": "/spec/unschedulable"})
    return operations
