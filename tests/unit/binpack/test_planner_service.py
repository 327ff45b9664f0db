"""One planner replica from campaign to campaign, against a small API server in the test's own process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import weakref

import pytest
from prometheus_client import CollectorRegistry

from binpack.config import PlannerSettings
from binpack.controller import service
from binpack.controller.service import Planner
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import ConfigError
from tests.support.builders import node_json, pod_json
from tests.support.clock import ManualClock
from tests.support.fake_api import FakeApi

PODS, NODES, SLICES = "/api/v1/pods", "/api/v1/nodes", "/apis/resource.k8s.io/v1/resourceslices"
LEASES = "/apis/coordination.k8s.io/v1/leases"


class Stage:
    """A replica, its API and its clock."""

    def __init__(self, api, clock, planner, registry):
        self.api = api
        self.clock = clock
        self.planner = planner
        self.registry = registry

    def node(self, name="n1", gpus=1, **words):
        self.api.put(NODES, node_json(name, gpus=gpus, labels={labels.DEVICE_SHARING: "true"}, **words))

    def pod(self, name, **requests):
        amounts = {key.replace("_", "-"): value for key, value in requests.items()}
        obj = pod_json(
            name,
            requests={f"berthmaster.dev/{key}": value for key, value in amounts.items()},
            schedulingGates=[{"name": labels.PLAN_GATE}],
            metadata={"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]},
        )
        self.api.put(PODS, obj)

    def pods(self):
        return {name: pod for (_, name), pod in self.api.objects(PODS).items()}

    def devices(self):
        return {
            name: pod["metadata"].get("annotations", {}).get(labels.DEVICES)
            for name, pod in self.pods().items()
            if not pod["spec"].get("schedulingGates")
        }

    def lease(self):
        return next(iter(self.api.objects(LEASES).values()))

    def steal(self, holder):
        lease = json.loads(json.dumps(self.lease()))
        lease["spec"]["holderIdentity"] = holder
        lease["spec"]["leaseTransitions"] = lease["spec"].get("leaseTransitions", 0) + 1
        self.api.put(LEASES, lease)

    def value(self, name, **found):
        return self.registry.get_sample_value(name, found)

    async def until(self, holds, *, most_s=60.0):
        """Let time pass until it holds; the sockets are real, the time is not."""
        start_s = self.clock.monotonic_s()
        while not holds():
            assert self.clock.monotonic_s() - start_s < most_s, "it never came to hold"
            await self.clock.advance(0.05)
            await SystemClock().sleep(0.002)


@contextlib.asynccontextmanager
async def playing(**settings):
    clock, registry = ManualClock(), CollectorRegistry()
    async with FakeApi() as api:
        planner = Planner(api.connection(clock), clock, PlannerSettings(**({"solve_s": 0.0} | settings)), registry)
        stage = Stage(api, clock, planner, registry)
        running = asyncio.ensure_future(planner.run())
        try:
            yield stage
        finally:
            if running.done():
                running.result()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            gc.unfreeze()


async def test_what_is_there_before_the_planner_and_what_comes_later_is_placed():
    async with playing() as stage:
        stage.node(gpus=2)
        stage.pod("early", gpu="1")
        await stage.until(lambda: len(stage.devices()) == 1)
        stage.pod("late", gpu="1")
        await stage.until(lambda: len(stage.devices()) == 2)
        assert set(stage.devices().values()) == {"0", "1"}
        assert stage.value("berthmaster_leader") == 1
        assert stage.planner.not_ready() == ""


async def test_nothing_is_planned_before_everything_was_listed_from_quorum():
    async with playing() as stage:
        stage.node(gpus=1)
        stage.pod("early", gpu="1")
        stage.api.fail(503, path=NODES, times=4)
        await stage.until(lambda: "early" in stage.devices())
        said = [request.path for request in stage.api.asked("PATCH", PODS.rpartition("/")[2])]
        assert not any(path.endswith("/status") for path in said), "it never had to say that there are no nodes"
        first_patch = next(n for n, request in enumerate(stage.api.requests) if "/pods/early" in request.path)
        listed = {
            request.path
            for request in stage.api.requests[:first_patch]
            if request.method == "GET" and not request.is_watch and "resourceVersion" not in request.query
        }
        assert {PODS, NODES, SLICES} <= listed


async def test_a_pod_placed_by_an_earlier_planner_keeps_its_device():
    async with playing() as stage:
        stage.node(gpus=2)
        stage.api.put(
            PODS,
            pod_json("earlier", requests={"berthmaster.dev/gpu": "1"}, annotations={labels.DEVICES: "0"}, node="n1"),
        )
        stage.pod("later", gpu="1")
        await stage.until(lambda: "later" in stage.devices())
        assert stage.devices()["later"] == "1"


async def test_a_replica_that_does_not_lead_is_ready_and_writes_nothing():
    async with playing() as stage:
        await stage.until(lambda: stage.value("berthmaster_leader") == 1)
        stage.steal("somebody-else")
        await stage.until(lambda: stage.value("berthmaster_leader") == 0)
        stage.node()
        stage.pod("waits", gpu="1")
        await stage.clock.advance(3.0)
        assert stage.planner.not_ready() == ""
        assert stage.devices() == {}
        assert stage.registry.get_sample_value("berthmaster_pods_waiting", {"reason": "Insufficient"}) is None


async def test_a_lost_leadership_is_taken_up_again_with_everything_made_afresh(monkeypatch):
    worlds = []

    class Remembered(service.World):
        def __init__(self, *words):
            super().__init__(*words)
            worlds.append(weakref.ref(self))

    monkeypatch.setattr(service, "World", Remembered)
    async with playing() as stage:
        stage.node(gpus=3)
        stage.pod("first", gpu="1")
        await stage.until(lambda: "first" in stage.devices())
        for term in range(2):
            stage.steal(f"somebody-else-{term}")
            await stage.until(lambda: stage.value("berthmaster_leader") == 0)
            stage.pod(f"meanwhile-{term}", gpu="1")
            await stage.until(lambda: stage.value("berthmaster_leader") == 1, most_s=120.0)
            await stage.until(lambda term=term: f"meanwhile-{term}" in stage.devices())
        assert len(set(stage.devices().values())) == 3
        assert len(worlds) == 3
        gc.collect()
        assert [world() is not None for world in worlds] == [False, False, True], "what is over is not kept in memory"


async def test_watches_that_break_and_history_that_is_forgotten_lose_nothing():
    async with playing() as stage:
        stage.node(gpus=4)
        stage.pod("a", gpu="1")
        await stage.until(lambda: "a" in stage.devices())
        stage.api.drop_watches()
        stage.api.remove(PODS, "a", "default")
        stage.pod("b", gpu="4")
        await stage.until(lambda: "b" in stage.devices(), most_s=200.0)
        stage.api.remove(PODS, "b", "default", is_told=False)
        stage.api.forget_history()
        stage.api.drop_watches()
        stage.pod("c", gpu="4")
        await stage.until(lambda: "c" in stage.devices(), most_s=200.0)


async def test_a_malformed_object_is_counted_and_does_not_stop_the_others():
    async with playing() as stage:
        stage.node(gpus=1)
        await stage.until(lambda: stage.value("berthmaster_leader") == 1)
        stage.api.put(PODS, {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"containers": 7}})
        stage.api.put(NODES, {"metadata": {"name": "odd"}, "status": {"allocatable": ["cpu"]}})
        stage.pod("even", gpu="1")
        await stage.until(lambda: "even" in stage.devices())
        assert stage.value("berthmaster_malformed_total", kind="pod") == 1
        assert stage.value("berthmaster_malformed_total", kind="node") == 1


async def test_an_object_that_our_own_code_fails_on_is_skipped_and_counted(monkeypatch, caplog):
    real = service.World.pod_seen

    def pod_seen(self, pod):
        if pod.name == "cursed":
            raise RuntimeError("a fault of ours")
        real(self, pod)

    monkeypatch.setattr(service.World, "pod_seen", pod_seen)
    async with playing() as stage:
        stage.node(gpus=1)
        await stage.until(lambda: stage.value("berthmaster_leader") == 1)
        stage.pod("cursed", gpu="1")
        stage.pod("fine", gpu="1")
        await stage.until(lambda: "fine" in stage.devices())
        assert stage.value("berthmaster_malformed_total", kind="pod") == 1
    assert "pod default/cursed could not be dealt with" in caplog.text


@pytest.mark.parametrize("status", [409, 422, 500, 503])
async def test_patches_that_are_refused_are_tried_again(status):
    async with playing() as stage:
        stage.node(gpus=1)
        stage.api.fail(status, method="PATCH", path="/pods/", times=3)
        stage.pod("a", gpu="1")
        await stage.until(lambda: "a" in stage.devices(), most_s=120.0)


async def test_the_waiting_are_counted_by_reason():
    async with playing() as stage:
        stage.node(gpus=1)
        stage.pod("too-much", gpu="2")
        await stage.until(lambda: stage.value("berthmaster_pods_waiting", reason="NoSuchDevice") == 1)
        await stage.until(
            lambda: any(
                one["type"] == labels.WAITING_CONDITION
                for one in stage.pods()["too-much"].get("status", {}).get("conditions", [])
            )
        )


async def test_an_address_that_is_taken_is_told_in_one_line(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    user, cluster = {"name": "a", "user": {}}, {"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    document = {"current-context": "a", "contexts": [context], "clusters": [cluster], "users": [user]}
    kubeconfig.write_text(json.dumps(document))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"cannot listen on {address}"):
            await service.run_planner(kubeconfig=str(kubeconfig), listen=address, environment={}, prefix="X", flags={})
