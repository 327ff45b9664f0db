"""Nodes by Cluster API: a MachineDeployment whose replicas we count up and down.

Ordering raises `spec.replicas`; releasing marks one Machine as the one to delete and lowers it. Both are one
compare-and-swap on the MachineDeployment that also notes what was done, so that the same order or release, asked for
again after a lost answer or a restart, is not carried out twice. Machines get their names from Cluster API: what was
ordered and is not there yet shows as placeholders.

The MachineDeployment must give its nodes the pool's two taints (spec.template.spec.taints, Cluster API v1.12 or newer).
Source: cluster-api v1.14, annotation cluster.x-k8s.io/delete-machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fleet import labels
from fleet.errors import Conflict, DecodeError, Invalid, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.providers.objects import Listed, Meta, setting
from warmpool.providers.provider import Capabilities, Machine, MachinePhase, OrdersOnly, Receipt, Refusal
from warmpool.values import Offer, PoolSpec, ProviderKind

API_VERSION = "cluster.x-k8s.io/v1beta2"
DELETE_MACHINE = "cluster.x-k8s.io/delete-machine"
DEPLOYMENT_LABEL = "cluster.x-k8s.io/deployment-name"
RELEASED = f"{labels.DOMAIN}/released"  # machines that the number of replicas was already lowered for
_TRIES = 5


class _NodeRef(msgspec.Struct):
    name: str = ""


class _MachineStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    node_ref: _NodeRef | None = None


class CapiMachine(msgspec.Struct):
    """A Machine, as far as we read it."""

    metadata: Meta
    status: _MachineStatus = msgspec.field(default_factory=_MachineStatus)


class _DeploymentSpec(msgspec.Struct):
    replicas: int = 1


class _Deployment(msgspec.Struct):
    metadata: Meta
    spec: _DeploymentSpec = msgspec.field(default_factory=_DeploymentSpec)


_deployment = msgspec.json.Decoder(_Deployment).decode
_machine = msgspec.json.Decoder(CapiMachine).decode
_machines = msgspec.json.Decoder(Listed[CapiMachine]).decode

_PHASES: Mapping[str, MachinePhase] = {
    "Provisioned": MachinePhase.LAUNCHED,
    "Running": MachinePhase.LAUNCHED,
    "Updating": MachinePhase.LAUNCHED,
    "Failed": MachinePhase.FAILED,
}


class MachineDeploymentProvider(OrdersOnly):
    """Scales MachineDeployments.

    Settings of a pool: `namespace` and `name` of its MachineDeployment.

    Args:
        client: To the management cluster; may patch the MachineDeployments, list and patch Machines.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def kind(self) -> ProviderKind:
        """Return `machinedeployment`."""
        return ProviderKind.MACHINE_DEPLOYMENT

    def capabilities(self) -> Capabilities:
        """Return what it can promise."""
        return Capabilities(can_order=True, can_release_exactly=True, tells_failure=True, taints_at_birth=True)

    async def provision(self, pool: PoolSpec, offer: Offer, count: int, key: str) -> Receipt:
        """Raise the number of replicas, once per key."""
        for _ in range(_TRIES):
            found = await self._deployment(pool)
            if found is None:
                return Receipt(refusal=Refusal.INVALID, detail=f"there is no MachineDeployment {_named(pool)}")
            if found.metadata.note(labels.ORDER_KEY) == key:
                return Receipt()
            if await self._scale(pool, found, count, {labels.ORDER_KEY: key}):
                return Receipt()
        return Receipt(refusal=Refusal.UNAVAILABLE, detail=f"MachineDeployment {_named(pool)} keeps changing")

    async def list(self, pools: Sequence[PoolSpec]) -> tuple[Machine, ...]:
        """Return the Machines of these pools' MachineDeployments, and what is still to come of each."""
        machines: list[Machine] = []
        for pool in pools:
            found = await self._deployment(pool)
            if found is None:
                continue
            path = paths.custom(API_VERSION, "machines", namespace=setting(pool, "namespace"))
            selector = {"labelSelector": f"{DEPLOYMENT_LABEL}={setting(pool, 'name')}"}
            there = [machine_of(item, pool) for item in _machines(await self._client.get(path, selector)).items]
            machines += there
            staying = sum(not machine.is_deleting for machine in there)
            pending = max(0, found.spec.replicas + len(_open(found, there)) - staying)
            machines += [
                Machine(name=f"{pool.name}-pending-{number}", pool=pool.name, is_placeholder=True)
                for number in range(pending)
            ]
        return tuple(machines)

    async def state(self, pool: PoolSpec, name: str) -> Machine | None:
        """Return one Machine."""
        path = paths.custom(API_VERSION, "machines", namespace=setting(pool, "namespace"), name=name)
        try:
            return machine_of(_machine(await self._client.get(path)), pool)
        except NotFound:
            return None

    async def release(self, pool: PoolSpec, machine: Machine) -> None:
        """Mark the Machine as the one to delete, then lower the number of replicas, once per Machine."""
        path = paths.custom(API_VERSION, "machines", namespace=setting(pool, "namespace"), name=machine.name)
        mark = {"metadata": {"annotations": {DELETE_MACHINE: "true"}, **({"uid": machine.uid} if machine.uid else {})}}
        try:
            await self._client.merge_patch(path, msgspec.json.encode(mark))
        except (NotFound, Conflict):
            return
        for _ in range(_TRIES):
            found = await self._deployment(pool)
            if found is None:
                return
            there = {item.name for item in await self.list((pool,)) if not item.is_placeholder}
            noted = [name for name in _noted(found) if name in there]  # the others are gone
            if machine.name in noted:
                return
            if await self._scale(pool, found, -1, {RELEASED: ",".join((*noted, machine.name))}):
                return
        raise Conflict(409, "Conflict", f"MachineDeployment {_named(pool)} keeps changing")

    async def _deployment(self, pool: PoolSpec) -> _Deployment | None:
        try:
            return _deployment(await self._client.get(_path(pool)))
        except NotFound:
            return None

    async def _scale(self, pool: PoolSpec, found: _Deployment, by: int, notes: Mapping[str, str]) -> bool:
        """Change the number and note why, if nobody changed the object meanwhile."""
        change = {
            "metadata": {"resourceVersion": found.metadata.resource_version, "annotations": dict(notes)},
            "spec": {"replicas": max(0, found.spec.replicas + by)},
        }
        try:
            await self._client.merge_patch(_path(pool), msgspec.json.encode(change))
        except Conflict:
            return False
        except Invalid as error:
            raise DecodeError(f"MachineDeployment {_named(pool)}: {error.message}") from None
        return True


def machine_of(item: CapiMachine, pool: PoolSpec) -> Machine:
    """Return what the provider shows of a Machine."""
    node = item.status.node_ref.name if item.status.node_ref is not None else ""
    phase = MachinePhase.REGISTERED if node else _PHASES.get(item.status.phase, MachinePhase.ORDERED)
    is_failed = item.status.phase == "Failed"
    return Machine(
        name=item.metadata.name,
        pool=pool.name,
        node_name=node,
        phase=MachinePhase.FAILED if is_failed else phase,
        refusal=Refusal.UNKNOWN if is_failed else None,
        detail="the Machine says Failed" if is_failed else "",
        uid=item.metadata.uid,
        is_deleting=item.metadata.deletion_timestamp is not None,
    )


def _noted(found: _Deployment) -> tuple[str, ...]:
    return tuple(name for name in found.metadata.note(RELEASED).split(",") if name)


def _open(found: _Deployment, there: Sequence[Machine]) -> list[str]:
    """Return the machines that are to go, are no longer counted in the replicas, and have not begun to go."""
    noted = _noted(found)
    return [machine.name for machine in there if machine.name in noted and not machine.is_deleting]


def _path(pool: PoolSpec) -> str:
    namespace, name = setting(pool, "namespace"), setting(pool, "name")
    return paths.custom(API_VERSION, "machinedeployments", namespace=namespace, name=name)


def _named(pool: PoolSpec) -> str:
    return f"{setting(pool, 'namespace')}/{setting(pool, 'name')}"
