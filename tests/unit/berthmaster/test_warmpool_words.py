"""`explain pool`, `explain start` and the pools of `top`: what they say of an object, whole, new or odd."""

from __future__ import annotations

import json

import msgspec
import pytest

from berthmaster.autoscaler_object import seconds_of
from berthmaster.options import output
from berthmaster.starts import told_of, words
from berthmaster.warmpool_object import nodes_of, pool_of, pools_of
from berthmaster.warmpool_table import pool_rows, pool_table
from berthmaster.warmpool_words import explained_pool, objective
from fleet import labels
from fleet.claim import Claim, format_claim
from fleet.draw import MissReason, format_draw, hit, miss
from fleet.errors import BerthmasterError, DecodeError
from warmpool.starts.reading import StartPod

NOW_S = seconds_of("2026-11-30T09:30:00Z")
SPEC = {
    "shape": {"instanceType": "p5.48xlarge", "devices": {"count": 8, "model": "H100"}},
    "images": [{"reference": "reg/vllm:1"}],
    "size": {"min": 0, "max": 12},
    "objective": {"hitRate": 0.99},
    "provider": {"kind": "karpenter"},
    "mode": "act",
}
STATUS = {
    "wanted": 4,
    "warm": 2,
    "coming": 2,
    "claimed": 1,
    "serving": 3,
    "leaving": 0,
    "lastDecision": {
        "at": "2026-11-30T09:29:30Z",
        "reason": "HitRate",
        "message": "4 keep 99 % of draws from missing",
        "numbers": {"draws_per_hour": 6.0, "lead_s": 511.0},
    },
    "plan": {"reason": "Short", "message": "2 of 4 wanted are warm or coming, orders 2"},
    "forecast": {"summary": "p50 1, p99 4", "horizonSeconds": 511},
    "leadTime": {"summary": "p50 480 s, p90 600 s of 20", "count": 20},
    "hitRate": {"realised": 0.985, "goal": 0.99, "draws": 200, "misses": 3, "sinceSeconds": 604800},
    "idle": {"nodeHours": 500, "dayNodeHours": 60.5, "dayCost": 242},
    "marginal": {"message": "one node more would have saved 2 misses and idled 168 node-hours more"},
    "starts": {"summary": "hit p50 42 s of 12"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "Acting", "message": "in order"}],
}


def a_pool(spec=SPEC, status=STATUS, name="g1"):
    return pool_of(json.dumps({"metadata": {"name": name}, "spec": spec, "status": status}).encode())


def a_node(name, notes=None, told=("Proven", "1 images"), **spec):
    reason, message = told or ("", "")
    conditions = [{"type": labels.WARM_CONDITION, "status": "True", "reason": reason, "message": message}]
    return {
        "metadata": {"name": name, "annotations": notes},
        "spec": spec,
        "status": {"conditions": conditions if told else []},
    }


def lines_of(parts):
    return "\n".join(line for part in parts for line in (f"## {part.title}", *part.lines))


def test_a_whole_pool_is_told_with_its_numbers():
    claim = format_claim(Claim(set_id="s", pods=("a", "b"), is_firm=True, token="1"))
    nodes = nodes_of(
        json.dumps(
            {
                "items": [
                    a_node("w2", {labels.WARM: "x", labels.CLAIM: claim}, ("ClaimStands", "")),
                    a_node("w1", {labels.WARM: "x"}),
                    a_node("w3", None, ("ImagesMissing", "1 of 1: reg/vllm:1")),
                    a_node("w4", None, None),
                ]
            }
        ).encode()
    )
    text = lines_of(explained_pool(a_pool(), nodes, NOW_S))
    for said in (
        "nodes of p5.48xlarge, 8 x H100, made by karpenter; between 0 and 12; mode act",
        "goal: 99 % of draws find a warm node",
        "4 wanted warm and unclaimed; 2 are, 2 are coming, 1 claimed, 3 serving",
        "decision 30 s ago: HitRate: 4 keep 99 % of draws from missing",
        "draws per hour 6, lead 511 s",
        "plan: Short",
        "200 draws in 7 d: 98.5 % found a warm node, the goal is 99 %; 3 missed",
        "60.5 node-hours in the last day, which cost 242",
        "starts: hit p50 42 s of 12",
        "one node more would have saved 2 misses",
        "w1: Proven: 1 images; open to draws",
        "w2: ClaimStands; firm claim for 2 pods",
        "w3: ImagesMissing: 1 of 1: reg/vllm:1",
        "w4: nothing is told of it yet",
        "Ready True: Acting: in order",
    ):
        assert said in text, said


def test_a_new_pool_is_told_without_numbers():
    text = lines_of(explained_pool(a_pool(status={}), (), NOW_S))
    assert "no decision was told yet: is the warm pool's controller running?" in text
    assert "- wanted" in text


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "99 % of draws find a warm node"),
        ({"objective": {"hitRate": 0.95}}, "95 % of draws find a warm node"),
        ({"objective": {"static": 3}}, "always 3"),
        ({"objective": {"missCost": 10, "idleCost": 4}}, "a miss costs 10, an idle node-hour 4"),
        ({"objective": {"hitRate": "odd"}}, "99 % of draws find a warm node"),
        ({"objective": "odd"}, "99 % of draws find a warm node"),
    ],
)
def test_goals_in_words(spec, said):
    assert objective(a_pool(spec=spec)) == said


def test_odd_specs_are_told_as_far_as_they_go():
    lines_of(explained_pool(a_pool(spec={"shape": 1, "images": "x", "size": None}), (), NOW_S))


def test_a_status_that_is_none_is_refused_and_a_list_goes_on_without_it():
    with pytest.raises(DecodeError, match="WarmPool"):
        pool_of(b'{"metadata": {"name": "x"}, "status": {"wanted": "many"}}')
    known, problems = pools_of(
        b'{"items": [{"metadata": {"name": "b"}}, {"metadata": 1}, {"metadata": {"name": "a"}}]}'
    )
    assert [pool.name for pool in known] == ["a", "b"]
    assert len(problems) == 1
    with pytest.raises(DecodeError, match="list of WarmPools"):
        pools_of(b"[]")
    with pytest.raises(DecodeError, match="list of nodes"):
        nodes_of(b'{"items": [{"metadata": 1}]}')


def test_many_nodes_are_cut_and_counted():
    nodes = nodes_of(json.dumps({"items": [a_node(f"w{i:03d}") for i in range(100)]}).encode())
    assert "and 60 more" in lines_of(explained_pool(a_pool(), nodes, NOW_S))


def test_pools_that_need_a_look_come_first():
    ill = {**STATUS, "conditions": [{"type": "Ready", "status": "False", "reason": "x"}]}
    full = {**STATUS, "warm": 4}
    pools = [a_pool(name="a", status=full), a_pool(name="b"), a_pool(name="c", status=ill), a_pool(name="d", status={})]
    rows = pool_rows(pools, NOW_S)
    assert [row.pool for row in rows] == ["c", "d", "b", "a"]
    with output().capture() as captured:
        output().print(pool_table(rows, 2))
    del captured
    assert pool_table(rows, 2).caption == "and 2 more"
    assert (rows[2].hit_ratio, rows[2].goal_ratio, rows[2].age_s) == (0.985, 0.99, 30.0)


# -- starts ----------------------------------------------------------------------------------------------------


def a_pod(*, draw=None, ready="2026-11-30T09:10:00Z", created="2026-11-30T09:00:00Z"):
    times = {"PodScheduled": "09:05:00", "PodReadyToStartContainers": "09:05:10"}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": f"2026-11-30T{at}Z"} for kind, at in times.items()
    ]
    if ready:
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": ready})
    return msgspec.convert(
        {
            "metadata": {
                "name": "p",
                "namespace": "ns",
                "creationTimestamp": created,
                "annotations": {labels.DRAW: format_draw(draw)} if draw else None,
            },
            "spec": {"nodeName": "w1"},
            "status": {
                "conditions": conditions,
                "containerStatuses": [
                    {"name": "main", "state": {"running": {"startedAt": "2026-11-30T09:07:00Z"}}},
                ],
            },
        },
        StartPod,
    )


def test_a_start_is_told_part_by_part():
    told = told_of(a_pod(draw=miss("g1", MissReason.ON_THEIR_WAY)), ['Successfully pulled image "x" in 1m40s'], NOW_S)
    text = "\n".join(words(told))
    for said in (
        "ns/p on w1: Ready, 600 s since it was created",
        "miss: pool g1 had no warm node for it (OnTheirWay)",
        "waiting for a node       300 s   50%",
        "initialising            20.0 s    3%",
        "pulling images           100 s   17%",
        "loading weights      not told apart from the engine's start",
        "starting the engine      180 s   30%",
    ):
        assert said in text, text
    document = told.document()
    assert document["partsSeconds"] == {"wait": 300, "init": 20, "pull": 100, "weights": None, "engine": 180}
    assert document["draw"] == {"pool": "g1", "outcome": "miss", "why": "OnTheirWay"}


def test_a_start_that_goes_on_and_a_hit():
    told = told_of(a_pod(draw=hit("g1", "w1"), ready=None), [], NOW_S)
    text = "\n".join(words(told))
    assert "starting the engine now" in text
    assert "hit: pool g1 had a warm node, w1" in text
    assert "no events tell of pulls" in text
    assert told.document()["doing"] == "engine"


def test_a_pod_without_a_birth_is_refused():
    with pytest.raises(BerthmasterError, match="does not say when it was created"):
        told_of(a_pod(created=""), [], NOW_S)
