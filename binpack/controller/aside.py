"""Long pure work done aside: by a forked copy of this process, which sees everything as it is at that moment.

The copy shares the pages of this process until either writes to them, so nothing is packed, sent or built anew, and the
event loop stops only for the fork itself. It has no connection of ours, answers once, and ends, at the latest with us.

Memory that the copy asks for is limited, for a container that runs out of it may be killed as a whole
(`memory.oom.group` of cgroup v2). What it writes to of our pages comes on top: at the worst as much as we have.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import math
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

_NICE: Final = 5  # whoever has pins to write goes first
# A search at 5,000 nodes takes 126 MiB with the solver; the planner's container may have 2 GiB.
_MORE_BYTES: Final = 512 << 20
_DATA_PAGES: Final = 5  # which number of /proc/self/statm
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_CHUNK_BYTES: Final = 1 << 16
_STDERR: Final = 2
_DONE, _FAILED = b"\x01", b"\x00"
_OWN_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)

_libc: Final = ctypes.CDLL(None, use_errno=True)

Aside = Callable[[Callable[[], bytes], float], Awaitable[bytes]]


class Lost(Exception):
    """The work brought no answer: it failed, died, took too long or could not be begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """A copy that works.

    Attributes:
        answer: Where its answer is read.
        watched: Its pidfd, which can be read once it has ended.
    """

    pid: int
    answer: int
    watched: int


async def aside(work: Callable[[], bytes], wall_s: float) -> bytes:
    """Return what the work returns; the event loop runs on meanwhile, and nothing that the work changes is seen here.

    Args:
        work: Reads what it likes and talks to nobody; it runs on one thread, and may take up to 512 MiB more than this
            process has.
        wall_s: Above 0. After this the copy is killed; it also ends itself.

    Raises:
        Lost: There is no answer.
    """
    copy = _begun(work, wall_s)
    has_ended = False
    try:
        async with asyncio.timeout(wall_s):
            said = await _all_of(copy.answer)
        has_ended = True
    except TimeoutError:
        raise Lost(f"no answer within {wall_s:g} s") from None
    finally:
        os.close(copy.answer)
        if has_ended:
            os.close(copy.watched)
            _bury(copy.pid)
        else:
            _kill(copy)
    if said[:1] == _DONE:
        return said[1:]
    raise Lost(said[1:].decode(errors="replace") or "the process died")


def _begun(work: Callable[[], bytes], wall_s: float) -> _Copy:
    """Make a copy and have it work.

    Raises:
        Lost: There is none: the machine, or this process, may have no more of them, or of descriptors.
    """
    we = os.getpid()
    try:
        mine, its = os.pipe()
    except OSError as error:
        raise Lost(f"no pipe could be made: {error.strerror}") from error
    try:
        pid = os.fork()
    except OSError as error:
        os.close(mine)
        os.close(its)
        raise Lost(f"no process could be made: {error.strerror}") from error
    if pid == 0:
        _do(work, its, wall_s, we)
    os.close(its)
    try:
        return _Copy(pid=pid, answer=mine, watched=os.pidfd_open(pid))
    except OSError as error:
        os.close(mine)
        os.kill(pid, signal.SIGKILL)
        _bury(pid)  # it has hardly begun, and nothing would tell when it ends
        raise Lost(f"the process could not be watched: {error.strerror}") from error


def _do(work: Callable[[], bytes], to: int, wall_s: float, parent: int) -> NoReturn:
    """Work in the copy. It never returns into the event loop, which is another process's."""
    try:
        try:
            _settle_in(to, wall_s, parent)
            said = _DONE + work()
        except Exception as error:
            said = _FAILED + f"{type(error).__name__}: {error}".encode()
        while said:
            said = said[os.write(to, said) :]
    finally:
        os._exit(0)


def _settle_in(to: int, wall_s: float, parent: int) -> None:
    """Bound what the copy takes: time, memory, and the life of its parent.

    Raises:
        OSError: The system refuses one of them, or the parent has gone.
    """
    for number in _OWN_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.alarm(math.ceil(wall_s))
    # Comes with the end of the thread that made the copy: the event loop's.
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "the end of the parent cannot be seen")
    if os.getppid() != parent:  # it had gone before it was asked for
        raise ProcessLookupError("the parent has gone")
    _close_all_but(to)
    gc.disable()  # a collection would touch, and so copy, every page
    os.nice(_NICE)
    has_bytes = int(Path("/proc/self/statm").read_text().split()[_DATA_PAGES]) * resource.getpagesize()
    _limit_data(has_bytes + _MORE_BYTES)


def _limit_data(most_bytes: int) -> None:
    """Have an allocation fail, which ends the work alone, where it would go beyond this; a lower limit stays."""
    now, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [most_bytes, *(limit for limit in (now, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))


def _close_all_but(kept: int) -> None:
    """Close what the parent has open: a connection that it closes must not stay open here."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > _STDERR and int(name) != kept:
            with contextlib.suppress(OSError):  # the one that listed them is gone already
                os.close(int(name))


async def _all_of(source: int) -> bytes:
    """Return all that is written to a pipe until its other end is closed."""
    loop = asyncio.get_running_loop()
    os.set_blocking(source, False)
    found, is_over = bytearray(), loop.create_future()

    def read() -> None:
        more = os.read(source, _CHUNK_BYTES)
        found.extend(more)
        if not more and not is_over.done():
            is_over.set_result(None)

    loop.add_reader(source, read)
    try:
        await is_over
    finally:
        loop.remove_reader(source)
    return bytes(found)


def _bury(pid: int) -> None:
    """Take note of the end of a copy that has closed its pipe: by then it is torn down, and nobody waits."""
    os.waitpid(pid, 0)


def _kill(copy: _Copy) -> None:
    """Kill the copy, and take note of its end once it comes: to tear it down takes a while."""
    loop = asyncio.get_running_loop()
    os.kill(copy.pid, signal.SIGKILL)

    def reap() -> None:
        loop.remove_reader(copy.watched)
        os.close(copy.watched)
        _bury(copy.pid)

    loop.add_reader(copy.watched, reap)
