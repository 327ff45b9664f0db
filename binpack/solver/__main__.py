"""The solver process: reads requests from its standard input, solves one at a time, ends with its parent.

A thread of its own reads, so that the end of the pipe (the parent is gone, however it went) ends this process at once,
even in the middle of a solve.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from typing import BinaryIO

from binpack.solver import wire


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal group; the parent decides
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints must not look like a reply
    requests: queue.SimpleQueue[wire.Request] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()

    from binpack.solver.solve import solve  # loading OR-Tools takes most of a second: the reader must be up before

    replies.write(wire.READY)
    while True:
        request = requests.get()
        try:
            reply = wire.Reply(answer=solve(request.question, request.budget))
        except Exception as error:  # the parent plans on without us and counts it
            reply = wire.Reply(error=f"{type(error).__name__}: {error}")
        replies.write(wire.framed(reply))


def _read(source: BinaryIO, requests: queue.SimpleQueue[wire.Request]) -> None:
    try:
        while len(header := source.read(wire.HEADER_BYTES)) == wire.HEADER_BYTES:
            requests.put(wire.request(source.read(wire.body_bytes(header))))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
