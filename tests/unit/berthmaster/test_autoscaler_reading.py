"""Autoscalers as the commands read them: there, elsewhere, not installed, refused, in part unreadable."""

from __future__ import annotations

import json

import pytest

from berthmaster.autoscalers import asked
from berthmaster.commands.top import _document, _scaling, summarise
from fleet.clock import SystemClock
from fleet.errors import BerthmasterError
from fleet.kube import paths
from tests.support.fake_api import FakeApi

ALL = paths.autoscalers()
NOTHING = summarise({}, pods=0, waiting=0, fragmented=0.0, warnings=("of the nodes",))


def put(api, name, namespace="models", **status):
    api.put(ALL, {"metadata": {"name": name, "namespace": namespace}, "spec": {}, "status": status})


@pytest.fixture
async def api():
    async with FakeApi() as opened:
        yield opened


async def named(api, namespace, name):
    clock = SystemClock()
    async with asked(api.connection(clock), clock) as autoscalers:
        return await autoscalers.named(namespace, name)


async def looked(api):
    clock = SystemClock()
    async with asked(api.connection(clock), clock) as autoscalers:
        return await _scaling(autoscalers, 0.0)


async def test_one_is_found_by_its_name(api):
    put(api, "llm", readyReplicas=3)
    assert (await named(api, "models", "llm")).status.ready_replicas == 3


async def test_a_wrong_namespace_is_answered_with_the_right_one(api):
    put(api, "llm")
    put(api, "other", "default")
    with pytest.raises(
        BerthmasterError, match="no ConcurrencyAutoscaler default/llm; there is one in namespace models"
    ):
        await named(api, "default", "llm")


async def test_a_wrong_name_is_answered_with_those_that_are_there(api):
    put(api, "llm")
    put(api, "web")
    with pytest.raises(BerthmasterError, match="no ConcurrencyAutoscaler models/lmm; there are llm, web"):
        await named(api, "models", "lmm")


async def test_a_cluster_without_the_scaler_says_so(api):
    api.absent(ALL)
    with pytest.raises(BerthmasterError, match="the scaler is not installed"):
        await named(api, "models", "llm")
    scaling = await looked(api)
    assert not scaling.is_installed
    assert _document(NOTHING, scaling)["autoscalers"] is None


async def test_without_the_right_to_read_them_the_nodes_are_still_shown(api):
    api.fail(403, times=9)
    scaling = await looked(api)
    told = _document(NOTHING, scaling)
    assert told["autoscalers"] == []
    assert told["warnings"][0] == "of the nodes"
    assert "the autoscalers cannot be read" in told["warnings"][1]
    with pytest.raises(BerthmasterError, match="cannot read ConcurrencyAutoscaler"):
        await named(api, "models", "llm")


async def test_one_that_cannot_be_read_is_told_beside_the_others(api):
    put(api, "good", readyReplicas=1)
    put(api, "odd", readyReplicas="many")
    scaling = await looked(api)
    assert [row.autoscaler for row in scaling.rows] == ["models/good"]
    told = _document(NOTHING, scaling)
    assert json.loads(json.dumps(told))["autoscalers"][0]["ready"] == 1
    assert any("cannot be read" in warning for warning in told["warnings"])
