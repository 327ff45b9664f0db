"""The scaler's controller at a thousand autoscalers, on a real API server with fake pods: how old its decisions are.

    python -m bench.scaler_loop                       # 1,000 autoscalers, five minutes
    python -m bench.scaler_loop --quick               # 50 autoscalers, half a minute: does it work?

The controller runs as it does in a cluster (own account, leadership, every watch and write), pinned to one core. An
exporter in a process of its own tells one second of every backend each second, one server for each pod that exists, and
load that swings, so that the scaler really moves counts and learns. Age of a decision: from the end of the second
that it was taken on, as the exporter says, to the decision; read from the controller's own histogram, warm-up left out.
API server, etcd, controller manager and kwok share the machine; controller and exporter come first on it where that may
be said, because they would not share one in a cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from aiohttp import web

from berthmaster.local import fake_nodes
from berthmaster.local.binaries import ensure
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
from berthmaster.local.progress import Lines
from fleet.clock import SystemClock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import connection
from fleet.kube.reflector import Reflector
from scaler.balancer.values import BackendSecond, ServerSecond, ServerState
from scaler.balancer.wire import SAMPLES_PATH, Journal
from scaler.controller.endpoint import Endpoint
from scaler.controller.facts import Kept
from scaler.controller.objects import ReplicaObject
from scaler.controller.world import Key
from scaler.resource import spec_of
from scaler.seen import Sample

RESULTS = Path(__file__).parent / "results" / "scaler_loop.json"
NAMESPACE = "bench"
CLUSTER = "bench-scaler-loop"
_IN_FLIGHT = 16
_POD_SLOTS = 250
_SERVICE_S = 0.5
_SWING_S = 240.0
_PRIORITY = -10
# As in manifests/base/scaler.
_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "131072"}


def main() -> int:
    given = _arguments()
    if given.exporter:
        asyncio.run(_export(given.exporter, given.autoscalers))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found = asyncio.run(_measure(given))
    RESULTS.parent.mkdir(exist_ok=True)
    if not given.quick:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    click.echo(json.dumps(found, indent=2))
    return 0 if found["decision_age_s"]["p99"] < 2.0 and found["memory"]["rss_mb"] < 300 else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--autoscalers", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--warm-up-s", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--exporter", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick:
        given.autoscalers, given.minutes, given.warm_up_s = 50, 0.5, 20.0
    return given


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    clock = SystemClock()
    hour_kb = _hour_kb()
    report = Lines(lambda text: click.echo(text, nl=False, err=True), clock)
    cluster = Cluster(CLUSTER)
    cluster.down()
    binaries = ensure(report, clock=clock)
    processes: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            cluster.up(
                Options(has_extender=False, has_planner=False, has_scaler=False, has_warmpool=False),
                binaries,
                report=report,
            )
            link = connection(str(cluster.kubeconfig))
            record = cluster.record()
            assert record is not None
            nodes = fake_nodes.uniform(
                4 + given.autoscalers * 8 // _POD_SLOTS, is_sharing=False, gpus=0, pod_slots=_POD_SLOTS
            )
            await fake_nodes.create(link, nodes, clock=clock, kubelet=record.kubernetes, tell=lambda ratio, words: None)
            async with Client(link, clock) as client:
                with report.step(f"Creating {given.autoscalers} Deployments and autoscalers", expected_s=120):
                    await _create(client, given.autoscalers)
            port_file = Path(folder) / "port"
            log = Path(folder) / "controller.log"
            arguments = [f"--exporter={port_file}:{cluster.kubeconfig}", f"--autoscalers={given.autoscalers}"]
            processes.append(_start([sys.executable, "-m", "bench.scaler_loop", *arguments], None))
            port = int(await _content(port_file, clock))
            sources = Path(folder) / "sources.yaml"
            sources.write_text(f"balancers: {{main: {{url: 'http://127.0.0.1:{port}'}}}}\n")
            listen = await _free_port()
            command = [sys.executable, "-P", "-m", "scaler", "controller", f"--sources={sources}"]
            account = cluster.layout.config / "scaler.kubeconfig"
            core = max(os.sched_getaffinity(0))
            command += [f"--kubeconfig={account}", f"--listen=127.0.0.1:{listen}"]
            controller = _start(command, log)
            processes.append(controller)
            os.sched_setaffinity(controller.pid, {core})
            # What shares the machine with it here has machines of its own in a cluster.
            with suppress(PermissionError):
                for process in processes:
                    os.setpriority(os.PRIO_PROCESS, process.pid, _PRIORITY)
            with report.step("Warming up", expected_s=given.warm_up_s):
                await clock.sleep(given.warm_up_s)
            before, cpu_s = _scrape(listen), _cpu_s(controller.pid)
            with report.step("Measuring", expected_s=given.minutes * 60):
                await clock.sleep(given.minutes * 60)
            after, used_s = _scrape(listen), _cpu_s(controller.pid) - cpu_s
            return _result(given, before, after, used_s, controller.pid, log, hour_kb)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(20)
            cluster.down()


def _start(command: list[str], log: Path | None) -> subprocess.Popen[bytes]:
    if log is None:
        return subprocess.Popen(command)
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **_ENVIRONMENT})


def _result(
    given: argparse.Namespace,
    before: Mapping[str, float],
    after: Mapping[str, float],
    cpu_s: float,
    pid: int,
    log: Path,
    hour_kb: float,
) -> dict[str, Any]:
    status, lines = Path(f"/proc/{pid}/status").read_text(), log.read_text().splitlines()
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    troubles = [line for line in lines if '"level":"warning"' in line or '"level":"error"' in line]
    seconds = given.minutes * 60
    rss_mb = _kilobytes(status, "VmRSS") / 1024
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),  # noqa: TID251 - a stamp for people
        "machine": {"python": platform.python_version(), "cores": os.cpu_count()},
        "autoscalers": given.autoscalers,
        "seconds": seconds,
        "decision_age_s": {
            "p50": _quantile(grown, 0.5),
            "p99": _quantile(grown, 0.99),
            "decisions": grown.get("berthmaster_scaler_decision_age_seconds_count", 0.0),
        },
        "decisions_per_s": round(grown.get("berthmaster_scaler_decision_age_seconds_count", 0.0) / seconds, 1),
        "round_mean_s": round(
            grown.get("berthmaster_scaler_round_seconds_sum", 0.0)
            / max(1.0, grown.get("berthmaster_scaler_round_seconds_count", 0.0)),
            3,
        ),
        "cpu_ratio_of_one_core": round(cpu_s / seconds, 2),
        "scale_writes": {
            k.partition("outcome=")[2].strip('"}'): v for k, v in grown.items() if "scale_writes_total" in k
        },
        "memory": {
            "rss_mb": round(rss_mb, 1),
            "peak_mb": round(_kilobytes(status, "VmHWM") / 1024, 1),
            "endpoint_after_an_hour_kb": round(hour_kb, 1),
        },
        "log_troubles": len(troubles),
        "log_troubles_first": troubles[:3],
    }


def _quantile(grown: Mapping[str, float], ratio: float) -> float:
    """Return a quantile of the age's histogram, by linear interpolation within its bucket."""
    prefix = 'berthmaster_scaler_decision_age_seconds_bucket{le="'
    buckets = sorted(
        (math.inf if (edge := name.removeprefix(prefix).rstrip('"}')) == "+Inf" else float(edge), count)
        for name, count in grown.items()
        if name.startswith(prefix)
    )
    wanted, low_s, below = ratio * buckets[-1][1], 0.0, 0.0
    for edge_s, count in buckets:
        if count >= wanted:
            if math.isinf(edge_s):
                return low_s
            return round(low_s + (edge_s - low_s) * (wanted - below) / max(1e-9, count - below), 3)
        low_s, below = edge_s, count
    return low_s


def _hour_kb() -> float:
    """Return what one endpoint holds after an hour of samples and decisions, in KB of resident memory."""
    rng = random.Random(1)
    spec = spec_of(_autoscaler("e0")["spec"])
    size_kb = _resident_kb()
    endpoints = [Endpoint(Key(namespace="n", name=f"e{n}"), spec, Kept(), 0.0, 1.8e9) for n in range(40)]
    for second in range(3600):
        for endpoint in endpoints:
            rate = float(rng.randint(60, 100))
            endpoint.take(
                Sample(at_s=second + 0.5, arrivals=rate, completions=rate, in_flight=rate / 2, queued=0.0, errors=0.0)
            )
            if endpoint.is_due(second + 0.5):
                endpoint.decide(second + 0.5)
            endpoint.learn_if_due(second + 0.5)
    return (_resident_kb() - size_kb) / len(endpoints)


def _resident_kb() -> float:
    return _kilobytes(Path("/proc/self/status").read_text(), "VmRSS")


async def _create(client: Client, count: int) -> None:
    await client.create("/api/v1/namespaces", msgspec.json.encode({"metadata": {"name": NAMESPACE}}))
    gate = asyncio.Semaphore(_IN_FLIGHT)

    async def one(number: int) -> None:
        name = f"e{number}"
        async with gate:
            deployments = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
            await client.create(deployments, msgspec.json.encode(_deployment(name)), timeout_s=60)
            await client.create(paths.autoscalers(NAMESPACE), msgspec.json.encode(_autoscaler(name)), timeout_s=60)

    await asyncio.gather(*(one(number) for number in range(count)))


def _deployment(name: str) -> dict[str, Any]:
    tags = {"app": name}
    pod = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": tags},
            "template": {
                "metadata": {"labels": tags},
                "spec": pod | {"containers": [{"name": "main", "image": "none"}]},
            },
        },
    }


def _autoscaler(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "berthmaster.dev/v1alpha1",
        "kind": "ConcurrencyAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "targetRef": {"kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 8,
            "targetConcurrency": {"initial": 10},
            "signals": {"balancer": {"name": "main", "backend": name}},
        },
    }


@dataclass(slots=True)
class _Pods:
    """Names of the Ready pods of each application."""

    by_app: dict[str, dict[str, str]] = field(default_factory=dict)

    def upsert(self, obj: ReplicaObject) -> None:
        app = (obj.metadata.labels or {}).get("app", "")
        is_ready = any(
            one.type == "Ready" and one.status == "True" for one in (obj.status and obj.status.conditions) or ()
        )
        if is_ready and not obj.metadata.deletion_timestamp:
            self.by_app.setdefault(app, {})[obj.metadata.uid] = obj.metadata.name
        else:
            self.by_app.get(app, {}).pop(obj.metadata.uid, None)

    def delete(self, obj: ReplicaObject) -> None:
        for pods in self.by_app.values():
            pods.pop(obj.metadata.uid, None)

    def synced(self) -> None:
        """Nothing to do."""


async def _export(where: str, count: int) -> None:
    """Tell one second of every backend each second until ended; write the port to a file first."""
    port_file, _, kubeconfig = where.partition(":")
    clock, pods, journal, rng = SystemClock(), _Pods(), Journal("bench"), random.Random(7)

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=journal.answer(int(request.query.get("since", "0")), clock.monotonic_s()))

    app = web.Application()
    app.router.add_get(SAMPLES_PATH, answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    Path(port_file).write_text(str(runner.addresses[0][1]))  # noqa: ASYNC240 - before anything runs
    async with Client(connection(kubeconfig), clock) as client:
        watch = asyncio.create_task(
            Reflector(client, clock, paths.pods(NAMESPACE), ReplicaObject, pods, keeps_last=False).run()
        )
        begun_s, number = clock.monotonic_s(), 0
        with suppress(asyncio.CancelledError):
            while not watch.done():
                number += 1
                now_s = clock.monotonic_s()
                journal.add(number, now_s, [_second(f"e{n}", n, now_s - begun_s, pods, rng) for n in range(count)])
                await clock.sleep(begun_s + number - clock.monotonic_s())


def _second(name: str, number: int, at_s: float, pods: _Pods, rng: random.Random) -> BackendSecond:
    mean = 30.0 + 25.0 * math.sin(2 * math.pi * (at_s / _SWING_S + number / 97))
    rate = max(0.0, rng.gauss(mean, math.sqrt(mean)))
    servers = list(pods.by_app.get(name, {}).values())
    share = rate * _SERVICE_S / max(1, len(servers))
    latency_s = _SERVICE_S * (1 + share / 40)
    return BackendSecond(
        name=name,
        at_s=0.0,
        arrivals=rate,
        completions=rate if servers else 0.0,
        in_flight=rate * _SERVICE_S if servers else 0.0,
        queued=0.0 if servers else rate,
        errors=0.0,
        servers=tuple(
            ServerSecond(
                name=server,
                address="",
                state=ServerState.SERVING,
                in_flight=share,
                completions=rate / len(servers),
                errors=0.0,
                latency_mean_s=latency_s,
                latency_p95_s=2 * latency_s,
            )
            for server in servers
        ),
    )


async def _content(path: Path, clock: SystemClock) -> str:
    for _ in range(300):
        text = _text(path)
        if text:
            return text
        await clock.sleep(0.1)
    raise RuntimeError(f"{path} was not written")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def _free_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return port


def _scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line and line[0] != "#"}


def _cpu_s(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _kilobytes(status: str, name: str) -> float:
    return float(next(line for line in status.splitlines() if line.startswith(f"{name}:")).split()[1])


if __name__ == "__main__":
    sys.exit(main())
