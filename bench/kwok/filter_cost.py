"""Filter for a pinned pod: inside the handler, and on the wire beside a handler that does nothing."""

from __future__ import annotations

import socket
import sys
import time
from statistics import median
from typing import Any

import msgspec

from bench.kwok import load
from bench.kwok.ground import Ground, Side
from bench.kwok.speed import FILTER_SECONDS
from berthmaster.demo.board import quantile
from berthmaster.demo.scrape import fetch, histogram_quantile
from berthmaster.local.components import EXTENDER
from berthmaster.local.progress import Report
from berthmaster.options import run
from fleet.clock import SystemClock
from fleet.errors import BerthmasterError
from fleet.kube import paths
from fleet.kube.client import Client

HANDLER_MS = 0.5
WALL_RATIO = 1.5
_NULL = "null-extender"
_WARM_UP = 200
_PINNED_WITHIN_S = 30.0


def compare(ground: Ground, clock: SystemClock, report: Report, *, calls: int) -> dict[str, Any]:
    """Return handler quantiles of these calls, and the median ratio of wall times, one call to each in turn."""
    with report.step(f"{ground.nodes} nodes, Filter of a pinned pod, {calls} calls to each of two handlers"):
        ground.silence()
        ground.start_ours()
        body, node = run(_pinned(ground, clock))
        answer = _ask_once(_port(ground.cluster.url(EXTENDER)), body)
        if msgspec.json.decode(answer).get("NodeNames") != [node]:
            raise BerthmasterError(f"Filter did not agree to the pin: {answer.decode(errors='replace')[:300]}")
        argv = (sys.executable, "-m", "bench.kwok.null_extender", f"--answer={answer.decode()}")
        null_port = ground.serve(_NULL, argv, "/healthz")
        ours_s, null_s = _alternate(_port(ground.cluster.url(EXTENDER)), null_port, body, calls)
        text = fetch(f"{ground.cluster.url(EXTENDER)}/metrics")
        ground.end(_NULL)
        ground.silence()
        run(_clear(ground, clock))
    p50, p99 = histogram_quantile(text, FILTER_SECONDS, {"verb": "filter"}, (0.5, 0.99))
    ratio = median(ours / null for ours, null in zip(ours_s, null_s, strict=True))
    return {
        "nodes": ground.nodes,
        "calls": calls,
        "body_bytes": len(body),
        "handler_ms": {"p50": _ms(p50 or 0.0), "p99": _ms(p99 or 0.0)},
        "target_handler_ms": HANDLER_MS,
        "handler_is_reached": 1000 * (p99 or 0.0) < HANDLER_MS,
        "wall_ms": {"extender": _spread(ours_s), "null": _spread(null_s)},
        "wall_ratio": {"median": round(ratio, 3), "of_medians": round(median(ours_s) / median(null_s), 3)},
        "target_wall_ratio": WALL_RATIO,
        "wall_is_reached": ratio <= WALL_RATIO,
    }


async def _pinned(ground: Ground, clock: SystemClock) -> tuple[bytes, str]:
    """Let the planner pin a pod that nobody binds; return Filter's body as kube-scheduler would send it, and the node.

    kube-scheduler keeps pods without managedFields, and sends the one node that its own filters left.
    """
    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        uid = await load.prepare(client, Side.OURS.namespace, is_managed=True)
        pod = load.pod_object("pinned", Side.OURS.namespace, uid)
        await load.create(client, [pod])
        deadline_s = clock.monotonic_s() + _PINNED_WITHIN_S
        while True:
            found = msgspec.json.decode(await client.get(paths.pod(Side.OURS.namespace, "pinned")))
            if not found["spec"].get("schedulingGates"):
                break
            if clock.monotonic_s() > deadline_s:
                raise BerthmasterError(f"the planner has not pinned a pod within {_PINNED_WITHIN_S:.0f} s")
            await clock.sleep(0.1)
    found["metadata"].pop("managedFields", None)
    terms = found["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    node: str = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    return msgspec.json.encode({"Pod": found, "Nodes": None, "NodeNames": [node]}), node


async def _clear(ground: Ground, clock: SystemClock) -> None:
    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        await load.clear(client, clock, Side.OURS.namespace)


def _alternate(ours: int, null: int, body: bytes, calls: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each call, one call to either in turn, on one kept connection to each."""
    with _connect(ours) as to_ours, _connect(null) as to_null:
        request = _request(body)
        for _ in range(_WARM_UP):
            _call(to_ours, request)
            _call(to_null, request)
        pairs = [(_timed(to_ours, request), _timed(to_null, request)) for _ in range(calls)]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _timed(connection: socket.socket, request: bytes) -> float:
    started_s = time.perf_counter()
    _call(connection, request)
    return time.perf_counter() - started_s


def _ask_once(port: int, body: bytes) -> bytes:
    with _connect(port) as connection:
        return _call(connection, _request(body))


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10.0)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _request(body: bytes) -> bytes:
    head = f"POST /filter HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def _call(connection: socket.socket, request: bytes) -> bytes:
    """Send a request and return the body of its answer: no library in between, whose time would hide the handlers'."""
    connection.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise BerthmasterError(f"the handler answered {head[:100]!r}")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += _received(connection)
    return body


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise BerthmasterError("the handler closed the connection")
    return data


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _spread(seconds: list[float]) -> dict[str, float]:
    ordered = tuple(sorted(seconds))
    return {"p50": _ms(quantile(ordered, 0.5) or 0.0), "p99": _ms(quantile(ordered, 0.99) or 0.0)}


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 4)
