"""MIG instances, islands and models with counts on a real control plane: bound with their devices, through restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from berthmaster.local import fake_nodes
from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.node import Node
from tests.support.cluster import add_nodes, client_of
from tests.support.eventually import eventually
from tests.support.quay import POOL, Quay, node_of, note

pytestmark = pytest.mark.contract

GPU = labels.GPU
H100 = "NVIDIA-H100-80GB-HBM3"
# pool: nodes, GPUs of each, model, memory, annotation
NODES = {
    "sliced": (1, 2, H100, 81_559, {labels.MIG_DEVICES: "all"}),
    "made": (1, 1, H100, 81_559, {labels.MIG_DEVICES: "0=3g.40gb@0:MIG-first,3g.40gb@4:MIG-second"}),
    "bridged": (1, 8, H100, 81_559, {labels.ISLANDS: "0,2;1,3;4,5;6,7"}),
    "few": (1, 1, "NVIDIA-B300", 275_040, {}),
    "many": (1, 4, H100, 81_559, {}),
}
_READY: set[str] = set()


@pytest.fixture
async def docks(harbour: Cluster, quay: Quay) -> Quay:
    """The quay, with the nodes of this file there and read by the planner as their annotations say."""
    if harbour.name not in _READY:
        for pool, (count, gpus, model, memory_mib, _) in NODES.items():
            nodes = fake_nodes.uniform(
                count, is_sharing=True, prefix=pool, gpus=gpus, model=model, gpu_memory_mib=memory_mib
            )
            wanted = "choice" if pool in ("few", "many") else pool
            await add_nodes_of(harbour, nodes, wanted)
        async with client_of(harbour) as client:
            for pool, (count, _, _, _, notes) in NODES.items():
                for number in range(count):
                    node = f"{pool}-{number:04d}"
                    await Quay(client, quay.namespace, pool).patch_node(node, {"metadata": {"annotations": notes}})
        _READY.add(harbour.name)
    return quay


async def add_nodes_of(harbour: Cluster, nodes: tuple[Node, ...], pool: str) -> None:
    await add_nodes(harbour, [replace(node, labels={POOL: pool}) for node in nodes])


async def sound(quay: Quay) -> None:
    assert (await quay.recount()).faults == ()


async def test_instances_are_bound_where_they_may_start_and_survive_a_restart(harbour: Cluster, docks: Quay) -> None:
    docks.pool = "sliced"
    for i in range(4):
        await docks.add_pod(f"half-{i}", {GPU: "1"}, annotations={labels.MIG_PROFILE: "3g.40gb"})
    pods = await docks.all_bound(4)
    starts = {f"{device}:3g.40gb@{start}" for device in "01" for start in (0, 4)}
    assert {note(pod, labels.DEVICES) for pod in pods} == starts
    await docks.add_pod("late", {GPU: "1"}, annotations={labels.MIG_PROFILE: "1g.10gb"})
    assert "0 memory slices are free" in await docks.says("late", "NoLegalStart")
    for component in ("planner", "extender"):
        harbour.kill(component)
        harbour.start(component)
    freed = next(pod for pod in pods if note(pod, labels.DEVICES) == "1:3g.40gb@4")
    await docks.delete_pod(freed["metadata"]["name"])
    late = await docks.bound("late", within_s=60.0)
    assert note(late, labels.DEVICES) == "1:1g.10gb@6"
    await docks.add_pod("whole", {GPU: "1"})
    await docks.says("whole", "NoSuchDevice")
    await sound(docks)


async def test_instances_made_beforehand_are_given_and_no_others(docks: Quay) -> None:
    docks.pool = "made"
    for i in range(2):
        await docks.add_pod(f"half-{i}", {GPU: "1"}, annotations={labels.MIG_PROFILE: "3g.40gb"})
    pods = await docks.all_bound(2)
    assert {note(pod, labels.DEVICES) for pod in pods} == {"MIG-first", "MIG-second"}
    await docks.add_pod("small", {GPU: "1"}, annotations={labels.MIG_PROFILE: "1g.10gb"})
    await docks.says("small", "NoSuchDevice")
    await sound(docks)


async def test_a_bare_pod_is_steered_to_its_instance(docks: Quay) -> None:
    docks.pool = "made"
    wish = {labels.MIG_PROFILE: "3g.40gb"}
    await docks.add_pod("bare", {GPU: "1"}, annotations=wish, is_owned=False)
    pod = await docks.bound("bare")
    assert note(pod, labels.CANDIDATES).startswith("made-0000=MIG-")
    await docks.add_pod("owned", {GPU: "1"}, annotations=wish)
    owned = await docks.bound("owned")
    candidate = note(pod, labels.CANDIDATES).partition("=")[2]
    assert {candidate, note(owned, labels.DEVICES)} == {"MIG-first", "MIG-second"}
    await sound(docks)


async def test_pairs_stay_pairs(docks: Quay) -> None:
    docks.pool = "bridged"
    for name, count in (("p1", 1), ("p2", 2), ("p3", 2), ("p4", 2), ("p5", 1)):
        await docks.add_pod(name, {GPU: str(count)}, annotations={labels.SAME_ISLAND: "required"})
        await docks.bound(name)
    given = {pod["metadata"]["name"]: set(note(pod, labels.DEVICES).split(",")) for pod in await docks.pods()}
    pairs = [{"0", "2"}, {"1", "3"}, {"4", "5"}, {"6", "7"}]
    assert all(given[name] in pairs for name in ("p2", "p3", "p4"))
    assert given["p1"] | given["p5"] in pairs
    await docks.delete_pod("p2")
    await docks.add_pod("four", {GPU: "4"}, annotations={labels.SAME_ISLAND: "required"})
    await docks.says("four", "NoSuchDevice")
    await sound(docks)


async def test_models_with_counts_of_their_own_get_as_many_as_the_model_needs(docks: Quay) -> None:
    docks.pool = "choice"
    wish = {labels.GPU_MODELS: "B300=1,H100=4"}
    for name in ("first", "second"):
        await docks.add_pod(name, {GPU: "4"}, annotations=wish)
        await docks.bound(name)
    first, second = await docks.pod("first"), await docks.pod("second")
    assert (node_of(first), note(first, labels.DEVICES)) == ("few-0000", "0")
    assert (node_of(second), note(second, labels.DEVICES)) == ("many-0000", "0,1,2,3")
    await docks.add_pod("third", {GPU: "4"}, annotations=wish)
    assert "needs 1 free B300 or 4 free H100" in await docks.says("third", "Insufficient")
    await docks.delete_pod("first")
    third = await docks.bound("third")
    assert note(third, labels.DEVICES) == "0"
    await eventually(docks.pods, lambda pods: len(pods) == 2, what="the first is gone")
    await sound(docks)
