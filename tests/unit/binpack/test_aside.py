"""Work aside: a copy of this process does it, sees what was there, and costs an answer at most."""

import asyncio
import contextlib
import os
import signal
import socket
import threading

import pytest
import uvloop

from binpack.controller.aside import Lost, aside
from tests.support.clock import settle
from tests.support.eventually import eventually

PATIENT_S = 60.0


async def test_the_answer_comes_back_whole_however_long_it_is():
    long = os.urandom(1_000_000)
    assert await aside(lambda: long, PATIENT_S) == long
    assert await aside(lambda: b"", PATIENT_S) == b""


async def test_the_loop_runs_on_while_the_work_is_done_and_neither_sees_what_the_other_changes(tmp_path):
    gate, world = tmp_path / "gate", {"pods": 1}
    os.mkfifo(gate)

    def work() -> bytes:
        os.read(os.open(gate, os.O_RDONLY), 1)  # waits until the loop, which runs on, writes to it
        world["pods"] += 1
        return str(world["pods"]).encode()

    task = asyncio.create_task(aside(work, PATIENT_S))
    await settle(1)
    world["pods"] = 10
    await settle()
    assert not task.done()
    opened = os.open(gate, os.O_RDWR)  # never waits for the reader
    os.write(opened, b"go")
    assert await task == b"2"
    os.close(opened)
    assert world["pods"] == 10


def fails() -> bytes:
    raise ValueError("no such node")


def dies() -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def hangs() -> bytes:
    threading.Event().wait()
    return b""


@pytest.mark.parametrize(
    ("work", "wall_s", "why"),
    [(fails, PATIENT_S, "ValueError: no such node"), (dies, PATIENT_S, "died"), (hangs, 0.2, "within 0.2 s")],
)
async def test_work_that_brings_nothing_is_told_and_leaves_no_process_behind(work, wall_s, why):
    with pytest.raises(Lost, match=why):
        await aside(work, wall_s)
    await _childless()


async def test_whoever_stops_waiting_ends_the_work():
    task = asyncio.create_task(aside(hangs, PATIENT_S))
    await settle(1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await _childless()


async def _childless() -> None:
    await eventually(lambda: asyncio.to_thread(_has_no_child), what="no child is left")


def _has_no_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


async def test_the_copy_keeps_no_connection_open():
    ours, other = socket.socketpair()
    other.setblocking(False)
    task = asyncio.create_task(aside(hangs, PATIENT_S))
    await settle(1)
    ours.close()
    async with asyncio.timeout(10.0):
        assert await asyncio.get_running_loop().sock_recv(other, 1) == b"", "the end of the connection is seen"
    task.cancel()
    other.close()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await _childless()


def test_it_runs_under_uvloop():
    async def main() -> None:
        assert await aside(lambda: b"done", PATIENT_S) == b"done"
        with pytest.raises(Lost):
            await aside(hangs, 0.1)
        await _childless()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def test_where_no_process_can_be_made_there_is_no_answer(monkeypatch):
    def refused() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    with pytest.raises(Lost, match="temporarily"):
        await aside(lambda: b"", PATIENT_S)
