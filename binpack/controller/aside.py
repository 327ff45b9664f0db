"""Long pure work done aside: by a forked copy of this process, which sees everything as it is at that moment.

The copy shares the pages of this process until either writes to them, so nothing is packed, sent or built anew, and the
event loop stops only for the fork itself. It has no connection of ours, answers once, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

_NICE: Final = 5  # whoever has pins to write goes first
_CHUNK_BYTES: Final = 1 << 16
_STDERR: Final = 2
_DONE, _FAILED = b"\x01", b"\x00"
_OWN_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM)

Aside = Callable[[Callable[[], bytes], float], Awaitable[bytes]]


class Lost(Exception):
    """The work brought no answer: it failed, died, took too long or could not be begun."""


async def aside(work: Callable[[], bytes], wall_s: float) -> bytes:
    """Return what the work returns; the event loop runs on meanwhile, and nothing that the work changes is seen here.

    Args:
        work: Reads what it likes and talks to nobody; it runs on one thread.
        wall_s: After this the copy is killed; it also ends itself, should this process have gone.

    Raises:
        Lost: There is no answer.
    """
    mine, its = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:
        os.close(mine)
        os.close(its)
        raise Lost(f"no process could be made: {error.strerror}") from error
    if pid == 0:
        _do(work, its, wall_s)
    os.close(its)
    try:
        async with asyncio.timeout(wall_s):
            said = await _all_of(mine)
        _bury(pid)
    except TimeoutError:
        _kill(pid)
        raise Lost(f"no answer within {wall_s:g} s") from None
    except asyncio.CancelledError:
        _kill(pid)
        raise
    finally:
        os.close(mine)
    if said[:1] == _DONE:
        return said[1:]
    raise Lost(said[1:].decode(errors="replace") or "the process died")


def _do(work: Callable[[], bytes], to: int, wall_s: float) -> NoReturn:
    """Work in the copy. It never returns into the event loop, which is another process's."""
    try:
        for number in _OWN_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.alarm(math.ceil(wall_s))
        _close_all_but(to)
        gc.disable()  # a collection would touch, and so copy, every page
        os.nice(_NICE)
        try:
            said = _DONE + work()
        except Exception as error:
            said = _FAILED + f"{type(error).__name__}: {error}".encode()
        while said:
            said = said[os.write(to, said) :]
    finally:
        os._exit(0)


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


def _kill(pid: int) -> None:
    """Kill the copy, and take note of its end once it comes: to tear it down takes a while."""
    loop = asyncio.get_running_loop()
    os.kill(pid, signal.SIGKILL)
    watched = os.pidfd_open(pid)

    def reap() -> None:
        loop.remove_reader(watched)
        os.close(watched)
        _bury(pid)

    loop.add_reader(watched, reap)
