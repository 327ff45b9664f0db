"""Providers whose process dies at any write, before or after it took place: the next one brings it to the same end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet import labels
from fleet.kube import paths
from tests.support.clock import ManualClock
from tests.support.small_api import Died, SmallApi
from tests.support.warm_world import IMAGE, a_pool
from warmpool.providers.fate import Cloud
from warmpool.providers.kwok import KwokProvider
from warmpool.providers.machinedeployment import (
    API_VERSION,
    DELETE_MACHINE,
    DEPLOYMENT_LABEL,
    MachineDeploymentProvider,
)
from warmpool.providers.provider import MachinePhase, Refusal
from warmpool.values import Offer, Shape

POOL = a_pool(shape=Shape(devices=1), provider_settings={"namespace": "capi", "name": "md"})
CLOUD = Cloud(launch_s=1.0, register_s=3.0, devices_s=2.0, pull_s=2.0, variation_ratio=0.0)
WRITES = range(1, 30)


class KwokLife:
    """Two machines from order to nothing, whoever dies on the way."""

    def __init__(self, api: SmallApi) -> None:
        self.api = api
        self.clock = ManualClock()
        self.provider = self.fresh()

    def fresh(self) -> KwokProvider:
        client: Any = self.api
        return KwokProvider(client, self.clock, CLOUD, namespace="ns")

    async def go(self, step: Any) -> None:
        """Do it; if the process dies, do it again in a new one, as a controller would."""
        try:
            await step()
        except Died:
            self.provider = self.fresh()
            await step()

    async def live(self) -> None:
        await self.go(lambda: self.provider.provision(POOL, Offer(), 2, "k"))
        assert len(await self.provider.list((POOL,))) == 2
        for _ in range(14):
            await self.go(self.provider.turn)
            await self.clock.advance(1.0)
            await self.pull()
        machines = await self.provider.list((POOL,))
        assert [machine.phase for machine in machines] == [MachinePhase.REGISTERED] * 2
        for machine in machines:
            node = json.loads(await self.api.get(paths.node(machine.node_name)))
            assert node["status"]["allocatable"][labels.NVIDIA_GPU] == "1"
            assert node["status"]["images"][0]["names"] == [IMAGE.pinned]

        async def release() -> None:
            for machine in await self.provider.list((POOL,)):
                await self.provider.release(POOL, machine)

        await self.go(release)
        for _ in range(2):
            await self.go(self.provider.turn)
        assert [path for path in self.api.objects if "/pods/" not in path] == [], "nothing is left"

    async def pull(self) -> None:
        """Be the controller: a pod that pulls on every node that is there."""
        for machine in await self.provider.list((POOL,)):
            path = f"{paths.pods('ns')}/pull-{machine.name}"
            if machine.node_name and path not in self.api.objects:
                meta = {
                    "name": machine.name,
                    "labels": {labels.PULLER: "true"},
                    "annotations": {labels.IMAGES: IMAGE.pinned},
                }
                self.api.objects[path] = {"metadata": meta, "spec": {"nodeName": machine.node_name}}
                self.api.objects[f"{paths.PODS}/pull-{machine.name}"] = self.api.objects[path]


@pytest.mark.parametrize("is_written", [False, True])
async def test_the_simulated_cloud_leaves_nothing_behind_wherever_it_dies(is_written: bool) -> None:
    whole = SmallApi()
    await KwokLife(whole).live()
    assert 10 < whole.writes < WRITES.stop
    for dies_at in WRITES:
        api = SmallApi()
        api.dies_at, api.is_written = dies_at, is_written
        await KwokLife(api).live()


async def test_a_refusal_is_seen_and_then_goes() -> None:
    api: Any = SmallApi()
    clock = ManualClock()
    provider = KwokProvider(api, clock, Cloud(launch_s=1.0, shortage_ratio=1.0, variation_ratio=0.0), namespace="ns")
    await provider.provision(POOL, Offer(zone="z"), 1, "k")
    for _ in range(3):
        await provider.turn()
        await clock.advance(0.6)
    (machine,) = await provider.list((POOL,))
    assert (machine.phase, machine.refusal) == (MachinePhase.FAILED, Refusal.INSUFFICIENT_CAPACITY)
    assert "z/any" in machine.detail
    for _ in range(3):
        await provider.turn()
        await clock.advance(1.1)
    assert api.objects == {}


async def test_a_node_taken_away_takes_its_machine_along() -> None:
    api: Any = SmallApi()
    clock = ManualClock()
    provider = KwokProvider(api, clock, Cloud(vanish_per_hour=3600.0, register_s=1.0, launch_s=0.0), namespace="ns")
    await provider.provision(POOL, Offer(), 1, "k")
    seen = set()
    for _ in range(30):
        await provider.turn()
        await clock.advance(1.0)
        seen.add(len(api.objects))
    assert 2 in seen
    assert api.objects == {}


def an_md(api: SmallApi, replicas: int) -> str:
    path = paths.custom(API_VERSION, "machinedeployments", namespace="capi", name="md")
    api.objects[path] = {"metadata": {"name": "md", "resourceVersion": "0"}, "spec": {"replicas": replicas}}
    for number in range(replicas):
        meta = {"name": f"m{number}", "uid": f"u{number}", "labels": {DEPLOYMENT_LABEL: "md"}}
        machines = paths.custom(API_VERSION, "machines", namespace="capi")
        api.objects[f"{machines}/m{number}"] = {"metadata": meta, "status": {"nodeRef": {"name": f"n{number}"}}}
    return path


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("dies_at", range(4))
async def test_replicas_are_counted_once_wherever_the_process_dies(dies_at: int, is_written: bool) -> None:
    api: Any = SmallApi()
    md = an_md(api, 3)
    api.dies_at, api.is_written = dies_at, is_written
    machine = (await MachineDeploymentProvider(api).list((POOL,)))[1]
    for _ in range(3):
        try:
            await MachineDeploymentProvider(api).release(POOL, machine)
        except Died:
            continue
    assert api.objects[md]["spec"]["replicas"] == 2
    path = paths.custom(API_VERSION, "machines", namespace="capi", name="m1")
    assert DELETE_MACHINE in api.objects[path]["metadata"]["annotations"]
    assert not any(one.is_placeholder for one in await MachineDeploymentProvider(api).list((POOL,)))
    del api.objects[path]
    api.dies_at, api.writes = dies_at, 0
    for _ in range(3):
        try:
            await MachineDeploymentProvider(api).provision(POOL, Offer(), 2, "key")
        except Died:
            continue
    assert api.objects[md]["spec"]["replicas"] == 4
    assert sum(one.is_placeholder for one in await MachineDeploymentProvider(api).list((POOL,))) == 2


async def test_a_machine_deployment_that_is_not_there_is_a_refusal() -> None:
    api: Any = SmallApi()
    receipt = await MachineDeploymentProvider(api).provision(POOL, Offer(), 2, "key")
    assert receipt.refusal is Refusal.INVALID
    assert "capi/md" in receipt.detail
    assert await MachineDeploymentProvider(api).list((POOL,)) == ()


async def test_somebody_else_scaling_meanwhile_is_not_overwritten() -> None:
    api: Any = SmallApi()
    md = an_md(api, 1)

    class Meddler(MachineDeploymentProvider):
        meddled = False

        async def _scale(self, pool: Any, found: Any, by: int, notes: Any) -> bool:
            if not self.meddled:
                self.meddled = True
                await api.merge_patch(md, b'{"spec": {"replicas": 5}}')
            return await super()._scale(pool, found, by, notes)

    await Meddler(api).provision(POOL, Offer(), 2, "key")
    assert api.objects[md]["spec"]["replicas"] == 7
