"""Loops that survive a bad turn, and processes that start, stop and fail in one way."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import ConfigError
from fleet.loop import Rhythm, every, run_process, together
from tests.support.clock import ManualClock


@given(failures=st.integers(0, 10**6), draw=st.floats(0, 1), period_s=st.floats(0.01, 1000))
def test_pauses_grow_but_stay_bounded(failures, draw, period_s):
    rhythm = Rhythm(period_s=period_s, jitter_ratio=0.1, longest_backoff_s=60.0)
    pause_s = rhythm.pause_s(failures, draw)
    assert 0.9 * period_s * 0.999 <= pause_s <= 1.1 * max(60.0, period_s) * 1.001
    assert rhythm.pause_s(failures + 1, draw) >= pause_s


async def test_a_bad_turn_is_told_and_the_loop_goes_on(caplog):
    clock, turns, told = ManualClock(), [], []

    async def turn():
        turns.append(clock.monotonic_s())
        if len(turns) in (2, 3):
            raise RuntimeError(f"turn {len(turns)}")

    rhythm = Rhythm(period_s=5.0, jitter_ratio=0.0)
    task = asyncio.create_task(every(rhythm, turn, clock, name="planner", failed=told.append))
    await clock.advance(60.0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    pauses = [b - a for a, b in pairwise(turns)]
    assert pauses[:4] == [5.0, 10.0, 20.0, 5.0]
    assert [str(error) for error in told] == ["turn 2", "turn 3"]
    assert "a turn of planner failed, 2 in a row" in caplog.text


async def test_the_end_of_one_task_ends_all():
    ended = []

    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("forever")

    async def crash():
        raise RuntimeError("a bug")

    async def leave():
        return

    for task, text in ((crash, "a bug"), (leave, "watch ended, which it never should")):
        with pytest.raises(ExceptionGroup) as caught:
            await together({"other": forever(), "watch": task()})
        assert text in str(caught.value.exceptions[0])
    assert ended == ["forever", "forever"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_process_clean_up(number):
    cleaned = []

    async def main():
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.wait_for(asyncio.get_running_loop().create_task(_nothing()), 1)
            cleaned.append("yes")

    assert run_process(main) == 0
    assert cleaned == ["yes"]


async def _nothing():
    return None


def test_a_main_that_returns_is_a_success():
    assert run_process(_nothing) == 0


def test_an_error_of_ours_is_one_line_and_a_bug_has_its_trace(caplog):
    caplog.set_level(logging.INFO)

    async def misconfigured():
        raise ConfigError(["a: wrong", "b: wrong"])

    async def in_a_group():
        async with asyncio.TaskGroup() as group:
            group.create_task(misconfigured())

    async def buggy():
        raise KeyError("x")

    for main in (misconfigured, in_a_group, buggy):
        assert run_process(main) == 1
    ours, grouped, bug = caplog.records
    assert ours.getMessage() == grouped.getMessage() == "ended: a: wrong; b: wrong"
    assert ours.exc_info is None
    assert "KeyError" in bug.getMessage()
    assert bug.exc_info is not None


def test_a_main_that_cancels_itself_is_a_failure():
    async def main():
        asyncio.current_task().cancel()
        await asyncio.Event().wait()

    assert run_process(main) == 1
