"""Rules between pods on the real control plane: kube-scheduler never refuses what was planned, and places nothing more.

Random worlds: pods with rules run on labelled nodes, a batch of pods with rules comes. Whoever is pinned must get bound
as it is. Whoever waits for the sake of a rule is then handed to kube-scheduler, which by its own filters must find no
node for it either.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from binpack.company import COMPANY_REASONS
from fleet import labels
from fleet.company import Guest, Spread
from fleet.errors import ApiError
from fleet.kube import paths
from fleet.kube.client import Client
from tests.support.cluster import add_nodes, client_of
from tests.support.company import RACK, ZONE, a_guest
from tests.support.company_json import guest_json
from tests.support.eventually import eventually
from tests.support.quay import POOL, Quay, condition, gates_of, node_of, note, pins

pytestmark = pytest.mark.contract

_REASONS = {reason.value for reason in COMPANY_REASONS}


class Corner:
    """Two namespaces and a few nodes of one world."""

    def __init__(self, client: Client, seed: int) -> None:
        self.rng = Random(seed)
        self.pool = f"company-{seed}"
        self.quays = {name: Quay(client, f"{name}-{seed}", self.pool) for name in ("default", "team")}

    async def open(self, cluster: Cluster) -> list[str]:
        for (name, quay), kind in zip(self.quays.items(), ("open", "closed"), strict=True):
            await quay.open()
            await quay.patch(f"/api/v1/namespaces/{quay.namespace}", {"metadata": {"labels": {"kind": kind}}})
            del name
        nodes = []
        for node in fake_nodes.uniform(
            self.rng.randint(3, 5), is_sharing=False, prefix=self.pool, gpus=0, milli_cpu=4000
        ):
            found = {POOL: self.pool}
            for key, values in ((ZONE, "abc"), (RACK, "xy")):
                if self.rng.random() < 0.85:
                    found[key] = f"{self.pool}-{self.rng.choice(values)}"
            nodes.append(replace(node, labels=found))
        await add_nodes(cluster, nodes)
        return [node.name for node in nodes]

    async def add(self, name: str, guest: Guest, **spec: Any) -> None:
        quay = self.quays[guest.namespace]
        own, fields, container = guest_json(_legal(guest), lambda known: self.quays[known].namespace)
        await quay.add_pod(name, {"cpu": "100m"}, metadata={"labels": own}, container=container, **fields, **spec)

    async def pods(self) -> dict[str, dict[str, Any]]:
        found = [await quay.pods() for quay in self.quays.values()]
        return {pod["metadata"]["name"]: pod for pods in found for pod in pods}

    def quay_of(self, pod: dict[str, Any]) -> Quay:
        return next(quay for quay in self.quays.values() if quay.namespace == pod["metadata"]["namespace"])


def _legal(guest: Guest) -> Guest:
    """Return the guest as the API takes it: each topology key once per kind, minDomains of hard ones alone."""
    kept: dict[tuple[str, bool], Spread] = {}
    for spread in guest.spreads:
        kept.setdefault((spread.key, spread.is_hard), spread)
    return replace(guest, spreads=tuple(kept.values()))


def has_settled(pods: dict[str, dict[str, Any]]) -> bool:
    """Everybody is bound, or waits for a rule's sake, or was handed over and refused."""
    return all(node_of(pod) or waits_for_good(pod) or is_refused(pod) for pod in pods.values())


def waits_for_good(pod: dict[str, Any]) -> bool:
    """Return True for a pod that a rule keeps waiting, and not until others are bound."""
    told = condition(pod)
    return told.get("reason") in _REASONS and "not bound yet" not in told.get("message", "")


def is_refused(pod: dict[str, Any]) -> bool:
    is_ours = bool(pins(pod)[0] if pins(pod) else False) or bool(note(pod, labels.CANDIDATES))
    return not is_ours and condition(pod, "PodScheduled").get("reason") == "Unschedulable"


def is_judged(pod: dict[str, Any]) -> bool:
    return bool(node_of(pod)) or condition(pod, "PodScheduled").get("reason") == "Unschedulable"


@pytest.fixture
async def client(harbour: Cluster) -> AsyncIterator[Client]:
    async with client_of(harbour) as found:
        yield found


@pytest.mark.parametrize("seed", range(12))
async def test_kube_scheduler_agrees_with_every_answer(harbour: Cluster, client: Client, seed: int) -> None:
    corner = Corner(client, seed)
    nodes = await corner.open(harbour)
    rng = corner.rng
    try:
        for number in range(rng.randint(2, 6)):
            await corner.add(f"there-{number}", a_guest(rng, 0.4), nodeName=rng.choice(nodes))
        batch = [a_guest(rng, 0.9) for _ in range(4)]
        batch = [rng.choice(batch) for _ in range(10)]
        await asyncio.gather(*(corner.add(f"new-{i:02d}", guest) for i, guest in enumerate(batch)))

        pods = await eventually(corner.pods, has_settled, within_s=90.0, what=f"world {seed} has settled")
        assert {name for name in pods if name.startswith("new-")} == {f"new-{i:02d}" for i in range(10)}
        planned = [pod for name, pod in pods.items() if name.startswith("new-") and node_of(pod)]
        for pod in planned:
            assert pins(pod) == [[node_of(pod)]] or note(pod, labels.CANDIDATES), pod
        for name in sorted(name for name, pod in pods.items() if not node_of(pod)):
            quay, waited = corner.quay_of(pods[name]), condition(pods[name]).get("message")
            if gates_of(await quay.pod(name)):
                with suppress(ApiError):  # the planner hands it over at this very moment
                    await quay.patch_pod(name, {"spec": {"schedulingGates": None}})
            tried = await eventually(lambda name=name, quay=quay: quay.pod(name), is_judged, what=f"{name} is judged")
            assert not node_of(tried), f"world {seed}: {name} had a place: {waited}"
            await quay.delete_pod(name)
    finally:
        for quay in corner.quays.values():
            await quay.close()
        for name in nodes:
            await client.delete(f"/api/v1/nodes/{name}")


async def test_a_service_that_is_spread_over_all_nodes_is_bound_without_one_refusal(
    harbour: Cluster, client: Client
) -> None:
    """Its spread looks at all nodes, pinned or not: the order in which kube-scheduler takes the pins would matter."""
    pool = "company-order"
    quay = Quay(client, pool, pool)
    await quay.open()
    uneven = zip(fake_nodes.uniform(5, is_sharing=False, prefix=pool, gpus=0, milli_cpu=4000), "aaabc", strict=True)
    key = f"tests.berthmaster.dev/{pool}"  # nodes of other tests must not count
    nodes = [replace(node, labels={POOL: pool, key: zone}) for node, zone in uneven]
    await add_nodes(harbour, nodes)
    spread = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeAffinityPolicy": "Ignore",
        "labelSelector": {"matchLabels": {"app": pool}},
    }
    try:
        await asyncio.gather(
            *(
                quay.add_pod(
                    f"web-{number}",
                    {"cpu": "100m"},
                    metadata={"labels": {"app": pool}},
                    topologySpreadConstraints=[spread],
                )
                for number in range(9)
            )
        )
        pods = await eventually(
            quay.pods, lambda found: len(found) == 9 and all(map(node_of, found)), within_s=90.0, what="all are bound"
        )
        zone_of = {node.name: node.labels[key] for node in nodes}
        counts = Counter(zone_of[node_of(pod)] for pod in pods)
        assert sorted(counts.values()) == [3, 3, 3]
        events = msgspec.json.decode(await client.get(paths.events(quay.namespace)))["items"]
        assert not [event.get("note") for event in events if event.get("reason") == "FailedScheduling"]
    finally:
        await quay.close()
        for node in nodes:
            await client.delete(f"/api/v1/nodes/{node.name}")
