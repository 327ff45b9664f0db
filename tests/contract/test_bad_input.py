"""What people and programs may write into a real API server by mistake or on purpose: everybody else is placed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from berthmaster.demo.replay import items
from berthmaster.local.cluster import Cluster
from fleet import labels
from fleet.errors import ApiError
from fleet.kube import paths
from tests.contract.test_planner_waiting import metric
from tests.support.eventually import eventually
from tests.support.quay import Quay, condition, gates_of, node_of

pytestmark = pytest.mark.contract

LONG = "x" * 200_000
NOTES: list[dict[str, str]] = [
    {labels.GPU_MODELS: text}
    for text in (
        "",
        ",",
        "🚢,A100",
        "A100=-1",
        "A100=NaN",
        "A100=1@NaN",
        "A100=1@1e999",
        "=1",
        "A100=99999999999",
        LONG,
    )
]
NOTES += [{labels.MIG_PROFILE: text} for text in ("", "9g.9gb", "٣g.20gb", "1g.10gb\n", "99999g.9999999gb", LONG)]
NOTES += [{labels.SAME_ISLAND: text} for text in ("maybe", "", LONG)]
NOTES += [{labels.KAI_GPU_FRACTION: text} for text in ("NaN", "-0.5", "1e400", "Infinity", "0.0000000000001", "٠.٥")]
NOTES += [{labels.KAI_GPU_MEMORY: text} for text in ("9" * 5000, "-1", "0")]
NOTES += [{labels.POD_DELETION_COST: "NaN"}, {f"{labels.DOMAIN}/unheard-of": LONG}, {labels.DRAW: LONG}]
FORGED = (labels.SEAT, labels.DEVICES, labels.CANDIDATES, labels.PINNED, labels.MOVING_TO, labels.MOVING_BY)
AMOUNTS = (
    {labels.GPU: "9223372036854775807"},
    {labels.GPU_MILLI: "1e18"},
    {labels.GPU_MILLI: "1", labels.GPU: "1", labels.NVIDIA_GPU: "1"},
    {labels.GPU_MEMORY_MIB: "9223372036854775807"},
    {"cpu": "9223372036854775807", "memory": "9E"},
    {"memory": "1m"},
)
GANGS = (("", "2"), ("g", ""), ("g", "-1"), ("g", "999999999"), ("h" * 63, "0"), ("i", "2.5"))
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def rules() -> dict[str, Any]:
    """Return more rules about other pods than anybody reads."""
    app = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"a{i}" for i in range(200)]}]}
    terms = [{"topologyKey": f"example.com/{i}", "labelSelector": app, "namespaceSelector": app} for i in range(200)]
    spreads = [
        {
            "topologyKey": f"example.com/s{i}",
            "maxSkew": 2**31 - 1,
            "minDomains": 2**31 - 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": app,
        }
        for i in range(100)
    ]
    return {"affinity": {"podAntiAffinity": {_REQUIRED: terms}}, "topologySpreadConstraints": spreads}


async def tried(quay: Quay, name: str, requests: dict[str, str] | None = None, **words: Any) -> bool:
    """Create a pod if the API server takes it; return whether it did."""
    try:
        await quay.add_pod(name, requests, **words)
    except ApiError as error:
        if not 400 <= error.status < 500:
            raise
        return False
    return True


async def test_bad_pods_are_told_so_and_hold_up_nobody(harbour: Cluster, quay: Quay) -> None:
    faults = metric(harbour, "berthmaster_faults_total")
    numbers = itertools.count()
    made = [await tried(quay, f"n{next(numbers)}", {labels.GPU: "1"}, annotations=notes) for notes in NOTES]
    made += [await tried(quay, f"n{next(numbers)}", dict(amounts)) for amounts in AMOUNTS]
    for gang, size in GANGS:
        tags = {"labels": {labels.GANG: gang, labels.GANG_SIZE: size}}
        made.append(await tried(quay, f"n{next(numbers)}", {labels.GPU: "1"}, metadata=tags))
    made.append(await tried(quay, f"n{next(numbers)}", {"cpu": "1"}, **rules()))
    made.append(await tried(quay, "l" * 253, {"cpu": "1"}))
    assert sum(made) > 30
    await quay.add_pod("good", {labels.GPU_MILLI: "100"})
    await quay.bound("good", within_s=60.0)

    async def silent() -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in await quay.pods()
            if gates_of(pod) and not node_of(pod) and condition(pod).get("status") != "True"
        ]

    await eventually(silent, lambda names: not names, within_s=60.0, what="each that waits says why")
    assert metric(harbour, "berthmaster_faults_total") == faults


async def test_nobody_can_write_what_is_the_planners_to_write(quay: Quay) -> None:
    for number, name in enumerate(FORGED):
        for text in ("deploy-0=0", "0", LONG, "🚢"):
            assert not await tried(quay, f"f{number}", {"cpu": "1"}, annotations={name: text}), name


async def test_what_is_written_on_nodes_and_namespaces_holds_up_nobody_elsewhere(harbour: Cluster, quay: Quay) -> None:
    faults = metric(harbour, "berthmaster_faults_total")
    nodes = [name for name in await names_of(quay) if name.startswith("shown")]
    texts = [LONG, "0;0", "all;all", "🚢", "0=", "0=1g.10gb@99", "," * 9000, "NaN", "-1", "0,0", "٠"]
    for text in texts:
        for name in nodes:
            marks = (labels.MIG_DEVICES, labels.ISLANDS, labels.UNHEALTHY_DEVICES, labels.SPARE, labels.WARM)
            for mark in marks:
                await quay.patch_node(name, {"metadata": {"annotations": {mark: text}}})
                await quay.patch_node(name, {"metadata": {"annotations": {mark: text if len(text) < 99 else None}}})
        await quay.patch(
            f"{paths.NAMESPACES}/{quay.namespace}", {"metadata": {"annotations": {labels.SHARE: text[:5000]}}}
        )
    await quay.add_pod("good", {labels.GPU_MILLI: "100"})
    await quay.bound("good", within_s=60.0)
    for name in nodes:
        await quay.patch_node(name, {"metadata": {"annotations": dict.fromkeys(marks)}})
    quay.pool = "shown"
    await quay.add_pod("later", {labels.GPU_MILLI: "100"})
    await quay.bound("later", within_s=60.0)
    assert metric(harbour, "berthmaster_faults_total") == faults


async def names_of(quay: Quay) -> list[str]:
    """Return the names of all nodes."""

    return [node["metadata"]["name"] for node in await items(quay.client, paths.NODES)]
