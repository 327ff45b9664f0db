from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from scaler.controller.desk import Desk
from tests.support.clock import ManualClock, settle


def desk(clock: ManualClock, at_once: int = 2, rate_per_s: float = 1000.0, burst: float = 1000.0) -> Desk[str]:
    return Desk(clock, at_once=at_once, rate_per_s=rate_per_s, burst=burst)


def job(done: list[str], name: str, gate: asyncio.Event | None = None) -> Callable[[], Coroutine[Any, Any, None]]:
    async def work() -> None:
        if gate is not None:
            await gate.wait()
        done.append(name)

    return work


async def test_the_newest_of_a_key_is_done_and_never_two_at_once():
    clock, done, gate = ManualClock(), list[str](), asyncio.Event()
    tested = desk(clock)
    work = asyncio.create_task(tested.run())
    tested.put("a", job(done, "first", gate))
    await settle()
    for name in ("second", "third"):
        tested.put("a", job(done, name))
    tested.put("b", job(done, "other"))
    await settle()
    assert done == ["other"]
    assert "a" in tested
    gate.set()
    await settle()
    assert done == ["other", "first", "third"]
    assert len(tested) == 0
    work.cancel()


async def test_a_job_that_fails_ends_nothing(caplog):
    clock, done = ManualClock(), list[str]()
    tested = desk(clock)
    work = asyncio.create_task(tested.run())

    async def broken() -> None:
        raise ValueError("broken")

    tested.put("a", broken)
    await settle()
    tested.put("a", job(done, "next"))
    await settle()
    assert done == ["next"]
    assert "work on a failed" in caplog.text
    work.cancel()


async def test_jobs_begin_no_faster_than_the_rate():
    clock, done = ManualClock(), list[str]()
    tested = desk(clock, rate_per_s=2.0, burst=3.0)
    work = asyncio.create_task(tested.run())
    for number in range(10):
        tested.put(str(number), job(done, str(number)))
    await settle()
    assert len(done) == 3
    await clock.advance(1.0)
    assert len(done) == 5
    await clock.advance(5.0)
    assert len(done) == 10
    work.cancel()


async def test_a_dropped_job_is_not_done():
    clock, done = ManualClock(), list[str]()
    tested = desk(clock)
    tested.put("a", job(done, "a"))
    tested.drop("a")
    work = asyncio.create_task(tested.run())
    await settle()
    assert done == []
    work.cancel()
