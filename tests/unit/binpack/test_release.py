"""The safe way out: every gate of ours goes, nobody else's does, and whatever is odd about a pod does not matter."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from berthmaster.commands.release import finish, progress
from binpack.controller.release import (
    GATE_POLICIES,
    RECORD_POLICIES,
    Released,
    gated_pods,
    release,
    remove_policies,
)
from fleet import labels
from fleet.errors import ApiError
from fleet.kube.client import Client
from tests.support.clock import ManualClock
from tests.support.fake_api import FakeApi

PODS = "/api/v1/pods"
OTHER = "example.com/later"
POLICIES = "/apis/admissionregistration.k8s.io/v1"


def put(api, name, *gates, namespace="default", **spec):
    body = {"containers": [], **spec}
    if gates:
        body["schedulingGates"] = [{"name": gate} for gate in gates]
    return api.put(PODS, {"metadata": {"name": name, "namespace": namespace}, "spec": body})


def gates(api):
    return {
        name: [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]
        for (_, name), pod in api.objects(PODS).items()
    }


def remove(api, name):
    if ("default", name) in api.objects(PODS):
        api.remove(PODS, name, "default")


@contextlib.asynccontextmanager
async def api_and_client():
    clock = ManualClock()

    async def tick():
        while True:
            await clock.until_sleeping()
            await clock.advance(min(clock.pauses_s))

    async with FakeApi() as api, Client(api.connection(clock), clock) as client:
        ticking = asyncio.ensure_future(tick())
        try:
            yield api, client, clock
        finally:
            ticking.cancel()


async def test_our_gate_goes_and_nobody_elses():
    async with api_and_client() as (api, client, clock):
        put(api, "ours", labels.PLAN_GATE)
        put(api, "first", labels.PLAN_GATE, OTHER)
        put(api, "second", OTHER, labels.PLAN_GATE)
        put(api, "other", OTHER)
        put(api, "free")
        result = await release(client, clock)
        assert (result.released, result.failed) == (3, ())
        assert gates(api) == {"ours": [], "first": [OTHER], "second": [OTHER], "other": [OTHER], "free": []}


async def test_a_pod_that_changed_meanwhile_is_read_again():
    async with api_and_client() as (api, client, clock):
        put(api, "a", labels.PLAN_GATE)
        api.fail(422, method="PATCH")
        result = await release(client, clock)
        assert (result.released, result.failed) == (1, ())
        assert gates(api) == {"a": []}


async def test_more_pods_than_one_page_are_all_found():
    async with api_and_client() as (api, client, clock):
        for i in range(1203):
            put(api, f"p{i:04d}", labels.PLAN_GATE)
        told = []
        result = await release(client, clock, report=lambda done, of: told.append((done, of)))
        assert result.released == 1203
        assert not any(gates(api).values())
        assert told[-1] == (1203, 1203)
        assert {of for _, of in told} == {1203}


async def test_a_list_that_grew_too_old_between_pages_is_begun_again():
    async with api_and_client() as (api, client, _):
        for i in range(501):
            put(api, f"p{i:04d}", labels.PLAN_GATE)
        put(api, "zzz-none")
        pages = 0
        get = client.get

        async def once_gone(path, params=None, **words):
            nonlocal pages
            pages += 1
            if pages == 2:
                api.fail(410)
            return await get(path, params, **words)

        client.get = once_gone
        assert len(await gated_pods(client)) == 501


async def test_pods_created_meanwhile_are_let_go_too():
    """An API server may act on a policy for a moment after its deletion was answered."""
    async with api_and_client() as (api, client, clock):
        late = ["late-1", "late-2"]
        put(api, "early", labels.PLAN_GATE)
        sleep = clock.sleep

        async def sleep_and_create(seconds):
            if late:
                put(api, late.pop(), labels.PLAN_GATE)
            await sleep(seconds)

        clock.sleep = sleep_and_create
        result = await release(client, clock, quiet_s=2.0)
        assert result.released == 3
        assert not any(gates(api).values())


async def test_without_a_wish_for_quiet_it_ends_at_once():
    async with api_and_client() as (_, client, clock):
        before_s = clock.monotonic_s()
        assert (await release(client, clock)).released == 0
        assert clock.monotonic_s() == before_s


async def test_one_pod_is_one_of_one():
    async with api_and_client() as (api, client, clock):
        put(api, "only", labels.PLAN_GATE)
        told = []
        await release(client, clock, report=lambda done, of: told.append((done, of)))
        assert told == [(1, 1)]


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        pytest.param(404, "was deleted meanwhile", id="gone as it is let go"),
        pytest.param(500, "was let go by somebody else, or deleted, meanwhile", id="gone after an error"),
    ],
)
async def test_a_pod_that_goes_without_us_is_named_with_what_became_of_it(status, fate):
    async with api_and_client() as (api, client, clock):
        put(api, "fine", labels.PLAN_GATE)
        put(api, "going", labels.PLAN_GATE)
        api.fail(status, method="PATCH", path="going", times=10_000)
        result = await release(client, clock, report=lambda *_: remove(api, "going"))
        assert (result.released, result.failed, result.others) == (1, (), (("default/going", fate),))


async def test_a_pod_that_went_is_not_called_gated_because_another_still_is():
    async with api_and_client() as (api, client, clock):
        for name in ("going", "stuck"):
            put(api, name, labels.PLAN_GATE)
            api.fail(500, method="PATCH", path=name, times=10_000)
        result = await release(client, clock, report=lambda *_: remove(api, "going"))
        assert [name for name, _ in result.failed] == ["default/stuck"]
        assert [name for name, _ in result.others] == ["default/going"]


@pytest.mark.parametrize("status", [403, 500])
async def test_a_pod_that_cannot_be_let_go_is_named_and_it_ends_all_the_same(status):
    async with api_and_client() as (api, client, clock):
        put(api, "stuck", labels.PLAN_GATE)
        put(api, "fine", labels.PLAN_GATE)
        api.fail(status, method="PATCH", path="stuck", times=10_000)
        result = await release(client, clock)
        assert result.released == 1
        ((name, detail),) = result.failed
        assert name == "default/stuck"
        assert str(status) in detail


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"containers": [{"resources": {"requests": {"cpu": {"no": "quantity"}}}}]}, id="odd amounts"),
        pytest.param({"containers": "none"}, id="no containers"),
        pytest.param({"nodeSelector": [1]}, id="odd selector"),
        pytest.param({"affinity": 7}, id="odd affinity"),
    ],
)
async def test_what_else_is_odd_about_a_pod_does_not_matter(odd):
    async with api_and_client() as (api, client, clock):
        put(api, "odd", labels.PLAN_GATE, **odd)
        put(api, "even", labels.PLAN_GATE)
        assert (await release(client, clock)).released == 2
        assert not any(gates(api).values())


@pytest.mark.parametrize(("released", "words"), [(0, "0 pods released"), (1, "1 pod released"), (2, "2 pods released")])
def test_an_end_is_told_in_whole_words(released, words, capsys):
    gone = (("default/a", "was deleted meanwhile"),)
    finish(Released(released=released, failed=(), others=gone), as_json=False)
    out, err = capsys.readouterr()
    assert out == f"{words}\n"
    assert err == "not released: default/a was deleted meanwhile\n"
    progress(released, 1)
    assert capsys.readouterr().err == f"released {released} of 1 pod\n"


async def test_policies_go_bindings_first_and_those_that_are_gone_are_no_error():
    async with api_and_client() as (api, client, _):
        for kind in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
            for name in (*GATE_POLICIES, "somebody-elses"):
                api.put(f"{POLICIES}/{kind}", {"metadata": {"name": name}})
        for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
            api.put(f"{POLICIES}/{kind}", {"metadata": {"name": RECORD_POLICIES[0]}})
        removed = await remove_policies(client, GATE_POLICIES)
        assert [path.split("/")[-2] for path in removed] == ["mutatingadmissionpolicybindings"] * 2 + [
            "mutatingadmissionpolicies"
        ] * 2
        assert list(api.objects(f"{POLICIES}/mutatingadmissionpolicies")) == [("", "somebody-elses")]
        assert api.objects(f"{POLICIES}/validatingadmissionpolicies")
        assert await remove_policies(client, GATE_POLICIES) == ()
        assert len(await remove_policies(client, RECORD_POLICIES)) == 2


async def test_a_policy_that_cannot_be_deleted_is_named():
    async with api_and_client() as (api, client, _):
        api.put(f"{POLICIES}/mutatingadmissionpolicies", {"metadata": {"name": GATE_POLICIES[0]}})
        api.fail(403, method="DELETE")
        with pytest.raises(ApiError, match=GATE_POLICIES[0]):
            await remove_policies(client, GATE_POLICIES)
