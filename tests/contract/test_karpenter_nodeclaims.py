"""Warm nodes by the real Karpenter: NodeClaims of our writing, launched, registered and ended by it.

Runs where its program was built before (`make test-karpenter` builds it).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest

from berthmaster.local.cluster import Cluster
from berthmaster.local.progress import Lines
from fleet import labels
from fleet.errors import Conflict, NotFound
from fleet.kube import paths
from fleet.kube.claimer import Candidate, Claimer, Held
from fleet.kube.client import Client
from fleet.resources import Resources
from tests.support import karpenter
from tests.support.cluster import StartCluster, client_of, kubectl
from tests.support.eventually import eventually
from tests.support.warm_shell import CLOCK, Shell, definition, module_folder
from warmpool.nodes.action import Lead, Outcome
from warmpool.providers.karpenter import API_VERSION, PLURAL, KarpenterProvider
from warmpool.values import Image, Offer, PoolSpec, Shape, Why

_WANTED = "BERTHMASTER_TEST_KARPENTER"
pytestmark = [
    pytest.mark.contract,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        not karpenter.cached().exists() and not os.environ.get(_WANTED),
        reason="Karpenter is not built here: make test-karpenter does that once",
    ),
]

NAMESPACE = "warm"
OFFER = Offer(zone=karpenter.ZONE, capacity_type=karpenter.CAPACITY_TYPE)
IMAGE = Image(reference="registry.example/rt:1", digest=f"sha256:{'b' * 64}")
POOL = PoolSpec(
    name="kp",
    shape=Shape(
        instance_type=karpenter.INSTANCE_TYPE,
        devices=2,
        allocatable=Resources(milli_cpu=4000, memory_bytes=2**33),
        offers=(OFFER,),
    ),
    images=(IMAGE,),
    provider_settings={
        "nodeClassGroup": "karpenter.kwok.sh",
        "nodeClassKind": "KWOKNodeClass",
        "nodeClassName": "quick",
    },
)


@pytest.fixture(scope="module")
def cluster(start_cluster: StartCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane with Karpenter beside it."""
    karpenter.ensure(Lines(lambda text: click.echo(text, nl=False, file=sys.stderr), CLOCK))
    folder = module_folder("sigs.k8s.io/karpenter")
    if folder is None:
        pytest.skip("Karpenter's definitions are neither here nor to be had")
    started = start_cluster("karpenter")
    for place in ("pkg/apis/crds", "kwok/apis/crds"):
        for file in sorted((folder / place).glob("*.yaml")):
            kubectl(started, "apply", "--server-side", "-f", "-", text=definition(file))
    kubectl(started, "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    node_class = (
        "apiVersion: karpenter.kwok.sh/v1alpha1\nkind: KWOKNodeClass\nmetadata: {name: quick}\n"
        "spec: {nodeRegistrationDelay: 1s}\n"
    )
    kubectl(started, "apply", "-f", "-", text=node_class)
    kubectl(started, "create", "namespace", NAMESPACE)
    with karpenter.running(started, tmp_path_factory.mktemp("karpenter")):
        yield started
    started.down()


async def test_warm_nodes_by_the_real_karpenter(cluster: Cluster) -> None:
    async with client_of(cluster) as client:
        shell = Shell(client, KarpenterProvider(client), POOL, namespace=NAMESPACE, target=2)
        await _until(shell, lambda: len(shell.nodes) == 2, "two orders")
        await _until(shell, lambda: _count(shell, "devices") == 2, "registered, and nothing but images missing")
        for node in shell.nodes.values():
            found = json.loads(await client.get(paths.node(node.node_name)))
            taints = {taint["key"] for taint in found["spec"]["taints"]}
            assert {labels.POOL, POOL.readiness_taint.key} <= taints, "born with both taints"
            await _list_images(client, node.node_name)
        await _until(shell, lambda: len(shell.warm()) == 2, "two warm nodes")
        assert len([news for news in shell.news if isinstance(news, Lead)]) == 2

        # Our lifting of the taint is what Karpenter waits for.
        async def initialized() -> list[str]:
            await shell.tick()
            claims = json.loads(await client.get(paths.custom(API_VERSION, PLURAL)))["items"]
            return [_condition(claim, "Initialized") for claim in claims]

        assert await eventually(initialized, lambda seen: seen == ["True"] * 2, within_s=60, what="Initialized")

        # One is drawn: a refill is ordered, and Karpenter is told not to disrupt the claimed one.
        tokens = itertools.count()
        seen = [Candidate(name=one.node_name, uid=one.uid, warm=IMAGE.pinned) for one in shell.warm()]
        claimer = Claimer(client, lambda: str(next(tokens)))
        held = await claimer.draw("s", ("u1",), seen, seconds=600)
        assert isinstance(held, Held)
        firm = await claimer.confirm(held)
        assert firm is not None
        await _until(shell, lambda: len(shell.nodes) == 3, "a refill")
        found = json.loads(await client.get(paths.node(held.node)))
        assert found["metadata"]["annotations"][labels.DO_NOT_DISRUPT] == "true"
        await claimer.give_back(firm)

        # Wound up: every NodeClaim and every node goes, and stays gone.
        shell.is_retiring = True
        await _until(shell, lambda: shell.nodes == {}, "no node")
        assert json.loads(await client.get(paths.custom(API_VERSION, PLURAL)))["items"] == []

        # Its simulated cloud may still register a machine that was withdrawn just before: such a node goes, too.
        async def strays() -> list[str]:
            await shell.tick()
            listed = json.loads(await client.get(paths.NODES, {"labelSelector": f"{labels.POOL}={POOL.name}"}))
            return [node["metadata"]["name"] for node in listed["items"]]

        assert (
            await eventually(strays, lambda found: not found and shell.nodes == {}, within_s=60, what="no node") == []
        )
    await CLOCK.sleep(0.25)


async def test_a_refusal_is_a_node_claim_that_goes(cluster: Cluster) -> None:
    """A node class that is not there counts as no capacity: Karpenter deletes the NodeClaim at once."""
    pool = PoolSpec(
        name="kr",
        shape=POOL.shape,
        provider_settings={**POOL.provider_settings, "nodeClassName": "missing"},
    )
    async with client_of(cluster) as client:
        shell = Shell(client, KarpenterProvider(client), pool, namespace=NAMESPACE, target=2)
        await _until(shell, lambda: any(isinstance(news, Outcome) for news in shell.news), "a refusal", within_s=120)
        whys = {news.why for news in shell.news if isinstance(news, Outcome)}
        assert whys <= {Why.INSUFFICIENT_CAPACITY, Why.VANISHED}
        assert not shell.breakers.is_available(pool.shape)
        plan = await shell.tick()
        assert plan.orders == (), "no storm"
        shell.target = 0
        await _until(shell, lambda: shell.nodes == {}, "no order")
    await CLOCK.sleep(0.25)


async def _until(shell: Shell, holds: Callable[[], Any], what: str, within_s: float = 90.0) -> None:
    async def look() -> Any:
        with contextlib.suppress(Conflict, NotFound):
            await shell.tick()
        return [(node.name, node.state.value, node.why.value, node.detail) for node in shell.nodes.values()]

    await eventually(look, lambda _: holds(), within_s=within_s, every_s=0.3, what=what)


async def _list_images(client: Client, node: str) -> None:
    """Be the kubelet: list the image once it is pulled."""
    status = {"status": {"images": [{"names": [IMAGE.pinned], "sizeBytes": 1}]}}
    await client.merge_patch(f"{paths.node(node)}/status", json.dumps(status).encode())


def _count(shell: Shell, state: str) -> int:
    return shell.states().count(state)


def _condition(claim: dict[str, Any], kind: str) -> str:
    conditions = claim.get("status", {}).get("conditions", [])
    return next((str(one["status"]) for one in conditions if one["type"] == kind), "")
