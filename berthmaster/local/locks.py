"""A lock between processes that leaves no file behind when it is told to."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fleet.clock import SystemClock

_POLL_S = 0.1


@contextmanager
def hold(path: Path, clock: SystemClock, *, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock, and remove its file at the end.

    The kernel frees the lock of a process that dies; a file it left is taken over by the next holder.

    Args:
        path: The lock's file; its folder is made.
        clock: To wait on.
        waiting: Called once if somebody else holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    has_told = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if not has_told:
                waiting()
                has_told = True
            clock.sleep_blocking(_POLL_S)
            continue
        if _is_at(descriptor, path):
            break
        os.close(descriptor)  # the holder before removed this file: others now meet at a new one
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
