"""Work aside: a copy of this process does it, sees what was there, and costs an answer at most."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
import threading
from pathlib import Path

import pytest
import uvloop

from binpack.controller import aside as module
from binpack.controller.aside import Lost, aside
from tests.support.clock import settle
from tests.support.eventually import eventually

PATIENT_S = 60.0
_others: set[int] = set()  # children that were there before: clusters of other tests


@pytest.fixture(autouse=True)
def _know_others() -> None:
    _others.clear()
    _others.update(_children())


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
    return _children() <= _others


def _children() -> set[int]:
    """Return the children of this process, those that have ended and were not waited for included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == os.getpid():
                found.add(int(stat.parent.name))
    return found


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


def takes_at_once() -> bytes:
    return bytes(1 << 30)[:1]


def takes_bit_by_bit() -> bytes:
    hoard = []
    while len(hoard) << 20 < 1 << 30:
        hoard.append(b"x" * (1 << 20))
    return b"all of it"


@pytest.mark.parametrize("takes", [takes_at_once, takes_bit_by_bit])
async def test_work_that_takes_too_much_memory_is_lost_and_nobody_else_is(takes):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(Lost, match=r"MemoryError|died"):
        await aside(takes, PATIENT_S)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    await _childless()


async def test_what_this_process_has_already_does_not_count_and_some_more_may_be_taken(monkeypatch):
    had = bytearray(64 << 20)
    monkeypatch.setattr(module, "_MORE_BYTES", 32 << 20)
    assert await aside(lambda: bytes(16 << 20)[:1] + had[:1], PATIENT_S) == b"\0\0"
    with pytest.raises(Lost, match="MemoryError"):
        await aside(lambda: bytes(48 << 20)[:1], PATIENT_S)


async def test_a_lower_limit_that_an_operator_has_set_stays(monkeypatch):
    def soft() -> bytes:
        return str(resource.getrlimit(resource.RLIMIT_DATA)).encode()

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 40, 1 << 41))
    seen, set_to = await aside(soft, PATIENT_S), []
    assert seen == b"(1099511627776, 2199023255552)"
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: set_to.append(limits))
    for most_bytes in (1 << 39, 1 << 50):
        module._limit_data(most_bytes)
    assert set_to == [(1 << 39, 1 << 41), (1 << 40, 1 << 41)]


@pytest.mark.parametrize(("call", "why"), [("pipe", "no pipe"), ("fork", "no process"), ("pidfd_open", "watched")])
async def test_where_descriptors_or_processes_have_run_out_nothing_stays_behind(call, why, monkeypatch):
    def refused(*_: int) -> int:
        raise OSError(24, "Too many open files")

    before = _opened()
    monkeypatch.setattr(os, call, refused)
    with pytest.raises(Lost, match=f"{why}.*Too many open files"):
        await aside(hangs, PATIENT_S)
    assert _has_no_child()
    assert _opened() == before


@pytest.mark.parametrize(("work", "wall_s"), [(lambda: b"", PATIENT_S), (fails, PATIENT_S), (dies, 60.0), (hangs, 0.1)])
async def test_no_descriptor_stays_open(work, wall_s):
    before = _opened()
    with contextlib.suppress(Lost):
        await aside(work, wall_s)
    await _childless()
    await settle()
    assert _opened() == before


def _opened() -> int:
    return len(os.listdir("/proc/self/fd"))


ORPHAN = """
import asyncio, os, sys, time
from binpack.controller.aside import aside

def work():
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)

async def main():
    asyncio.create_task(aside(work, 60.0))
    await asyncio.to_thread(sys.stdin.readline)
    os._exit(1)

asyncio.run(main())
"""


async def test_the_copy_ends_with_its_parent_however_that_ends():
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ORPHAN, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdin
    assert parent.stdout
    copy = int(await parent.stdout.readline())
    assert _runs(copy)
    parent.stdin.close()
    await eventually(lambda: asyncio.to_thread(_runs, copy), lambda runs: not runs, what="the copy has ended")
    assert await parent.wait() == 1


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"
