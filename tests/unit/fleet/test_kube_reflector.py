"""List and watch against a server that loses, mangles, forgets and goes silent."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.objects import PodObject
from fleet.kube.reflector import IDLE_S, PAGE_SIZE, Reflector
from tests.support.clock import ManualClock
from tests.support.fake_api import FakeApi


class Known:
    """A sink that remembers, and can be waited for."""

    def __init__(self):
        self.pods = {}
        self.log = []
        self.syncs = 0
        self._waiters = []

    def upsert(self, obj):
        self.pods[obj.metadata.uid] = obj
        self._note(("upsert", obj.metadata.name))

    def delete(self, obj):
        del self.pods[obj.metadata.uid]
        self._note(("delete", obj.metadata.name, obj.spec.node_name))

    def synced(self):
        self.syncs += 1
        self._note(("synced",))

    def _note(self, entry):
        self.log.append(entry)
        for holds, waiter in self._waiters:
            if not waiter.done() and holds(self):
                waiter.set_result(None)

    async def until(self, holds):
        if not holds(self):
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((holds, waiter))
            await waiter

    @property
    def names(self):
        return sorted(pod.metadata.name for pod in self.pods.values())


def a_pod(name, node="", **meta):
    return {"metadata": {"name": name, "namespace": "ns", **meta}, "spec": {"nodeName": node}}


def has(*names):
    return lambda known: known.names == sorted(names)


class World:
    def __init__(self, api, clock, client, **options):
        self.api, self.clock, self.known = api, clock, Known()
        self.skipped = []
        self.reflector = Reflector(
            client, clock, paths.PODS, PodObject, self.known, seed=1, on_unreadable=self.skipped.append, **options
        )


@contextlib.asynccontextmanager
async def world(**options):
    clock = ManualClock()
    async with FakeApi() as api, Client(api.connection(clock), clock, seed=1) as client:
        it = World(api, clock, client, **options)
        it.api.put(paths.PODS, a_pod("a", "n1"))
        task = asyncio.create_task(it.reflector.run())
        try:
            yield it
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def watching(it):
    await it.known.until(lambda known: known.syncs)
    await it.api.until_watched(paths.PODS)


async def test_it_lists_from_the_cache_then_follows():
    async with world() as it:
        assert not it.reflector.is_synced
        await watching(it)
        assert it.reflector.is_synced
        it.api.put(paths.PODS, a_pod("b"))
        it.api.put(paths.PODS, a_pod("a", "n2"))
        it.api.remove(paths.PODS, "b", "ns")
        await it.known.until(lambda known: ("delete", "b", "") in known.log)
        assert it.known.log[0:2] == [("upsert", "a"), ("synced",)]
        assert it.known.names == ["a"]
        listed, watched = it.api.requests
        assert listed.query["resourceVersion"] == "0"
        assert watched.query["allowWatchBookmarks"] == "true"
        assert 240 <= int(watched.query["timeoutSeconds"]) <= 300


async def test_a_dropped_watch_goes_on_where_it_was():
    async with world() as it:
        await watching(it)
        it.api.drop_watches()
        await it.api.until(lambda: not it.api.watchers)
        it.api.put(paths.PODS, a_pod("b"))
        await it.clock.until_sleeping()
        await it.clock.advance(30.0)
        await it.known.until(has("a", "b"))
        assert it.reflector.stats.lists == 1


@pytest.mark.parametrize("keeps_last", [True, False])
async def test_what_a_gap_hid_is_found_by_the_next_list(keeps_last):
    async with world(keeps_last=keeps_last) as it:
        it.api.put(paths.PODS, a_pod("gone", "n9"))
        it.api.put(paths.PODS, a_pod("again", uid="old"))
        await watching(it)
        it.api.drop_watches()
        await it.api.until(lambda: not it.api.watchers)
        it.api.remove(paths.PODS, "gone", "ns", is_told=False)
        it.api.remove(paths.PODS, "again", "ns", is_told=False)
        it.api.put(paths.PODS, a_pod("again", uid="new"))
        it.api.put(paths.PODS, a_pod("fresh"))
        it.api.forget_history()
        await it.clock.until_sleeping()
        await it.clock.advance(30.0)
        await it.clock.until_sleeping()  # after the 410
        await it.clock.advance(30.0)
        await it.known.until(lambda known: known.syncs == 2)
        assert it.known.names == ["a", "again", "fresh"]
        assert "old" not in it.known.pods
        assert ("delete", "gone", "n9" if keeps_last else None) in it.known.log
        assert it.reflector.stats.gone == 1
        second = it.api.asked(path="pods", is_watch=False)[1]
        assert second.query.get("resourceVersion") is None  # from quorum: the cache may be the old one
        assert second.query["limit"] == str(PAGE_SIZE)


async def test_gone_inside_a_watch_lists_again():
    async with world() as it:
        await watching(it)
        status = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}}
        it.api.say(paths.PODS, json.dumps(status).encode())
        await it.clock.until_sleeping()
        await it.clock.advance(1.0)
        await it.known.until(lambda known: known.syncs == 2)


async def test_a_half_open_connection_is_noticed():
    async with world() as it:
        await watching(it)
        it.api.is_muted = True
        it.api.put(paths.PODS, a_pod("b"))
        await it.clock.until_sleeping()
        await it.clock.advance(IDLE_S - 1.0)
        assert it.known.names == ["a"]
        it.api.is_muted = False
        await it.clock.advance(2.0)
        await it.known.until(has("a", "b"))
        assert (it.reflector.stats.lists, it.reflector.stats.failures) == (1, 0)


async def test_signs_of_life_keep_a_quiet_watch_open():
    async with world() as it:
        await watching(it)
        for bookmarks in range(1, 6):
            await it.clock.until_sleeping()
            await it.clock.advance(IDLE_S - 5.0)
            it.api.bookmark(paths.PODS)
            while it.reflector.stats.bookmarks < bookmarks:
                await asyncio.wait_for(_turn(), 5)
        assert it.reflector.stats.watches == 1
        assert it.reflector.seen_at_s == it.clock.monotonic_s()


async def _turn():
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_later(0.001, done.set_result, None)
    await done


async def test_a_bookmark_moves_the_version_on():
    async with world() as it:
        await watching(it)
        it.api.put(paths.NODES, {"metadata": {"name": "elsewhere"}})
        it.api.bookmark(paths.PODS)
        it.api.put(paths.PODS, a_pod("b"))
        await it.known.until(has("a", "b"))
        it.api.drop_watches()
        await it.api.until(lambda: not it.api.watchers)
        await it.clock.until_sleeping()
        await it.clock.advance(30.0)
        await it.api.until_watched(paths.PODS)
        version = it.api.objects(paths.PODS)["ns", "b"]["metadata"]["resourceVersion"]
        assert it.api.asked(is_watch=True)[-1].query["resourceVersion"] == version


async def test_a_broken_line_is_named_and_passed_over():
    async with world() as it:
        await watching(it)
        it.api.say(paths.PODS, b"\x00{garbage")
        it.api.put(paths.PODS, {"metadata": {"name": "odd", "namespace": "ns"}, "spec": {"priority": "high"}})
        it.api.put(paths.PODS, a_pod("b"))
        await it.known.until(has("a", "b"))
        assert [skipped.key for skipped in it.skipped] == ["?", "ns/odd"]
        assert it.reflector.stats.unreadable == 2
        assert it.reflector.stats.watches == 1


async def test_an_object_that_turned_unreadable_is_not_taken_for_gone():
    async with world() as it:
        await watching(it)
        it.api.put(paths.PODS, {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"priority": "high"}})
        refresh = asyncio.create_task(it.reflector.refresh())
        await refresh
        assert it.known.names == ["a"]
        assert it.skipped[-1].key == "ns/a"


async def test_failures_are_tried_again_ever_more_slowly():
    async with world() as it:
        it.api.fail(403, times=10)
        pauses = []
        for _ in range(10):
            await it.clock.until_sleeping()
            pauses.append(it.clock.pauses_s[0])
            await it.clock.advance(pauses[-1])
        await it.known.until(has("a"))
        for number, pause in enumerate(pauses):
            assert min(30.0, 0.2 * 2**number) / 2 <= pause <= 30.0
        assert pauses[-1] > 10.0
        assert it.reflector.stats.failures == 10


async def test_a_server_that_is_away_is_noticed_soon_after_it_is_back():
    async with world() as it:
        await watching(it)
        await it.api.__aexit__()
        pauses = []
        for _ in range(10):
            await it.clock.until_sleeping()
            pauses.append(it.clock.pauses_s[0])
            await it.clock.advance(pauses[-1])
        assert max(pauses) <= 2.0
        assert min(pauses[4:]) >= 0.5


async def test_a_watch_that_ends_at_once_does_not_spin():
    async with world() as it:
        await watching(it)
        it.api.fail(200, times=5, is_watch=True, body=b"")
        it.api.drop_watches()
        for _ in range(6):
            await it.clock.until_sleeping()
            assert it.clock.pauses_s[0] >= 0.1
            await it.clock.advance(31.0)
        await it.api.until_watched(paths.PODS)
        assert it.reflector.stats.failures >= 5


async def test_a_collection_that_the_server_lacks_is_empty_until_it_comes():
    async with world() as it:
        it.api.absent(paths.PODS)
        await it.known.until(lambda known: known.syncs == 1)
        assert it.known.log == [("synced",)]
        assert it.reflector.is_synced
        it.api.present(paths.PODS)
        await it.clock.until_sleeping()
        await it.clock.advance(61.0)
        await it.known.until(has("a"))


async def test_a_refresh_of_a_collection_that_the_server_lacks_returns():
    async with world() as it:
        it.api.absent(paths.PODS)
        await it.known.until(lambda known: known.syncs == 1)
        await it.reflector.refresh()
        assert it.known.syncs == 2
        it.api.present(paths.PODS)
        await it.reflector.refresh()
        assert it.known.names == ["a"]
        assert it.clock.monotonic_s() == 1000.0  # nobody had to wait for the next try


async def test_a_refresh_does_not_wait_for_a_pause_to_end():
    async with world() as it:
        it.api.fail(500, times=3)
        for _ in range(2):
            await it.clock.until_sleeping()
            await it.clock.advance(it.clock.pauses_s[0])
        await it.clock.until_sleeping()
        await it.reflector.refresh()
        assert it.known.names == ["a"]


async def test_the_server_says_when_to_come_again():
    async with world() as it:
        it.api.fail(429, headers={"Retry-After": "17"})
        await it.clock.until_sleeping()
        assert it.clock.pauses_s == [17.0]


async def test_only_what_was_told_is_told_as_gone():
    async with world() as it:
        await watching(it)
        it.api.put(paths.PODS, {"metadata": {"name": "odd", "namespace": "ns"}, "spec": {"priority": "high"}})
        it.api.remove(paths.PODS, "odd", "ns")
        old = {"type": "DELETED", "object": a_pod("a", uid="an-earlier-one")}
        it.api.say(paths.PODS, json.dumps(old).encode())
        it.api.put(paths.PODS, a_pod("b"))
        await it.known.until(has("a", "b"))
        it.api.remove(paths.PODS, "a", "ns")
        await it.known.until(has("b"))
        assert [entry for entry in it.known.log if entry[0] == "delete"] == [("delete", "a", "n1")]


async def test_a_collection_out_of_reach_keeps_what_was_known():
    async with world() as it:
        await watching(it)
        it.api.absent(paths.PODS)
        it.api.drop_watches()
        for _ in range(4):
            await it.clock.until_sleeping()
            await it.clock.advance(31.0)
        assert it.known.names == ["a"]


async def test_a_long_collection_comes_in_pages():
    async with world() as it:
        await watching(it)
        for number in range(2 * PAGE_SIZE):
            it.api.put(paths.PODS, a_pod(f"p{number}"))
        await it.reflector.refresh()
        pages = it.api.asked(path="pods", is_watch=False)[1:]
        assert [page.query.get("continue") for page in pages] == [None, "500", "1000"]
        assert len(it.known.pods) == 2 * PAGE_SIZE + 1


async def test_an_expired_page_starts_the_list_anew():
    async with world() as it:
        await watching(it)
        for number in range(PAGE_SIZE):
            it.api.put(paths.PODS, a_pod(f"p{number}"))
        await it.known.until(lambda known: len(known.pods) == PAGE_SIZE + 1)
        it.api.fail(410, is_watch=False)
        refresh = asyncio.create_task(it.reflector.refresh())
        await it.clock.until_sleeping()
        await it.clock.advance(1.0)
        await refresh
        assert len(it.known.pods) == PAGE_SIZE + 1


async def test_refresh_returns_only_with_the_news():
    async with world() as it:
        await watching(it)
        it.api.is_muted = True
        it.api.put(paths.PODS, a_pod("b"))
        it.api.is_muted = False
        assert it.known.names == ["a"]
        await it.reflector.refresh()
        assert it.known.names == ["a", "b"]
        await asyncio.gather(it.reflector.refresh(), it.reflector.refresh())
        it.api.put(paths.PODS, a_pod("c"))
        await it.known.until(has("a", "b", "c"))


async def test_refresh_before_the_first_list():
    async with world() as it:
        await it.reflector.refresh()
        assert it.known.names == ["a"]
        assert it.reflector.is_synced


NAMES = st.sampled_from(["p0", "p1", "p2"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("recreate"), NAMES),
        st.sampled_from([("drop", ""), ("forget", ""), ("bookmark", ""), ("garbage", ""), ("settle", "")]),
    ),
    max_size=14,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_watching_for_long_ends_where_a_fresh_list_begins(steps):
    asyncio.run(_replay(steps))


async def _replay(steps):
    async with world() as it:
        await watching(it)
        for number, (step, name) in enumerate(steps):
            exists = ("ns", name) in it.api.objects(paths.PODS)
            match step:
                case "put":
                    it.api.put(paths.PODS, a_pod(name, f"n{number}"))
                case "remove" if exists:
                    it.api.remove(paths.PODS, name, "ns")
                case "recreate" if exists:
                    it.api.remove(paths.PODS, name, "ns")
                    it.api.put(paths.PODS, a_pod(name))
                case "drop":
                    it.api.drop_watches()
                case "forget":
                    it.api.forget_history()
                    it.api.drop_watches()
                case "bookmark":
                    it.api.bookmark(paths.PODS)
                case "garbage":
                    it.api.say(paths.PODS, b"]")
                case "settle":
                    await it.clock.advance(31.0)
        it.api.put(paths.PODS, a_pod("last"))
        done = asyncio.create_task(it.known.until(lambda known: "last" in known.names))
        while not done.done():
            await it.clock.advance(31.0)
            await _turn()
        wanted = {o["metadata"]["uid"]: o["spec"]["nodeName"] for o in it.api.objects(paths.PODS).values()}
        assert {uid: pod.spec.node_name for uid, pod in it.known.pods.items()} == wanted
