"""An extender that reads nothing and answers a constant, on the real one's server: what HTTP alone costs."""

from __future__ import annotations

import argparse
import asyncio
import sys

from prometheus_client import CollectorRegistry

from binpack.server import Listen, Reply, Server, application
from fleet.loop import run_process
from fleet.telemetry import add_probes


async def serve(port: int, answer: bytes) -> None:
    """Serve until cancelled."""

    async def null(_: bytes) -> Reply:
        return Reply(body=answer)

    app = application({"/filter": null})
    add_probes(app, CollectorRegistry(), lambda: "")
    async with Server(app, Listen(host="127.0.0.1", port=port)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answer", required=True, help="the body to answer with")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    sys.exit(run_process(lambda: serve(given.port, given.answer.encode())))
