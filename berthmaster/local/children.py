"""Child processes that must not outlive the block they were started for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from fleet.clock import SystemClock

_POLL_S = 0.1


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a process and all of its session when the block is left early, by Ctrl-C for one; wait for it in any case.

    Args:
        process: Started with start_new_session=True, so that what it started can be ended with it.
    """
    try:
        yield
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(
    process: subprocess.Popen[bytes], clock: SystemClock, *, most_s: float, each: Callable[[], None] = lambda: None
) -> None:
    """Wait until a process ends, at most so long; `each` is called again and again meanwhile."""
    deadline_s = clock.monotonic_s() + most_s
    while process.poll() is None and clock.monotonic_s() < deadline_s:
        each()
        clock.sleep_blocking(_POLL_S)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit inside the block, so that it cleans up as it does after Ctrl-C.

    Outside the main thread, where Python allows no handlers, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
