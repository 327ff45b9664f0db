"""plan --moves: what it proposes on a real cluster, and that it writes nothing."""

from __future__ import annotations

import pytest

from berthmaster.local.cluster import Cluster
from fleet import labels
from tests.contract.test_planner_commands import ask, ask_json
from tests.support.eventually import eventually
from tests.support.quay import Quay, node_of

pytestmark = pytest.mark.contract


async def test_moves_are_proposed_for_a_pod_that_fits_nowhere(quay: Quay, harbour: Cluster) -> None:
    quay.pool = "shown"
    for i in range(3):
        await quay.add_pod(f"one-{i}", {labels.GPU: "1"})
    pods = await quay.all_bound(3)
    nodes = [node_of(pod) for pod in pods]
    full = max(set(nodes), key=nodes.count)
    gone = next(pod["metadata"]["name"] for pod in pods if node_of(pod) == full)
    await quay.delete_pod(gone)
    await eventually(quay.pods, lambda found: len(found) == 2 and all(map(_is_ready, found)), within_s=30.0)
    harbour.stop("planner")
    try:
        await quay.add_pod("wide", {labels.GPU: "2"})
        before = {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in await quay.pods()}
        found = ask_json(harbour, "plan", "--dry-run", "--moves", "--empty", full)
        mine = next(one for one in found["moves"] if one["goal"] == f"room for {quay.namespace}/wide")
        (move,) = mine["moves"]
        (seat,) = mine["placements"]
        assert (mine["verdict"], move["reason"], seat["pod"]) == ("Reached", "MakesRoom", f"{quay.namespace}/wide")
        assert seat["node"] == move["from"]["node"] != move["to"]["node"]
        assert sorted(seat["devices"]) == ["0", "1"]
        assert mine["solve_status"] == "optimal"
        assert mine["bound_milli_gpu"] <= mine["objective_milli_gpu"]
        emptied = found["moves"][-1]
        assert (emptied["freed_nodes"], [one["reason"] for one in emptied["moves"]]) == ([full], ["EmptiesNode"])
        text = ask(harbour, "plan", "--dry-run", "--moves")
        assert f"then {quay.namespace}/wide fits on {seat['node']}[0,1]" in text
        after = {pod["metadata"]["name"]: pod["metadata"]["resourceVersion"] for pod in await quay.pods()}
        assert after == before
        assert "give --moves too" in ask(harbour, "plan", "--dry-run", "--empty", full, expected=2)
    finally:
        harbour.start("planner")


def _is_ready(pod: dict) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
