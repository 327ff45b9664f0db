"""Nodes by Karpenter: one standalone NodeClaim (karpenter.sh/v1) per machine, which no NodePool's disruption touches.

A NodeClaim goes as soon as its launch is refused for lack of capacity, and after 5 and 15 minutes if it does not launch
or register: one that is gone, or going, before it launched was refused. Registered nodes that never become usable are
ours to time out. Nothing expires by itself (`expireAfter: Never`): rotation is ours.

Source: karpenter v1.14 pkg/apis/v1/nodeclaim.go, pkg/controllers/nodeclaim/lifecycle.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from fleet import labels
from fleet.errors import Conflict, Invalid, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.providers.objects import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ZONE,
    Condition,
    Listed,
    Meta,
    offer_text,
    read_offer,
    requests,
    setting,
    taint_objects,
)
from warmpool.providers.provider import (
    Capabilities,
    Machine,
    MachinePhase,
    OrdersOnly,
    Receipt,
    Refusal,
    machine_names,
)
from warmpool.values import Offer, PoolSpec, ProviderKind

API_VERSION = "karpenter.sh/v1"
PLURAL = "nodeclaims"
KIND = "karpenter"


class _Status(msgspec.Struct, rename="camel"):
    node_name: str = ""
    conditions: list[Condition] | None = None


class NodeClaim(msgspec.Struct):
    """A NodeClaim, as far as we read it."""

    metadata: Meta
    status: _Status = msgspec.field(default_factory=_Status)


_claim = msgspec.json.Decoder(NodeClaim).decode
_claims = msgspec.json.Decoder(Listed[NodeClaim]).decode


class KarpenterProvider(OrdersOnly):
    """Orders NodeClaims.

    Settings of a pool: `nodeClassGroup`, `nodeClassKind`, `nodeClassName` (needed: they are the cloud's own).

    Args:
        client: May create, list and delete NodeClaims.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def kind(self) -> ProviderKind:
        """Return `karpenter`."""
        return ProviderKind.KARPENTER

    def capabilities(self) -> Capabilities:
        """Return what it can promise: the exact node, but of a refusal only that the machine went."""
        return Capabilities(can_order=True, can_release_exactly=True, taints_at_birth=True)

    async def provision(self, pool: PoolSpec, offer: Offer, count: int, key: str) -> Receipt:
        """Create the NodeClaims of an order."""
        made: list[str] = []
        for name in machine_names(pool.name, key, count):
            try:
                body = msgspec.json.encode(node_claim(pool, offer, name))
                await self._client.create(paths.custom(API_VERSION, PLURAL), body)
            except Conflict:
                pass  # the same order again
            except Invalid as error:
                return Receipt(names=tuple(made), refusal=Refusal.INVALID, detail=error.message)
            made.append(name)
        return Receipt(names=tuple(made))

    async def list(self, pools: Sequence[PoolSpec]) -> tuple[Machine, ...]:
        """Return the NodeClaims of these pools."""
        names = {pool.name for pool in pools}
        selector = {"labelSelector": f"{labels.MACHINE}={KIND}"}
        listed = _claims(await self._client.get(paths.custom(API_VERSION, PLURAL), selector))
        return tuple(machine_of(claim) for claim in listed.items if claim.metadata.pool in names)

    async def state(self, pool: PoolSpec, name: str) -> Machine | None:
        """Return one NodeClaim."""
        try:
            return machine_of(_claim(await self._client.get(paths.custom(API_VERSION, PLURAL, name=name))))
        except NotFound:
            return None

    async def release(self, pool: PoolSpec, machine: Machine) -> None:
        """Delete the NodeClaim: Karpenter drains and ends the machine. A Node that has none any more goes by itself."""
        with contextlib.suppress(NotFound, Conflict):  # gone, or another of its name
            await self._client.delete(paths.custom(API_VERSION, PLURAL, name=machine.name), uid=machine.uid or None)
            return
        if machine.node_name and await self.state(pool, machine.name) is None:
            with contextlib.suppress(NotFound):
                await self._client.delete(paths.node(machine.node_name))


def node_claim(pool: PoolSpec, offer: Offer, name: str) -> dict[str, Any]:
    """Return the NodeClaim of one machine; labels, annotations and taints are copied to its Node at registration."""
    shape = pool.shape
    chosen = ((INSTANCE_TYPE, shape.instance_type), (ZONE, offer.zone), (CAPACITY_TYPE, offer.capacity_type))
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "labels": {**dict(shape.labels), labels.POOL: pool.name, labels.MACHINE: KIND},
            "annotations": {labels.SHAPE: shape.fingerprint, labels.OFFER: offer_text(offer)},
        },
        "spec": {
            "nodeClassRef": {
                "group": setting(pool, "nodeClassGroup"),
                "kind": setting(pool, "nodeClassKind"),
                "name": setting(pool, "nodeClassName"),
            },
            "requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in chosen if value],
            "resources": {"requests": requests(shape)},
            "taints": taint_objects(pool.pool_taint),
            "startupTaints": taint_objects(pool.readiness_taint),
            "expireAfter": "Never",
        },
    }


def machine_of(claim: NodeClaim) -> Machine:
    """Return what the provider shows of a NodeClaim."""
    conditions = {condition.type: condition for condition in claim.status.conditions or ()}
    launched = conditions.get("Launched")
    is_launched = launched is not None and launched.status == "True"
    is_going = claim.metadata.deletion_timestamp is not None
    phase = MachinePhase.LAUNCHED if is_launched else MachinePhase.ORDERED
    if claim.status.node_name:
        phase = MachinePhase.REGISTERED
    refusal = None
    if is_going and not is_launched:
        phase, refusal = MachinePhase.FAILED, Refusal.INSUFFICIENT_CAPACITY
    return Machine(
        name=claim.metadata.name,
        pool=claim.metadata.pool,
        node_name=claim.status.node_name,
        phase=phase,
        refusal=refusal,
        detail=(launched.message or launched.reason or "") if launched is not None and not is_launched else "",
        offer=read_offer(claim.metadata.note(labels.OFFER)),
        shape=claim.metadata.note(labels.SHAPE),
        uid=claim.metadata.uid,
        is_deleting=is_going,
    )
