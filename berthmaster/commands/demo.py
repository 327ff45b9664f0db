"""`berthmaster demo`."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.live import Live

from berthmaster.commands.up import populate
from berthmaster.demo.board import Standings
from berthmaster.demo.replay import Replay, Show, replay
from berthmaster.demo.report import Closing, closing_table, document, line, progress
from berthmaster.demo.scrape import fetch, histogram_quantile
from berthmaster.local.binaries import ensure
from berthmaster.local.cluster import Cluster, Health
from berthmaster.local.components import Options
from berthmaster.local.progress import report_for
from berthmaster.options import run
from berthmaster.view import watched
from binpack.fragmentation import fragmented_milli_gpu
from binpack.index.mix import default_mix
from binpack.trace import load_nodes, load_pods, traces
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError
from fleet.kube.client import Client
from fleet.kube.credentials import Connection, connection
from fleet.pod import Pod

_LINE_EVERY_S = 5.0
_FILTER_SECONDS = "berthmaster_extender_seconds"


@click.command()
@click.option("--name", default="demo", show_default=True, help="Name of the local cluster that the demo makes.")
@click.option("--trace", default="default", show_default=True, type=click.Choice(traces()), help="Trace to replay.")
@click.option("--pods", type=click.IntRange(1), help="Only that many pods, for a shorter show.")
@click.option("--seed", default=42, show_default=True, help="Of the order in which the pods arrive.")
@click.option("--keep", is_flag=True, help="Leave the cluster up at the end.")
@click.option("--svg", type=click.Path(dir_okay=False, writable=True), help="Also save the closing table as a picture.")
@click.option("--json", "as_json", is_flag=True, help="Print the closing table as JSON.")
def command(name: str, trace: str, pods: int | None, seed: int, keep: bool, svg: str | None, as_json: bool) -> None:
    """Place the pods of a real GPU cluster by Berthmaster on a real kube-scheduler, on this machine.

    1,213 nodes with 6,212 GPUs and 8,152 pods of the openb trace, on etcd, kube-apiserver, kube-scheduler and kwok. The
    first run builds those binaries. Ctrl-C ends everything that was started.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    clock = SystemClock()
    report = report_for(Console(stderr=True), clock)
    arrivals = _arrivals(trace, seed, pods)
    local = Cluster(name, clock=clock)
    if local.record() is not None:
        raise LocalClusterError(f"a cluster {name} exists already: berthmaster down --name {name}, or give --name")
    binaries = ensure(report, clock=clock)
    try:
        local.up(Options(), binaries, report=report)
        populate(local, load_nodes(), binaries.kubernetes, report, clock)
        access = connection(str(local.kubeconfig), clock=clock)
        with _showing(len(arrivals)) as show:
            done = run(_replay(access, clock, arrivals, show))
        closing = _close(local, access, clock, trace, done)
        dead = [status.name for status in local.status() if status.health is not Health.RUNNING]
    finally:
        if not keep:
            local.down(report=report)
    _tell(closing, as_json=as_json, svg=svg)
    if keep:
        click.echo(f"export KUBECONFIG={local.kubeconfig}")
    if dead or done.truth.faults:
        raise LocalClusterError(f"the demo failed: {len(done.truth.faults)} faults, dead processes: {dead or 'none'}")


def _arrivals(trace: str, seed: int, most: int | None) -> list[Pod]:
    pods = sorted(load_pods(trace), key=lambda pod: pod.name)
    random.Random(seed).shuffle(pods)
    return pods[:most]


async def _replay(access: Connection, clock: SystemClock, pods: list[Pod], show: Show) -> Replay:
    async with Client(access, clock, user_agent="berthmaster-demo") as client:
        return await replay(client, clock, pods, show)


def _close(local: Cluster, access: Connection, clock: SystemClock, trace: str, done: Replay) -> Closing:
    p50, p99 = histogram_quantile(
        fetch(f"{local.url('extender')}/metrics"), _FILTER_SECONDS, {"verb": "filter"}, (0.5, 0.99)
    )
    fragmented = run(_fragmented(access, clock)) / max(1, done.truth.gpu_capacity_milli)
    return Closing(trace=trace, replay=done, fragmented_ratio=fragmented, filter_s=(p50, p99))


async def _fragmented(access: Connection, clock: SystemClock) -> float:
    async with watched(access, clock) as view:
        return fragmented_milli_gpu(view.states.values(), default_mix())


@contextmanager
def _showing(total: int) -> Iterator[Show]:
    console = Console(stderr=True)
    if console.is_terminal:
        with Live(console=console, transient=True) as live:
            yield lambda standings, elapsed_s: live.update(progress(standings, total, elapsed_s))
        return
    said_s = 0.0

    def say(standings: Standings, elapsed_s: float) -> None:
        nonlocal said_s
        if elapsed_s - said_s >= _LINE_EVERY_S:
            said_s = elapsed_s
            click.echo(line(standings, total, elapsed_s), err=True)

    yield say


def _tell(closing: Closing, *, as_json: bool, svg: str | None) -> None:
    if as_json:
        click.echo(json.dumps(document(closing), indent=2))
    console = Console(record=svg is not None, stderr=as_json, width=110 if svg else None)
    if not as_json or svg:
        console.print(closing_table(closing))
    if svg:
        console.save_svg(svg, title="make demo")
