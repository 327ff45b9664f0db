"""Claims are written once, for the claim as it was read, and whatever goes wrong is found out by reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from binpack.controller.allotter import Allotter
from binpack.controller.claim_feed import ClaimFeed
from binpack.controller.writer import Outcome
from binpack.dra.choose import Chosen
from fleet.clock import SystemClock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.pod import Berth
from tests.support.devices import CLASS, DRIVER, a_claimant, a_desk, a_device, a_slice
from tests.support.eventually import eventually
from tests.support.fake_api import FakeApi

CLAIMS = paths.RESOURCE_CLAIMS
FINALIZER = "resource.kubernetes.io/delete-protection"


def a_claim(name="c", **status):
    exactly = {"deviceClassName": CLASS}
    spec = {"devices": {"requests": [{"name": "dev", "exactly": exactly}]}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": status}


def holding(device, *pods):
    result = {"request": "dev", "driver": DRIVER, "pool": "n", "device": device}
    return {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
    }


class Scene:
    """A fake API, a desk that watches it, and the hand that writes."""

    def __init__(self, api, desk, allotter):
        self.api, self.desk, self.allotter = api, desk, allotter

    def chosen(self, pod) -> Berth:
        answer = self.desk.offer("n", self.desk.wish(pod))
        assert isinstance(answer, Chosen)
        self.desk.assume(pod.uid, answer.choices)
        return Berth(node="n", choices=answer.choices)

    def claim(self, name="c"):
        return self.api.objects(CLAIMS)["default", name]

    def writes(self):
        return [request for request in self.api.requests if request.method == "PATCH"]

    async def knows(self, *names):
        await self.api.until(lambda: {claim.name for claim in self.desk.claims.values()} >= set(names))


def is_synced(desk):
    async def look() -> bool:
        return desk.is_synced

    return look


@asynccontextmanager
async def scene(*claims) -> AsyncIterator[Scene]:
    clock = SystemClock()
    async with FakeApi() as api:
        api.put(paths.DEVICE_CLASSES, {"metadata": {"name": CLASS}, "spec": {}})
        for claim in claims:
            api.put(CLAIMS, claim)
        desk = a_desk(a_slice("n", [a_device("a"), a_device("b")]))
        desk.is_synced = False
        async with Client(api.connection(clock), clock) as client:
            feed = ClaimFeed(client, clock, desk, lambda: None, lambda kind, name: None)
            task = asyncio.create_task(feed.run())
            try:
                await api.until_watched(CLAIMS)
                await eventually(is_synced(desk), what="the desk knows all claims")
                yield Scene(api, desk, Allotter(client, desk, clock))
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def test_finalizer_then_allocation_and_reservation() -> None:
    async with scene(a_claim()) as on:
        pod = a_claimant("p", "c")
        assert await on.allotter.allot(pod, on.chosen(pod)) == (Outcome.DONE, "")
        claim = on.claim()
        assert claim["metadata"]["finalizers"] == [FINALIZER]
        assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "a"
        assert claim["status"]["allocation"]["allocationTimestamp"].endswith("Z")
        assert claim["status"]["reservedFor"] == [{"uid": "p", "name": "p", "resource": "pods"}]
        assert [request.path.endswith("/status") for request in on.writes()] == [False, True]


async def test_a_claim_that_has_devices_is_joined() -> None:
    async with scene(a_claim(**holding("b", "other"))) as on:
        pod = a_claimant("p", "c")
        assert await on.allotter.allot(pod, Berth(node="n")) == (Outcome.DONE, "")
        assert [one["name"] for one in on.claim()["status"]["reservedFor"]] == ["other", "p"]
        assert await on.allotter.allot(pod, Berth(node="n")) == (Outcome.DONE, "")
        assert len(on.claim()["status"]["reservedFor"]) == 2


async def test_a_claim_that_another_allocated_first_is_not_overwritten() -> None:
    async with scene(a_claim()) as on:
        pod = a_claimant("p", "c")
        berth = on.chosen(pod)
        on.api.put(CLAIMS, {**a_claim(**holding("b", "q")), "metadata": on.claim()["metadata"] | {"labels": {}}})
        outcome, detail = await on.allotter.allot(pod, berth)
        assert outcome is Outcome.CHANGED
        assert "default/c" in detail
        assert on.claim()["status"]["allocation"]["devices"]["results"][0]["device"] == "b"


async def test_a_lost_answer_is_found_to_be_written() -> None:
    async with scene(a_claim()) as on:
        pod = a_claimant("p", "c")
        berth = on.chosen(pod)
        (result,) = berth.choices[0].allocation.results
        on.api.put(
            CLAIMS, {**a_claim(**holding(result.device, "p")), "metadata": on.claim()["metadata"] | {"labels": {}}}
        )
        assert await on.allotter.allot(pod, berth) == (Outcome.DONE, "")
        assert len(on.claim()["status"]["reservedFor"]) == 1


async def test_a_claim_that_is_gone_is_gone() -> None:
    async with scene(a_claim()) as on:
        pod = a_claimant("p", "c")
        berth = on.chosen(pod)
        on.api.remove(CLAIMS, "c", "default", is_told=False)
        outcome, _ = await on.allotter.allot(pod, berth)
        assert outcome is Outcome.GONE


async def test_who_is_second_to_a_device_gives_it_back() -> None:
    async with scene(a_claim(), a_claim("theirs")) as on:
        pod = a_claimant("p", "c")
        berth = on.chosen(pod)
        (result,) = berth.choices[0].allocation.results
        theirs = {**a_claim("theirs", **holding(result.device, "q")), "metadata": on.claim("theirs")["metadata"]}
        on.api.put(CLAIMS, theirs)
        outcome, detail = await on.allotter.allot(pod, berth)
        assert outcome is Outcome.CHANGED
        assert "shares a device" in detail
        assert "allocation" not in on.claim()["status"]
        assert on.claim("theirs")["status"]["allocation"]
