"""A cloud of our own making, for the demo, tests and benches: Node objects after drawn delays, kept alive by kwok.

An order is a ConfigMap, so that no order and no node is lost when this process dies: the next one finds the records,
draws the same fates from their names and goes on, its clocks beginning anew. A node goes before its record does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from fleet import labels
from fleet.clock import Clock
from fleet.errors import Conflict, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.providers.fate import Cloud, Fate, fate
from warmpool.providers.kwok_objects import (
    KIND,
    Record,
    devices_patch,
    images_patch,
    machine_of,
    record_object,
)
from warmpool.providers.objects import Listed, Meta
from warmpool.providers.provider import Capabilities, Machine, OrdersOnly, Receipt, machine_names
from warmpool.values import Offer, PoolSpec, ProviderKind

_REFUSED_FOR_S = 2.0  # how long a refusal can be seen before the machine's record goes, on the simulation's clock


class _Image(msgspec.Struct):
    names: list[str] | None = None


class _Status(msgspec.Struct):
    allocatable: dict[str, str] | None = None
    images: list[_Image] | None = None


class _Node(msgspec.Struct):
    metadata: Meta
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def images(self) -> frozenset[str]:
        return frozenset(name for image in self.status.images or () for name in image.names or ())


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


_record = msgspec.json.Decoder(Record).decode
_records = msgspec.json.Decoder(Listed[Record]).decode
_nodes = msgspec.json.Decoder(Listed[_Node]).decode
_pods = msgspec.json.Decoder(Listed[_Pod]).decode


@dataclass(slots=True)
class _Life:
    """When this process first saw what; monotonic seconds, None = not yet."""

    record_s: float
    refused_s: float | None = None
    node_s: float | None = None
    pull_s: float | None = None


class KwokProvider(OrdersOnly):
    """The provider, and with `turn` the cloud behind it.

    Args:
        client: May read and write Nodes, their status, and the ConfigMaps of the namespace; may list pods.
        clock: For the drawn delays.
        cloud: How the cloud behaves; may be replaced between two turns (a shortage begins).
        namespace: Of the records.
    """

    def __init__(
        self, client: Client, clock: Clock, cloud: Cloud | None = None, *, namespace: str = labels.NAMESPACE
    ) -> None:
        self.cloud = cloud or Cloud()
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._lives: dict[str, _Life] = {}

    @property
    def kind(self) -> ProviderKind:
        """Return `kwok`."""
        return ProviderKind.KWOK

    def capabilities(self) -> Capabilities:
        """Return what it can promise: everything but stopped machines."""
        return Capabilities(can_order=True, can_release_exactly=True, tells_failure=True, taints_at_birth=True)

    async def provision(self, pool: PoolSpec, offer: Offer, count: int, key: str) -> Receipt:
        """Write the records of an order."""
        names = machine_names(pool.name, key, count)
        for name in names:
            body = msgspec.json.encode(record_object(pool, offer, name, self._namespace))
            try:
                await self._client.create(paths.config_maps(self._namespace), body)
            except Conflict:
                continue  # the same order again
        return Receipt(names=names)

    async def list(self, pools: Sequence[PoolSpec]) -> tuple[Machine, ...]:
        """Return the machines of these pools."""
        names = {pool.name for pool in pools}
        nodes = await self._all_nodes()
        machines = [machine_of(record, nodes) for record in await self._all_records()]
        return tuple(machine for machine in machines if machine.pool in names)

    async def state(self, pool: PoolSpec, name: str) -> Machine | None:
        """Return one machine."""
        try:
            record = _record(await self._client.get(paths.config_maps(self._namespace, name)))
        except NotFound:
            return None
        return machine_of(record, await self._all_nodes())

    async def release(self, pool: PoolSpec, machine: Machine) -> None:
        """Remove node and record, in this order."""
        await self._remove(machine.name)

    async def turn(self) -> None:
        """Let time pass: refuse, launch, register, announce devices, list images, take away, each when it is due."""
        now_s = self._clock.monotonic_s()
        records = {record.name: record for record in await self._all_records()}
        self._lives = {name: self._lives.get(name, _Life(record_s=now_s)) for name in records}
        if not records:
            return
        nodes = await self._all_nodes()
        pulls = await self._pulls() if nodes else {}
        for name, record in records.items():
            life, node = self._lives[name], nodes.get(name)
            drawn = fate(self.cloud, name, record.offer)
            if record.get("released"):
                await self._remove(name)
            elif node is None:
                await self._towards_registration(record, life, drawn, now_s)
            elif node.metadata.deletion_timestamp is None:
                await self._on_the_node(record, life, drawn, node, pulls.get(name), now_s)

    async def _towards_registration(self, record: Record, life: _Life, drawn: Fate, now_s: float) -> None:
        since_s = now_s - life.record_s
        if record.get("refused"):
            life.refused_s = now_s if life.refused_s is None else life.refused_s
            if now_s - life.refused_s >= _REFUSED_FOR_S / self.cloud.time_scale:
                await self._remove(record.name)
        elif life.node_s is not None:
            await self._remove(record.name)  # somebody deleted the Node: the machine is gone with it
        elif since_s >= drawn.launched_s and drawn.is_refused and not record.get("launched"):
            await self._note(record.name, refused=f"no capacity for {record.offer}")
        elif since_s >= drawn.registered_s:
            with contextlib.suppress(Conflict):  # another process of ours was first
                await self._client.create(paths.NODES, record.get("node").encode())
            life.node_s = now_s
        elif since_s >= drawn.launched_s and not record.get("launched"):
            await self._note(record.name, launched="true")

    async def _on_the_node(
        self, record: Record, life: _Life, drawn: Fate, node: _Node, pull: frozenset[str] | None, now_s: float
    ) -> None:
        life.node_s = now_s if life.node_s is None else life.node_s
        life.pull_s = None if pull is None else (now_s if life.pull_s is None else life.pull_s)
        if now_s - life.node_s >= drawn.vanishes_s:
            await self._remove(record.name)
            return
        resource = record.get("devices").rpartition("=")[0]
        has_devices = resource in (node.status.allocatable or {})
        patches: list[bytes | None] = []
        if not has_devices and now_s - life.node_s >= drawn.devices_s:
            patches.append(devices_patch(record))
        if (
            pull is not None
            and life.pull_s is not None
            and not pull <= node.images
            and now_s - life.pull_s >= drawn.pull_s
        ):
            patches.append(images_patch(pull | node.images))
        for patch in patches:
            if patch is not None:
                try:
                    await self._client.merge_patch(f"{paths.node(record.name)}/status", patch)
                except NotFound:
                    return

    async def _remove(self, name: str) -> None:
        """Remove node and record; whoever dies in between leaves a record that says so."""
        await self._note(name, released="true")
        for path in (paths.node(name), paths.config_maps(self._namespace, name)):
            try:
                await self._client.delete(path)
            except NotFound:
                continue

    async def _note(self, name: str, **entries: str) -> None:
        try:
            await self._client.merge_patch(
                paths.config_maps(self._namespace, name), msgspec.json.encode({"data": entries})
            )
        except NotFound:
            return

    async def _all_records(self) -> Iterable[Record]:
        path = paths.config_maps(self._namespace)
        return _records(await self._client.get(path, {"labelSelector": f"{labels.MACHINE}={KIND}"})).items

    async def _all_nodes(self) -> dict[str, _Node]:
        listed = _nodes(await self._client.get(paths.NODES, {"labelSelector": f"{labels.MACHINE}={KIND}"}))
        return {node.metadata.name: node for node in listed.items}

    async def _pulls(self) -> dict[str, frozenset[str]]:
        """Return what is being pulled, by node: what the pulling pods say they pull."""
        listed = _pods(await self._client.get(paths.PODS, {"labelSelector": labels.PULLER}))
        pulls: dict[str, frozenset[str]] = {}
        for pod in listed.items:
            text = (pod.metadata.annotations or {}).get(labels.IMAGES, "")
            images = frozenset(image for image in text.split(",") if image)
            pulls[pod.spec.node_name] = pulls.get(pod.spec.node_name, frozenset()) | images
        return pulls
