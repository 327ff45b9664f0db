"""An extender that reads nothing and answers a constant, on the real one's server: what HTTP alone costs."""

from __future__ import annotations

import argparse
import asyncio
import sys

from binpack.server import TEXT, Listen, Reply, Server, application
from fleet.loop import run_process


async def serve(port: int, answer: bytes) -> None:
    """Serve until cancelled."""

    async def null(_: bytes) -> Reply:
        return Reply(body=answer)

    def healthz() -> Reply:
        return Reply(body=b"ok\n", content_type=TEXT)

    app = application(posts={"/filter": null}, gets={"/healthz": healthz})
    async with Server(app, Listen(host="127.0.0.1", port=port)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answer", required=True, help="the body to answer with")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    sys.exit(run_process(lambda: serve(given.port, given.answer.encode())))
