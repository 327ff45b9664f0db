"""What it costs a process to hold 20,000 pods and 5,000 nodes: our list/watch beside the official client.

Three processes on one machine: a server that sends prepared responses, then one client after the other, each in a fresh
process that measures itself (getrusage, resident memory), imports and credentials apart ("start"). Ours ends with
`Pod` and `Node` values, as the planner keeps them; the official client with its own objects. Both then take the same
watch events.

    python -m bench.kube_client --out bench/results/kube_client.json
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import platform
import resource
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

TARGETS = {"client_cpu_s": 1.5, "added_mb": 150.0, "event_us": 50.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", nargs="?", default="compare", choices=("compare", "serve", "ours", "official"))
    parser.add_argument("--url", help="of the server, for a client")
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5, help="of our client; the official one runs once")
    parser.add_argument("--out", type=Path, help="file to write the result to")
    given = parser.parse_args()
    if given.role == "serve":
        asyncio.run(serve(given))
    elif given.role == "ours":
        import uvloop

        print(json.dumps(uvloop.run(measure_ours(given))))
    elif given.role == "official":
        print(json.dumps(measure_official(given)))
    else:
        compare(given)


def compare(given: argparse.Namespace) -> None:
    sizes = ["--pods", str(given.pods), "--nodes", str(given.nodes), "--events", str(given.events)]
    command = [sys.executable, "-m", "bench.kube_client"]
    with subprocess.Popen(
        [*command, "serve", *sizes, "--seed", str(given.seed)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            served = json.loads(server.stdout.readline())
            client = [*sizes, "--url", served.pop("url")]
            runs = [_child([*command, "ours", *client]) for _ in range(given.runs)]
            official = _child([*command, "official", *client])
        finally:
            server.terminate()
    ours = {name: median(run[name] for run in runs) for name in runs[0]}
    report = {
        "what": "list and first watch events of all pods and nodes: CPU and memory of the client process",
        "command": "python -m bench.kube_client --out bench/results/kube_client.json",
        "machine": {"python": platform.python_version(), "cores_shared": True},
        "versions": {name: version(name) for name in ("aiohttp", "msgspec", "uvloop", "kubernetes")},
        "input": {"pods": given.pods, "nodes": given.nodes, "events": given.events, "seed": given.seed, **served},
        "targets": TARGETS,
        "ours_median": {name: round(value, 2) for name, value in ours.items()},
        "ours_runs": runs,
        "official": official,
        "official_over_ours": {name: round(official[name] / ours[name], 1) for name in TARGETS},
        "is_met": {name: ours[name] < limit for name, limit in TARGETS.items()},
    }
    print(json.dumps(report, indent=2))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(report, indent=2) + "\n")


def _child(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


async def serve(given: argparse.Namespace) -> None:
    """Send the same bytes to every client: gzip where it is accepted, as an API server does for large answers."""
    from aiohttp import web

    from bench.kube_objects import encoded, nodes, pods

    lists = {
        "pods": encoded(pods(given.pods, given.nodes, given.seed), "Pod"),
        "nodes": encoded(nodes(given.nodes, given.seed), "Node"),
    }
    packed = {name: zlib.compress(body, 1, wbits=31) for name, body in lists.items()}
    news = json.loads(encoded(pods(min(given.events, given.pods), given.nodes, given.seed), "Pod"))["items"]
    lines = b"".join(
        json.dumps({"type": "MODIFIED", "object": {"kind": "Pod", "apiVersion": "v1"} | item}).encode() + b"\n"
        for item in news
    )

    async def collection(request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if request.query.get("watch"):
            answer = web.StreamResponse(headers={"Content-Type": "application/json"})
            await answer.prepare(request)
            if name == "pods":
                await answer.write(lines)
            await asyncio.Event().wait()
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
            return web.Response(body=packed[name], headers=headers)
        return web.Response(body=lists[name], content_type="application/json")

    app = web.Application()
    app.router.add_get("/api/v1/{name}", collection)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    sizes = {f"{name}_mb": round(len(body) / 1e6, 1) for name, body in lists.items()}
    print(json.dumps({"url": f"http://127.0.0.1:{port}", **sizes}), flush=True)
    await asyncio.Event().wait()


class Meter:
    """CPU seconds and resident megabytes of this process since it was made."""

    def __init__(self) -> None:
        gc.collect()
        self._cpu_s = _cpu_s()
        self._mb = _resident_mb()

    def cpu_s(self) -> float:
        """Return user and system time used."""
        return _cpu_s() - self._cpu_s

    def added_mb(self) -> float:
        """Return how much more memory is resident now."""
        return _resident_mb() - self._mb

    def peak_mb(self) -> float:
        """Return how much more memory was ever resident."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - self._mb


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@contextmanager
def _kubeconfig(url: str) -> Iterator[str]:
    import tempfile

    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "users": [{"name": "bench", "user": {"token": "none"}}],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        yield file.name


async def measure_ours(given: argparse.Namespace) -> dict[str, float]:
    start = Meter()
    from fleet.clock import SystemClock
    from fleet.kube.client import Client
    from fleet.kube.credentials import connection
    from fleet.kube.decode import node_from, pod_from
    from fleet.kube.objects import NodeObject, PodObject
    from fleet.kube.reflector import Reflector

    class Values:
        """Keeps one value per object, and says when the list and when the events are through."""

        def __init__(self, value_of: Any, events: int) -> None:
            self.values: dict[str, Any] = {}
            self.is_synced = asyncio.Event()
            self.are_told = asyncio.Event()
            self._value_of = value_of
            self._left = events

        def upsert(self, obj: Any) -> None:
            self.values[obj.metadata.uid] = self._value_of(obj)
            if self.is_synced.is_set():
                self._left -= 1
                if self._left == 0:
                    self.are_told.set()

        def delete(self, obj: Any) -> None:
            del self.values[obj.metadata.uid]

        def synced(self) -> None:
            found["client_cpu_s"] = meter.cpu_s()
            self.is_synced.set()

    found: dict[str, float] = {}
    clock = SystemClock()
    with _kubeconfig(given.url) as path:
        access = connection(path)
    found["start_cpu_s"], found["start_mb"] = start.cpu_s(), start.added_mb()
    async with Client(access, clock) as client, asyncio.TaskGroup() as group:
        meter = Meter()
        nodes = Values(lambda obj: node_from(obj, ()), 0)
        pods = Values(pod_from, given.events)
        watches = [Reflector(client, clock, "/api/v1/nodes", NodeObject, nodes, keeps_last=False)]
        watches.append(Reflector(client, clock, "/api/v1/pods", PodObject, pods, keeps_last=False))
        tasks = []
        for watch, sink in zip(watches, (nodes, pods), strict=True):
            tasks.append(group.create_task(watch.run()))
            await sink.is_synced.wait()
        await pods.are_told.wait()
        found["event_us"] = (meter.cpu_s() - found["client_cpu_s"]) / given.events * 1e6
        found["peak_mb"] = meter.peak_mb()
        gc.collect()
        found["added_mb"] = meter.added_mb()
        assert (len(pods.values), len(nodes.values)) == (given.pods, given.nodes)
        for task in tasks:
            task.cancel()
    return found


def measure_official(given: argparse.Namespace) -> dict[str, float]:
    start = Meter()
    from kubernetes import client, config, watch

    found: dict[str, float] = {}
    with _kubeconfig(given.url) as path:
        config.load_kube_config(path)
    api = client.CoreV1Api()
    found["start_cpu_s"], found["start_mb"] = start.cpu_s(), start.added_mb()
    meter = Meter()
    nodes = api.list_node(resource_version="0").items
    pods = api.list_pod_for_all_namespaces(resource_version="0").items
    found["client_cpu_s"] = meter.cpu_s()
    found["peak_mb"] = meter.peak_mb()
    gc.collect()
    found["added_mb"] = meter.added_mb()
    assert (len(pods), len(nodes)) == (given.pods, given.nodes)
    started_s = meter.cpu_s()
    events = watch.Watch().stream(api.list_pod_for_all_namespaces, resource_version="1000000")
    for _ in islice(events, given.events):
        pass
    found["event_us"] = (meter.cpu_s() - started_s) / given.events * 1e6
    return found


if __name__ == "__main__":
    main()
