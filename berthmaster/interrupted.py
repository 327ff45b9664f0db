"""Ctrl-C before anything is begun: it ends the process without a word. Imports nothing that takes time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

_STATUS: Final = 128 + signal.SIGINT


@contextmanager
def leaving_quietly() -> Iterator[None]:
    """End the process at once, with status 130, where Ctrl-C comes inside the block: nothing of it needs an end.

    No exception: one that is raised while a module is imported comes out as another error, or as a traceback. Outside
    the main thread, and where the signal is ignored or has another handler, nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(_STATUS)
