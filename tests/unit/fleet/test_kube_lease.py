"""Leadership: never two at once, however the line to the API behaves, and never judged by another machine's clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.errors import ApiError, Conflict, NotFound
from fleet.kube.lease import Elector
from tests.support.clock import ManualClock, settle


class Store:
    """The one lease, as the API server keeps it."""

    def __init__(self, clock):
        self.lease = None
        self.version = 0
        self.clock = clock
        self.written_at_s = {}

    def put(self, lease, writer):
        self.version += 1
        self.written_at_s[writer] = self.clock.monotonic_s()
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease = json.loads(json.dumps(lease))

    @property
    def holder(self):
        return self.lease["spec"]["holderIdentity"]


class Line:
    """One process's way to the store, which may be slow, cut, or lose the answers."""

    def __init__(self, store, clock, name):
        self.store, self.clock, self.name = store, clock, name
        self.is_cut = self.loses_answers = False
        self.delay_s = 0.0

    async def get(self, path, params=None, *, timeout_s=None):
        async with self._call(timeout_s):
            if self.store.lease is None:
                raise NotFound(404, "NotFound", path)
            return json.dumps(self.store.lease).encode()

    async def create(self, path, body, *, timeout_s=None, is_fenced=True):
        assert not is_fenced
        async with self._call(timeout_s):
            if self.store.lease is not None:
                raise Conflict(409, "AlreadyExists", path)
            self.store.put(json.loads(body), self.name)
            return json.dumps(self.store.lease).encode()

    async def request(self, method, path, *, body, timeout_s, is_fenced, params, content_type):
        assert not is_fenced
        async with self._call(timeout_s):
            if self.store.lease is None:
                raise NotFound(404, "NotFound", path)
            change = json.loads(body)
            if change["metadata"]["resourceVersion"] != self.store.lease["metadata"]["resourceVersion"]:
                raise Conflict(409, "Conflict", path)
            self.store.put(self.store.lease | {"spec": self.store.lease["spec"] | change["spec"]}, self.name)
            return json.dumps(self.store.lease).encode()

    @contextlib.asynccontextmanager
    async def _call(self, timeout_s):
        """Half of the delay on the way there, half on the way back; what is too late is lost."""
        trouble = ApiError(0, "NoAnswer", "the line is bad")
        is_late = self.delay_s >= timeout_s
        await self.clock.sleep(min(self.delay_s, timeout_s) / 2)
        if self.is_cut:
            raise trouble
        yield
        await self.clock.sleep(min(self.delay_s, timeout_s) / 2)
        if self.is_cut or self.loses_answers or is_late:
            raise trouble


@dataclass
class Process:
    name: str
    line: Line
    elector: Elector
    task: asyncio.Task[None]
    terms: int = 0
    is_working: bool = False


class Race:
    """Some processes that campaign for one lease."""

    def __init__(self, clock):
        self.clock, self.store, self.processes = clock, Store(clock), {}

    def start(self, name, **line):
        way = Line(self.store, self.clock, name)
        vars(way).update(line)
        elector = Elector(way, self.clock, namespace="ns", name="lease", identity=name, seed=len(self.processes))
        process = Process(name=name, line=way, elector=elector, task=None)

        async def work():
            self.check()
            assert elector.is_leader
            process.terms += 1
            process.is_working = True
            try:
                await asyncio.Event().wait()
            finally:
                process.is_working = False

        process.task = asyncio.create_task(elector.run(work))
        self.processes[name] = process
        return process

    def check(self):
        """At most one may write, and not for longer than a lease after it last reached the API: others count so too."""
        leaders = [p for p in self.processes.values() if p.elector.is_leader]
        assert len(leaders) <= 1, leaders
        for process in leaders:
            assert process.elector.write_deadline_s() <= self.store.written_at_s[process.name] + 15.0

    async def advance(self, seconds):
        for _ in range(round(seconds * 4)):
            await self.clock.advance(0.25)
            self.check()

    async def stop(self, process):
        process.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await process.task


@contextlib.asynccontextmanager
async def a_race():
    race = Race(ManualClock())
    try:
        yield race
    finally:
        for process in race.processes.values():
            process.line.delay_s = 0.0
            await race.stop(process)


async def test_the_first_leads_at_once_and_keeps_leading():
    async with a_race() as race:
        one, two = race.start("one"), race.start("two")
        await race.advance(1)
        assert [one.elector.is_leader, two.elector.is_leader].count(True) == 1
        await race.advance(120)
        assert one.terms + two.terms == 1
        assert race.store.lease["spec"]["leaseTransitions"] == 0


async def test_a_stopped_leader_hands_over_without_a_wait():
    async with a_race() as race:
        one = race.start("one")
        await race.advance(1)
        two = race.start("two")
        await race.advance(5)
        await race.stop(one)
        assert race.store.holder == ""
        assert one.elector.write_deadline_s() == float("-inf")
        await race.advance(3)
        assert two.elector.is_leader
        assert two.elector.epoch == 1


async def test_a_dead_leader_is_waited_out_for_one_whole_lease():
    async with a_race() as race:
        one = race.start("one")
        await race.advance(1)
        one.line.is_cut = True
        await race.stop(one)
        two = race.start("two")
        await race.advance(14.5)
        assert not two.elector.is_leader
        await race.advance(4)
        assert two.elector.is_leader
        assert race.store.holder == "two"


async def test_another_machines_clock_is_never_believed():
    async with a_race() as race:
        one = race.start("one")
        await race.advance(1)
        race.store.put(
            race.store.lease | {"spec": race.store.lease["spec"] | {"renewTime": "1999-01-01T00:00:00Z"}}, "x"
        )
        two = race.start("two")
        race.clock.step(-(10**8))
        await race.advance(30)
        assert one.elector.is_leader
        assert two.terms == 0


async def test_a_longer_promise_is_respected():
    async with a_race() as race:
        spec = {"holderIdentity": "old", "leaseDurationSeconds": 60, "leaseTransitions": 4}
        race.store.put({"metadata": {}, "spec": spec}, "old")
        one = race.start("one")
        await race.advance(59)
        assert one.terms == 0
        await race.advance(5)
        assert one.elector.is_leader
        assert one.elector.epoch == 5


async def test_a_cut_leader_stops_before_anybody_else_can_lead():
    async with a_race() as race:
        one = race.start("one")
        await race.advance(1)
        two = race.start("two")
        await race.advance(3)
        one.line.is_cut = True
        await race.advance(13)
        assert not one.is_working
        assert not one.elector.is_leader
        await race.advance(8)
        assert two.elector.is_leader
        one.line.is_cut = False
        await race.advance(60)
        assert two.elector.is_leader
        assert one.terms == 1


async def test_a_short_cut_costs_nothing():
    async with a_race() as race:
        one = race.start("one")
        await race.advance(1)
        race.start("two")
        for _ in range(5):
            one.line.is_cut = True
            await race.advance(7)
            one.line.is_cut = False
            await race.advance(5)
        assert one.terms == 1
        assert one.is_working


async def test_lost_answers_are_not_a_lost_lease():
    async with a_race() as race:
        one = race.start("one")
        await race.advance(1)
        one.line.loses_answers = True
        await race.advance(4)
        one.line.loses_answers = False
        await race.advance(30)
        assert one.terms == 1
        assert one.is_working


async def test_the_lease_counts_from_when_the_renewal_was_sent():
    async with a_race() as race:
        one = race.start("one")
        await race.advance(1)
        one.line.delay_s = 4.0
        await race.advance(20)  # `check` looks at every quarter of a second
        assert one.terms == 1


async def test_a_touched_lease_is_not_a_lost_one():
    async with a_race() as race:
        one = race.start("one")
        await race.advance(1)
        race.store.put(race.store.lease | {"metadata": {"annotations": {"a": "b"}}}, "somebody")
        await race.advance(10)
        assert one.terms == 1
        assert race.store.lease["metadata"]["annotations"] == {"a": "b"}


@pytest.mark.parametrize("holder", ["thief", None])
async def test_a_taken_or_deleted_lease_ends_the_work_at_once(holder):
    async with a_race() as race:
        one = race.start("one")
        await race.advance(1)
        if holder is None:
            race.store.lease = None
        else:
            spec = race.store.lease["spec"] | {"holderIdentity": holder}
            race.store.put(race.store.lease | {"spec": spec}, holder)
        await race.advance(2.25)
        assert one.terms == 1 or race.store.holder == "one"
        await race.advance(25)
        assert one.elector.is_leader
        assert one.terms == 2


async def test_garbage_in_the_lease_is_survived():
    async with a_race() as race:
        race.store.put({"metadata": {}, "spec": {"leaseDurationSeconds": "soon"}}, "vandal")
        one = race.start("one")
        await race.advance(10)
        assert not one.task.done()
        race.store.lease = None
        await race.advance(3)
        assert one.elector.is_leader


@pytest.mark.parametrize("fault", [None, RuntimeError("a bug")])
async def test_work_that_ends_by_itself_ends_the_run_and_frees_the_lease(fault):
    clock = ManualClock()
    store = Store(clock)
    elector = Elector(Line(store, clock, "one"), clock, namespace="ns", name="lease", identity="one")

    async def work():
        if fault is not None:
            raise fault

    run = asyncio.create_task(elector.run(work))
    await settle()
    if fault is None:
        await run
    else:
        with pytest.raises(RuntimeError, match="a bug"):
            await run
    assert store.holder == ""
    assert not elector.is_leader


@pytest.mark.parametrize("times", [(15, 15, 2), (15, 10, 10), (15, 10, 0)])
def test_times_that_cannot_work_are_refused(times):
    lease_s, renew_s, retry_s = times
    with pytest.raises(ValueError, match="retry_s"):
        Elector(
            None,
            ManualClock(),
            namespace="n",
            name="l",
            identity="i",
            lease_s=lease_s,
            renew_s=renew_s,
            retry_s=retry_s,
        )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "heal", "lose", "slow", "stop", "touch", "delete", "clock"]),
        st.sampled_from(["one", "two", "three"]),
        st.sampled_from([0.0, 0.5, 3.0, 6.0, 9.0, 16.0]),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_there_are_never_two(steps):
    asyncio.run(_stumble(steps))


async def _stumble(steps):
    async with a_race() as race:
        for name in ("one", "two", "three"):
            race.start(name)
        for step, name, pause_s in steps:
            process = race.processes[name]
            match step:
                case "cut":
                    process.line.is_cut = True
                case "heal":
                    process.line.is_cut = process.line.loses_answers = False
                    process.line.delay_s = 0.0
                case "lose":
                    process.line.loses_answers = True
                case "slow":
                    process.line.delay_s = pause_s
                case "stop" if not process.line.delay_s:
                    await race.stop(process)
                    race.start(f"{name}")
                case "touch" if race.store.lease is not None:
                    race.store.put(race.store.lease, "somebody")
                case "clock":
                    race.clock.step(pause_s - 1e6)
            await race.advance(pause_s)
        for process in race.processes.values():
            vars(process.line).update(is_cut=False, loses_answers=False, delay_s=0.0)
        await race.advance(45)
        assert sum(p.elector.is_leader for p in race.processes.values()) == 1
