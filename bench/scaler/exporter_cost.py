"""What the exporter costs beside a balancer with many replicas: CPU of both processes, size and age of a sample.

Run: `python -m bench.scaler.exporter_cost --servers 200 --seconds 20`.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec

from berthmaster.local.ports import choose
from berthmaster.traffic.haproxy import BackendPlan, HaproxyProcess
from fleet.clock import SystemClock
from fleet.http import Http
from scaler.balancer.wire import samples_from

CLOCK = SystemClock()
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _memory_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


async def measure(servers: int, seconds: float) -> dict[str, float]:
    """Return the figures of one run: nothing but the exporter and a reader once a second touches the balancer."""
    with tempfile.TemporaryDirectory() as directory:
        port = choose(["haproxy"], promised=())["haproxy"]
        async with HaproxyProcess(Path(directory), port, [BackendPlan(name="model", slots=servers)]) as haproxy:
            commands = []
            for number in range(1, servers + 1):
                where = f"model/slot{number}"
                commands += [f"set server {where} addr 127.0.0.2 port {number}", f"set server {where} state ready"]
            await haproxy.runtime.tell(commands)
            exporter = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "scaler", "exporter", "--socket", str(haproxy.runtime_path)),
                *("--listen", "127.0.0.1:0", "--no-limits"),
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                assert exporter.stderr is not None
                url = f"http://127.0.0.1:{msgspec.json.decode(await exporter.stderr.readline())['port']}/v1/samples"
                return await _read(url, exporter.pid, haproxy.pid or 0, seconds)
            finally:
                exporter.terminate()
                await exporter.wait()


async def _read(url: str, exporter: int, haproxy: int, seconds: float) -> dict[str, float]:
    await CLOCK.sleep(3.0)
    begun_s, cpu = time.perf_counter(), (_cpu_s(exporter), _cpu_s(haproxy))
    since, size, ages_s, got = 0, 0, [], 0
    async with Http() as http:
        while time.perf_counter() - begun_s < seconds:
            body = await http.get(url, params={"since": str(since)}, timeout_s=2.0)
            answer = samples_from(body)
            if since and answer.seconds:
                size = max(size, len(body) // len(answer.seconds))
                ages_s += [second.age_s for second in answer.seconds]
                got += len(answer.seconds)
            since = answer.next
            await CLOCK.sleep(1.0)
    took_s = time.perf_counter() - begun_s
    return {
        "exporter_cpu_ratio": round((_cpu_s(exporter) - cpu[0]) / took_s, 4),
        "haproxy_cpu_ratio": round((_cpu_s(haproxy) - cpu[1]) / took_s, 4),
        "exporter_memory_mib": round(_memory_mib(exporter), 1),
        "bytes_per_second": size,
        "median_age_s": round(statistics.median(ages_s), 3),
        "seconds_seen": got,
        "seconds_run": round(took_s, 1),
    }


@click.command()
@click.option("--servers", default=200, show_default=True)
@click.option("--seconds", default=20.0, show_default=True)
def main(servers: int, seconds: float) -> None:
    """Measure and print as JSON."""
    click.echo(json.dumps({"servers": servers, **asyncio.run(measure(servers, seconds))}, indent=2))


if __name__ == "__main__":
    main()
