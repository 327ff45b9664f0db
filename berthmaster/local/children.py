"""Child processes that must not outlive the block they were started for."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator


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
