"""Every way of making nodes against the real API server: marks, claims and releases included."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.errors import ApiError, Conflict, Invalid, NotFound
from fleet.kube import paths
from fleet.kube.claimer import Candidate, Claimer, Held, Miss
from fleet.kube.client import Client
from fleet.resources import Resources
from tests.support.cluster import client_of, kubectl
from tests.support.eventually import eventually
from tests.support.warm_shell import CLOCK, Shell, definition, module_folder
from warmpool.nodes.action import Drawn, Lead, Mark, Outcome
from warmpool.nodes.marks import mark_patch
from warmpool.providers import karpenter, machinedeployment
from warmpool.providers.adopt import AdoptProvider
from warmpool.providers.capacitybuffer import CapacityBufferProvider, buffer_names
from warmpool.providers.fate import Cloud
from warmpool.providers.karpenter import KarpenterProvider
from warmpool.providers.kwok import KwokProvider
from warmpool.providers.machinedeployment import MachineDeploymentProvider
from warmpool.values import Image, Offer, PoolSpec, Shape, Why

pytestmark = [pytest.mark.contract]

NAMESPACE = "warm"
IMAGE = Image(reference="registry.example/rt:1", digest=f"sha256:{'a' * 64}")
FAST = Cloud(time_scale=400.0, seed=7)
_NUMBERS = itertools.count(1)


@pytest.fixture
async def client(control_plane: Cluster) -> AsyncIterator[Client]:
    async with client_of(control_plane) as opened:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        with contextlib.suppress(Conflict):
            await opened.create("/api/v1/namespaces", json.dumps(body).encode())
        yield opened
    await CLOCK.sleep(0.25)  # TLS connections end in their own time


def a_pool(**changes: Any) -> PoolSpec:
    name = f"p{next(_NUMBERS)}"
    shape = Shape(
        instance_type="g2", devices=2, device_model="G2", allocatable=Resources(milli_cpu=8000, memory_bytes=2**34)
    )
    return PoolSpec(**({"name": name, "shape": shape, "images": (IMAGE,), "max_nodes": 6} | changes))


async def reach(shell: Shell, holds: Callable[[], Any], *, what: str, within_s: float = 30.0) -> None:
    """Tick until it holds."""

    async def look() -> Any:
        await shell.tick()
        return shell.states()

    await eventually(look, lambda _: holds(), within_s=within_s, every_s=0.1, what=what)


async def node_of(client: Client, name: str) -> dict[str, Any]:
    return dict(json.loads(await client.get(paths.node(name))))


async def a_pod(client: Client, pool: PoolSpec, number: int) -> tuple[str, str]:
    """Make a pod that no scheduler looks at; return its name and uid."""
    name = f"{pool.name}-model-{number}"
    pod = {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"key": labels.POOL, "operator": "Equal", "value": pool.name}],
            "containers": [{"name": "c", "image": "x"}],
        },
    }
    made = json.loads(await client.create(paths.pods(NAMESPACE), json.dumps(pod).encode()))
    return name, made["metadata"]["uid"]


async def pool_objects(client: Client, pool: PoolSpec) -> list[str]:
    """Return everything of a pool that is left in the cluster."""
    selector = {"labelSelector": f"{labels.POOL}={pool.name}"}
    found: list[str] = []
    for path in (paths.NODES, paths.config_maps(NAMESPACE), paths.pods(NAMESPACE)):
        found += [item["metadata"]["name"] for item in json.loads(await client.get(path, selector))["items"]]
    return found


async def test_a_kwok_node_lives_from_order_to_release(client: Client) -> None:
    pool = a_pool()
    shell = Shell(client, KwokProvider(client, CLOCK, FAST, namespace=NAMESPACE), pool, namespace=NAMESPACE, target=2)
    await reach(shell, lambda: len(shell.warm()) == 2, what="two warm nodes")
    assert len([news for news in shell.news if isinstance(news, Lead)]) == 2
    names = [node.name for node in shell.warm()]
    node = await node_of(client, names[0])
    taints = [taint["key"] for taint in node["spec"]["taints"]]
    assert labels.POOL in taints
    assert pool.readiness_taint.key not in taints
    assert node["metadata"]["annotations"][labels.WARM] == IMAGE.pinned
    condition = next(one for one in node["status"]["conditions"] if one["type"] == labels.WARM_CONDITION)
    assert (condition["status"], condition["reason"]) == ("True", "Proven")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2"

    # Three draws at once of the same two nodes: two are had, each once.
    tokens = itertools.count()
    claimer = Claimer(client, lambda: str(next(tokens)))
    pods = [await a_pod(client, pool, number) for number in range(3)]
    seen = [Candidate(name=one.name, uid=one.uid, warm=IMAGE.pinned) for one in shell.warm()]
    answers = await asyncio.gather(*(claimer.draw(f"s-{uid}", (uid,), seen) for _, uid in pods))
    held = [answer for answer in answers if isinstance(answer, Held)]
    assert sorted(answer.node for answer in held) == names
    assert sum(isinstance(answer, Miss) for answer in answers) == 1

    # One is made firm and its pod is bound; the other is given back.
    firm = await claimer.confirm(held[0])
    assert firm is not None
    await claimer.give_back(held[1])
    (model,) = (name for name, uid in pods if uid in firm.claim.pods)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": model, "namespace": NAMESPACE},
        "target": {"apiVersion": "v1", "kind": "Node", "name": firm.node},
    }
    await client.create(paths.pod(NAMESPACE, model, "binding"), json.dumps(binding).encode())
    shell.target = 1
    await reach(shell, lambda: "serving" in shell.states() and len(shell.warm()) == 1, what="one serves, one is warm")
    drawn = [news for news in shell.news if isinstance(news, Drawn)]
    assert [(news.pods, news.was_warm) for news in drawn] == [(firm.claim.pods, True)]
    serving = await node_of(client, firm.node)
    assert labels.WARM not in serving["metadata"]["annotations"]
    assert serving["metadata"]["annotations"][labels.DO_NOT_DISRUPT] == "true"

    # The pod ends, the pool is wound up, and nothing is left.
    for name, _ in pods:
        await client.delete(paths.pod(NAMESPACE, name), grace_s=0)
    shell.is_retiring = True
    await reach(shell, lambda: shell.nodes == {}, what="no node")
    left = await eventually(lambda: pool_objects(client, pool), lambda found: not found, what="nothing left")
    assert left == []


async def test_the_simulated_cloud_survives_its_process(client: Client) -> None:
    pool = a_pool(images=())
    first = KwokProvider(client, CLOCK, FAST, namespace=NAMESPACE)
    await first.provision(pool, Offer(), 2, "k1")
    await first.provision(pool, Offer(), 2, "k1")
    assert len(await first.list((pool,))) == 2, "the same key is the same order"
    await first.turn()
    second = KwokProvider(client, CLOCK, FAST, namespace=NAMESPACE)
    shell = Shell(client, second, pool, namespace=NAMESPACE, target=2)
    await reach(shell, lambda: len(shell.warm()) == 2, what="two warm nodes")
    assert len(shell.nodes) == 2

    # A node that somebody deletes is gone with its machine; one that was half removed goes.
    name = shell.warm()[0].name
    await client.delete(paths.node(name))
    shell.target = 0
    await reach(shell, lambda: shell.nodes == {}, what="no node")
    assert await pool_objects(client, pool) == []


async def test_a_shortage_trips_the_breaker_and_spills_over(client: Client) -> None:
    spot, demand = Offer(zone="a", capacity_type="spot"), Offer(zone="a", capacity_type="on-demand")
    pool = a_pool(images=(), shape=Shape(devices=1, offers=(spot, demand)))
    cloud = Cloud(time_scale=400.0, short_offers=frozenset({spot}))
    provider = KwokProvider(client, CLOCK, cloud, namespace=NAMESPACE)
    shell = Shell(client, provider, pool, namespace=NAMESPACE, target=3)
    await reach(shell, lambda: len(shell.warm()) == 3, what="three nodes of the second offer")
    assert {node.offer for node in shell.warm()} == {demand}
    failed = [news for news in shell.news if isinstance(news, Outcome)]
    assert {news.why for news in failed} == {Why.INSUFFICIENT_CAPACITY}
    breaker = shell.breakers.of(pool.shape, spot)
    assert breaker is not None
    assert breaker.failures == 1, "three orders under way together are one refusal"
    shell.is_retiring = True
    await reach(shell, lambda: shell.nodes == {}, what="no node")


async def test_closing_and_claiming_exclude_each_other(client: Client) -> None:
    pool = a_pool(images=())
    shell = Shell(client, KwokProvider(client, CLOCK, FAST, namespace=NAMESPACE), pool, namespace=NAMESPACE, target=2)
    await reach(shell, lambda: len(shell.warm()) == 2, what="two warm nodes")
    first, second = shell.warm()
    tokens = itertools.count()
    claimer = Claimer(client, lambda: str(next(tokens)))
    seen = [Candidate(name=node.name, uid=node.uid, warm=pool.name) for node in (first, second)]

    def closing(name: str, uid: str) -> bytes:
        mark = Mark(
            node=name, uid=uid, why=Why.SURPLUS, unschedulable=True,
            annotations=((labels.CLOSING, "Surplus"), (labels.WARM, None)),
        )  # fmt: skip
        return mark_patch(mark)

    held = await claimer.draw("s", ("u1",), seen[:1])
    assert isinstance(held, Held)
    with pytest.raises(Invalid):
        await client.json_patch(paths.node(first.name), closing(first.name, first.uid))
    await client.json_patch(paths.node(second.name), closing(second.name, second.uid))
    assert isinstance(await claimer.draw("s2", ("u2",), seen[1:]), Miss)
    # A node of the same name that is another is not meant.
    with pytest.raises(ApiError):
        await client.json_patch(paths.node(first.name), closing(first.name, "another"))
    await claimer.give_back(held)
    shell.is_retiring = True
    await reach(shell, lambda: shell.nodes == {}, what="no node")


async def test_adopted_nodes_are_handed_back_without_a_mark(client: Client) -> None:
    pool = a_pool(images=(), shape=Shape(), provider_settings={"selector": "theirs=yes"})
    name = f"{pool.name}-theirs"
    node = {
        "metadata": {"name": name, "labels": {"theirs": "yes"}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
    }
    await client.create(paths.NODES, json.dumps(node).encode())
    shell = Shell(client, AdoptProvider(client), pool, namespace=NAMESPACE, target=2)
    await reach(shell, lambda: len(shell.warm()) == 1, what="one warm node")
    assert {taint["key"] for taint in (await node_of(client, name))["spec"]["taints"]} == {"theirs", labels.POOL}
    shell.is_retiring = True

    async def look() -> dict[str, Any]:
        if not any(node.release_told_s is not None for node in shell.nodes.values()):
            await shell.tick()
        return await node_of(client, name)

    def is_bare(found: dict[str, Any]) -> bool:
        ours = [one for one in found["metadata"]["annotations"] if one.startswith(labels.DOMAIN)]
        taints = [one["key"] for one in found["spec"].get("taints", [])]
        return not ours and taints == ["theirs"] and not found["spec"].get("unschedulable")

    await eventually(look, is_bare, what="handed back")
    await client.delete(paths.node(name))


@pytest.fixture(scope="module")
def definitions(control_plane: Cluster) -> None:
    """The real definitions of Karpenter, CapacityBuffer and Cluster API, from their Go modules."""
    ours = {
        "sigs.k8s.io/karpenter": (
            "pkg/apis/crds/karpenter.sh_nodeclaims.yaml",
            "pkg/apis/crds/autoscaling.x-k8s.io_capacitybuffers.yaml",
        ),
        "sigs.k8s.io/cluster-api": (
            "core/config/crd/bases/cluster.x-k8s.io_machinedeployments.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machines.yaml",
        ),
    }
    for module, files in ours.items():
        folder = module_folder(module)
        if folder is None:
            pytest.skip(f"the Go module {module} is neither here nor to be had")
        for file in files:
            kubectl(control_plane, "apply", "--server-side", "-f", "-", text=definition(folder / file))
    kubectl(control_plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


@pytest.mark.usefixtures("definitions")
async def test_karpenters_node_claims_with_a_scripted_karpenter(client: Client) -> None:
    pool = a_pool(
        images=(),
        provider_settings={
            "nodeClassGroup": "karpenter.kwok.sh",
            "nodeClassKind": "KWOKNodeClass",
            "nodeClassName": "c",
        },
    )
    provider = KarpenterProvider(client)
    shell = Shell(client, provider, pool, namespace=NAMESPACE, target=2)
    await shell.tick()
    claims = await provider.list((pool,))
    assert len(claims) == 2
    again = await provider.provision(pool, Offer(), 2, "k1")
    assert len(again.names) == 2
    assert len(await provider.list((pool,))) == 2, "the same key is the same order"

    # One has no capacity: it just goes. The other is launched and registers.
    refused, served = sorted(machine.name for machine in claims)
    await client.delete(paths.custom(karpenter.API_VERSION, karpenter.PLURAL, name=refused))
    await _launch(client, served, pool)
    shell.target = 1
    await reach(shell, lambda: [node.name for node in shell.warm()] == [served], what="one warm node")
    failed = [news for news in shell.news if isinstance(news, Outcome)]
    assert [news.why for news in failed] == [Why.VANISHED]
    assert (await provider.state(pool, served)) is not None
    shell.is_retiring = True

    async def gone() -> bool:
        await shell.tick()
        if not await provider.list((pool,)):
            with contextlib.suppress(NotFound):
                await client.delete(paths.node(served))
        return shell.nodes == {}

    await eventually(gone, within_s=20, what="no node")
    assert await provider.state(pool, served) is None


async def _launch(client: Client, name: str, pool: PoolSpec) -> None:
    """Be Karpenter: copy what is copied at registration, and say so."""
    claim = json.loads(await client.get(paths.custom(karpenter.API_VERSION, karpenter.PLURAL, name=name)))
    spec = claim["spec"]
    node = {
        "metadata": {
            "name": name,
            "labels": claim["metadata"]["labels"],
            "annotations": {**claim["metadata"]["annotations"], "kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [*spec["taints"], *spec["startupTaints"]]},
        "status": {"allocatable": spec["resources"]["requests"], "capacity": spec["resources"]["requests"]},
    }
    await client.create(paths.NODES, json.dumps(node).encode())
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now}
        for kind in ("Launched", "Registered")
    ]
    status = {"status": {"nodeName": name, "providerID": f"kwok://{name}", "conditions": conditions}}
    path = paths.custom(karpenter.API_VERSION, karpenter.PLURAL, name=name, subresource="status")
    await client.merge_patch(path, json.dumps(status).encode())


@pytest.mark.usefixtures("definitions")
async def test_a_capacity_buffer_is_told_a_number(client: Client) -> None:
    pool = a_pool(images=(), provider_settings={"namespace": NAMESPACE})
    provider = CapacityBufferProvider(client)
    shell = Shell(client, provider, pool, namespace=NAMESPACE, target=2)
    await shell.tick()
    namespace, name = buffer_names(pool)
    path = paths.custom("autoscaling.x-k8s.io/v1beta1", "capacitybuffers", namespace=namespace, name=name)
    buffer = json.loads(await client.get(path))
    assert buffer["spec"]["replicas"] == 2
    assert buffer["spec"]["podTemplateRef"] == {"name": name}
    shell.target = 3
    plan = await shell.tick()
    assert json.loads(await client.get(path))["spec"]["replicas"] == 3
    assert (plan.orders, plan.short) == ((), 3), "only nodes are believed"

    # The autoscaler brings a node; it is proven like any other, and handed back at the end.
    template = json.loads(await client.get(paths.custom("v1", "podtemplates", namespace=namespace, name=name)))
    amounts = template["template"]["spec"]["containers"][0]["resources"]["requests"]
    node = {
        "metadata": {
            "name": f"{pool.name}-b",
            "labels": {labels.POOL: pool.name},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }
    await client.create(paths.NODES, json.dumps(node).encode())
    await reach(shell, lambda: len(shell.warm()) == 1, what="one warm node")
    await client.delete(paths.node(f"{pool.name}-b"))


@pytest.mark.usefixtures("definitions")
async def test_a_machine_deployment_counts_up_and_down_exactly(client: Client) -> None:
    pool = a_pool(images=(), shape=Shape(), provider_settings={"namespace": NAMESPACE, "name": "md"})
    path = paths.custom(machinedeployment.API_VERSION, "machinedeployments", namespace=NAMESPACE)
    template = {
        "spec": {
            "clusterName": "c",
            "bootstrap": {"dataSecretName": "s"},
            "infrastructureRef": {"apiGroup": "x.example", "kind": "X", "name": "x"},
        }
    }
    deployment = {
        "apiVersion": machinedeployment.API_VERSION,
        "kind": "MachineDeployment",
        "metadata": {"name": "md", "namespace": NAMESPACE},
        "spec": {"clusterName": "c", "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    await client.create(path, json.dumps(deployment).encode())
    provider = MachineDeploymentProvider(client)
    shell = Shell(client, provider, pool, namespace=NAMESPACE, target=3)
    api = _ClusterApi(client, pool)
    await shell.tick()
    assert await api.replicas() == 3
    assert (await provider.provision(pool, Offer(), 3, "k1")).refusal is None
    assert await api.replicas() == 3, "the same key is the same order"
    assert [machine.is_placeholder for machine in await provider.list((pool,))] == [True] * 3

    async def run() -> None:
        await api.turn()
        await shell.tick()

    await eventually(lambda: _after(run, lambda: len(shell.warm()) == 3), within_s=20, what="three warm nodes")
    assert [news for news in shell.news if isinstance(news, Outcome)] == [], "placeholders that go are no failures"

    # The node that is named goes, once, however often it is asked for.
    victim = (await provider.list((pool,)))[1]
    await provider.release(pool, victim)
    await provider.release(pool, victim)
    assert await api.replicas() == 2
    shell.target = 2
    await eventually(lambda: _after(run, lambda: len(shell.nodes) == 2), within_s=20, what="two nodes")
    assert victim.name not in shell.nodes
    assert await api.replicas() == 2
    shell.is_retiring = True
    await eventually(lambda: _after(run, lambda: shell.nodes == {}), within_s=20, what="no node")
    assert await api.replicas() == 0


async def _after(run: Callable[[], Awaitable[None]], holds: Callable[[], bool]) -> bool:
    await run()
    return holds()


class _ClusterApi:
    """Cluster API as far as a pool notices: makes Machines and their nodes, deletes the marked ones first."""

    def __init__(self, client: Client, pool: PoolSpec) -> None:
        self._client = client
        self._pool = pool
        self._made = 0
        self._machines = paths.custom(machinedeployment.API_VERSION, "machines", namespace=NAMESPACE)

    async def replicas(self) -> int:
        path = paths.custom(machinedeployment.API_VERSION, "machinedeployments", namespace=NAMESPACE, name="md")
        return int(json.loads(await self._client.get(path))["spec"]["replicas"])

    async def turn(self) -> None:
        machines = json.loads(await self._client.get(self._machines))["items"]
        wanted = await self.replicas()
        for _ in range(wanted - len(machines)):
            await self._make()
        marked = machinedeployment.DELETE_MACHINE
        machines.sort(key=lambda one: marked not in one["metadata"].get("annotations", {}))
        for machine in machines[: max(0, len(machines) - wanted)]:
            name = machine["metadata"]["name"]
            await self._client.delete(f"{self._machines}/{name}")
            await self._client.delete(paths.node(name))

    async def _make(self) -> None:
        self._made += 1
        name = f"{self._pool.name}-m{self._made}"
        node = {
            "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"taints": [{"key": self._pool.pool_taint.key, "value": self._pool.name, "effect": "NoSchedule"}]},
        }
        await self._client.create(paths.NODES, json.dumps(node).encode())
        machine = {
            "apiVersion": machinedeployment.API_VERSION,
            "kind": "Machine",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "labels": {machinedeployment.DEPLOYMENT_LABEL: "md", "cluster.x-k8s.io/cluster-name": "c"},
            },
            "spec": {
                "clusterName": "c",
                "bootstrap": {"dataSecretName": "s"},
                "infrastructureRef": {"apiGroup": "x.example", "kind": "X", "name": "x"},
            },
        }
        await self._client.create(self._machines, json.dumps(machine).encode())
        status = {"status": {"phase": "Running", "nodeRef": {"name": name}}}
        await self._client.merge_patch(f"{self._machines}/{name}/status", json.dumps(status).encode())
