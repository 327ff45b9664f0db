"""The client against a server that refuses, fails, stalls and lies."""

from __future__ import annotations

import asyncio
import json

import pytest

from fleet.errors import ApiError, Conflict, Gone, Invalid, NotFound, NotLeading
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import Access, Connection
from tests.support.clock import ManualClock
from tests.support.fake_api import FakeApi

POD = paths.pod("default", "p")
BODY = json.dumps({"metadata": {"name": "p"}}).encode()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def api():
    async with FakeApi() as fake:
        fake.put(paths.PODS, {"metadata": {"name": "p", "namespace": "default"}, "spec": {}})
        yield fake


@pytest.fixture
async def client(api, clock):
    async with Client(api.connection(clock), clock, seed=1) as opened:
        yield opened


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFound), (409, Conflict), (410, Gone), (422, Invalid), (403, ApiError), (400, ApiError)],
)
async def test_statuses_that_callers_act_on(api, client, status, kind):
    api.fail(status)
    with pytest.raises(kind, match=f"{status} .*: as the test wants") as caught:
        await client.get(POD)
    assert caught.value.status == status
    assert type(caught.value) is kind
    assert len(api.requests) == 1


async def test_the_message_of_an_error_is_bounded(api, client):
    api.fail(400, body=b"\xffoh " + b"x" * 10**6)
    with pytest.raises(ApiError) as caught:
        await client.get(POD)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_read_is_tried_again_with_growing_pauses(api, client, clock, status):
    api.fail(status, times=3)
    call = asyncio.create_task(client.get(POD))
    pauses = []
    for _ in range(3):
        await clock.until_sleeping()
        pauses.append(clock.pauses_s[0])
        await clock.advance(pauses[-1])
    assert json.loads(await call)["metadata"]["name"] == "p"
    assert len(api.requests) == 4
    assert 0.05 <= pauses[0] <= 0.1 <= pauses[1] <= 0.2 <= pauses[2] <= 0.4


async def test_tries_end(api, client, clock):
    api.fail(503, times=100)
    call = asyncio.create_task(client.get(POD))
    for _ in range(4):
        await clock.until_sleeping()
        await clock.advance(clock.pauses_s[0])
    with pytest.raises(ApiError, match="503"):
        await call
    assert len(api.requests) == 5


async def test_retry_after_is_honoured(api, client, clock):
    api.fail(429, headers={"Retry-After": "7"})
    call = asyncio.create_task(client.json_patch(POD, b"[]"))
    await clock.until_sleeping()
    assert clock.pauses_s == [7.0]
    await clock.advance(7.0)
    await call


async def test_a_wait_beyond_the_time_out_is_not_begun(api, client):
    api.fail(429, headers={"Retry-After": "60"})
    with pytest.raises(ApiError) as caught:
        await client.json_patch(POD, b"[]")
    assert caught.value.retry_after_s == 60.0


async def test_a_write_that_may_have_got_through_is_not_repeated(api, client):
    api.fail(500, times=9)
    for write in (client.json_patch(POD, b"[]"), client.create(paths.PODS, BODY), client.delete(POD)):
        with pytest.raises(ApiError, match="500"):
            await write
    assert len(api.requests) == 3


async def test_writes_that_mean_the_same_twice_are_repeated(api, client, clock):
    for write in (client.merge_patch(POD, b"{}"), client.apply(POD, b"{}"), client.delete(POD, uid="x")):
        api.fail(503)
        call = asyncio.create_task(write)
        await clock.until_sleeping()
        await clock.advance(1.0)
        await asyncio.wait([call])
        assert not isinstance(call.exception(), ApiError) or call.exception().status == 409


async def test_an_eviction_that_a_budget_forbids_is_an_answer(api, client):
    api.fail(429, path="eviction")
    with pytest.raises(ApiError) as caught:
        await client.evict("default", "p")
    assert caught.value.status == 429
    assert len(api.requests) == 1


async def test_an_eviction_names_the_pod_it_means(api, client):
    with pytest.raises(Conflict):
        await client.evict("default", "p", uid="another")
    await client.evict("default", "p", uid=api.objects(paths.PODS)["default", "p"]["metadata"]["uid"])
    assert not api.objects(paths.PODS)


async def test_a_delete_has_preconditions(api, client):
    meta = api.objects(paths.PODS)["default", "p"]["metadata"]
    for wrong in ({"uid": "another"}, {"uid": meta["uid"], "resource_version": "1"}):
        with pytest.raises(Conflict):
            await client.delete(POD, **wrong)
    await client.delete(POD, uid=meta["uid"], resource_version=meta["resourceVersion"])
    assert not api.objects(paths.PODS)


async def test_nothing_is_sent_that_could_outlast_the_lease(api, client, clock):
    client.write_deadline_s = lambda: clock.monotonic_s() + 5.0
    for write in (client.json_patch(POD, b"[]"), client.create(paths.PODS, BODY), client.evict("default", "p")):
        with pytest.raises(NotLeading):
            await write
    assert not api.requests
    await client.json_patch(POD, b"[]", timeout_s=4.9)
    await client.get(POD)
    await client.request("PATCH", POD, body=b"[]", content_type="application/json-patch+json", is_fenced=False)


async def test_the_server_gives_up_before_we_do(api, client):
    await client.json_patch(POD, b"[]", timeout_s=4.0)
    assert api.requests[-1].query["timeout"] == "3800ms"


async def test_field_managers_and_kinds_of_patch(api, client):
    await client.json_patch(POD, b"[]")
    await client.merge_patch(POD, b"{}", strategic=True)
    await client.merge_patch(POD, b"{}")
    await client.apply(POD, b"{}", force=False)
    kinds = [request.headers["Content-Type"] for request in api.requests]
    assert [kind.partition("/")[2] for kind in kinds] == [
        "json-patch+json",
        "strategic-merge-patch+json",
        "merge-patch+json",
        "apply-patch+yaml",
    ]
    assert {request.query["fieldManager"] for request in api.requests} == {"berthmaster"}
    assert api.requests[-1].query["force"] == "false"


async def test_a_server_that_is_not_there(clock):
    async with Client(Connection(lambda: Access(base_url="http://127.0.0.1:9"), clock), clock) as client:
        call = asyncio.create_task(client.json_patch(POD, b"[]"))
        for _ in range(4):  # never sent, so even this may be tried again
            await clock.until_sleeping()
            await clock.advance(clock.pauses_s[0])
        with pytest.raises(ApiError) as caught:
            await call
        assert (caught.value.status, caught.value.reason) == (0, "NotSent")


async def test_a_call_ends_with_its_time_out(clock):
    left = asyncio.Event()

    async def stall(reader, writer):
        while await reader.read(1000):
            pass
        writer.close()
        await writer.wait_closed()
        left.set()

    server = await asyncio.start_server(stall, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Client(Connection(lambda: Access(base_url=f"http://127.0.0.1:{port}"), clock), clock) as client:
        with pytest.raises(ApiError) as caught:
            await client.json_patch(POD, b"[]", timeout_s=0.05)
    assert (caught.value.status, caught.value.reason) == (0, "NoAnswer")
    server.close()
    await left.wait()


async def test_a_closed_client_says_so(api, clock):
    client = Client(api.connection(clock), clock)
    with pytest.raises(ApiError, match="closed"):
        await client.request("POST", POD, body=b"", timeout_s=0.01)


async def test_a_refused_token_is_renewed_once(api, clock):
    tokens = iter(["old", "new", "new"])
    api.token = "new"
    connection = Connection(lambda: Access(base_url=api.url, authorization=f"Bearer {next(tokens)}"), clock)
    async with Client(connection, clock) as client:
        await asyncio.gather(*(client.get(POD) for _ in range(4)))
        await client.get(POD)
    assert next(tokens) == "new"  # loaded at the start and once after the refusals, not once for each
    assert {r.headers["Authorization"] for r in api.requests[-3:]} == {"Bearer new"}


async def test_a_token_that_stays_wrong_is_an_error(api, clock):
    api.token = "right"
    connection = Connection(lambda: Access(base_url=api.url, authorization="Bearer wrong"), clock)
    async with Client(connection, clock) as client:
        with pytest.raises(ApiError, match="401"):
            await client.get(POD)
    assert len(api.requests) == 2


async def test_large_answers_come_packed(api, client):
    for number in range(100):
        api.put(paths.PODS, {"metadata": {"name": f"p{number}"}})
    assert len(json.loads(await client.get(paths.PODS))["items"]) == 101
    assert "gzip" in api.requests[-1].headers["Accept-Encoding"]


@pytest.mark.parametrize("name", ["../nodes/n", "a/b", "ü", "a?b", "a%2fb", ""])
async def test_a_name_cannot_lead_elsewhere(name):
    path = paths.pod("default", name)
    assert path.startswith("/api/v1/namespaces/default/pods/")
    assert path.count("/") == 6
    assert "?" not in path
