"""`berthmaster demo`."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType

from berthmaster.commands.up import populate
from berthmaster.demo import scaling, scaling_report, warming, warming_report
from berthmaster.demo.board import Standings
from berthmaster.demo.replay import Replay, Show, replay
from berthmaster.demo.report import Closing, closing_table, document, line, progress
from berthmaster.demo.scaling import Outcome, Story
from berthmaster.demo.scrape import fetch, histogram_quantile
from berthmaster.demo.showing import showing
from berthmaster.local import fake_nodes
from berthmaster.local.binaries import ensure
from berthmaster.local.cluster import Cluster, Health
from berthmaster.local.components import Options
from berthmaster.local.progress import Report, report_for
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

_FILTER_SECONDS = "berthmaster_extender_seconds"
PACKING, SCALING, WARMING = "packing", "scaling", "warming"
_ACTS = (PACKING, SCALING, WARMING)
# Whole nodes that the last act asks for at once: more than are warm.
_BURST = 5


@dataclass(slots=True)
class _Ends:
    """How the acts ended; None = not played."""

    packing: Closing | None = None
    scaling: Outcome | None = None
    warming: warming.Outcome | None = None


@click.command()
@click.option("--name", default="demo", show_default=True, help="Name of the local cluster that the demo makes.")
@click.option(
    "--act", "acts", multiple=True, type=click.Choice(_ACTS), help="Only this act; may be repeated. All by default."
)
@click.option("--trace", default="default", show_default=True, type=click.Choice(traces()), help="Trace to replay.")
@click.option("--pods", type=click.IntRange(1), help="Only that many pods, for a shorter show.")
@click.option("--seed", default=42, show_default=True, help="Of the order in which pods and requests arrive.")
@click.option("--keep", is_flag=True, help="Leave the cluster up at the end.")
@click.option(
    "--svg", type=click.Path(dir_okay=False, writable=True), help="Also save the closing tables as a picture."
)
@click.option("--json", "as_json", is_flag=True, help="Print the closing tables as JSON.")
def command(
    name: str,
    acts: tuple[str, ...],
    trace: str,
    pods: int | None,
    seed: int,
    keep: bool,
    svg: str | None,
    as_json: bool,
) -> None:
    """Show Berthmaster on a real control plane, on this machine, in three acts.

    packing: 8,152 pods of the openb trace are placed on 1,213 nodes with 6,212 GPUs, by etcd, kube-apiserver,
    kube-scheduler and kwok. scaling: real requests through HAProxy to replicas that are processes; the limit per
    replica is learnt, a tenfold step absorbed on nodes that a warm pool had ready, the endpoint falls asleep and wakes.
    warming: a burst of which some pods find a warm node and some do not.

    The first run builds the binaries. Ctrl-C ends everything that was started.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    clock = SystemClock()
    report = report_for(Console(stderr=True), clock)
    arrivals = _arrivals(trace, seed, pods)
    local = Cluster(name, clock=clock, environ=os.environ | warming.SETTINGS)
    if local.record() is not None:
        raise LocalClusterError(f"a cluster {name} exists already: berthmaster down --name {name}, or give --name")
    binaries = ensure(report, clock=clock)
    ends, played = _Ends(), acts or _ACTS
    try:
        local.up(Options(), binaries, report=report)
        access = connection(str(local.kubeconfig), clock=clock)
        if PACKING in played:
            populate(local, load_nodes(), binaries.kubernetes, report, clock)
            ends.packing = _pack(local, access, clock, arrivals, trace)
        if {SCALING, WARMING} & set(played):
            _traffic(local, access, clock, binaries.kubernetes, report, seed, played, ends)
        dead = [status.name for status in local.status() if status.health is not Health.RUNNING]
    finally:
        if not keep:
            local.down(report=report)
    _tell(ends, as_json=as_json, svg=svg)
    if keep:
        click.echo(f"export KUBECONFIG={local.kubeconfig}")
    faults = _faults(ends) + [f"{component} is dead" for component in dead]
    if faults:
        raise LocalClusterError(f"the demo failed: {'; '.join(faults)}")


def _pack(local: Cluster, access: Connection, clock: SystemClock, arrivals: list[Pod], trace: str) -> Closing:
    def picture(seen: tuple[Standings, float]) -> RenderableType:
        return progress(seen[0], len(arrivals), seen[1])

    with showing(picture, lambda seen: line(seen[0], len(arrivals), seen[1]), lambda seen: seen[1]) as show:
        done = run(_replay(access, clock, arrivals, lambda standings, elapsed_s: show((standings, elapsed_s))))
    return _close(local, access, clock, trace, done)


def _traffic(
    local: Cluster,
    access: Connection,
    clock: SystemClock,
    kubelet: str,
    report: Report,
    seed: int,
    played: Sequence[str],
    ends: _Ends,
) -> None:
    serving = fake_nodes.uniform(1, is_sharing=False, gpus=1, model="L4", prefix="serving")
    populate(local, [replace(node, labels=warming.SHAPE) for node in serving], kubelet, report, clock)
    with (
        tempfile.TemporaryDirectory(prefix="berthmaster-traffic-") as directory,
        showing(scaling_report.picture, scaling_report.line, lambda moment: moment.elapsed_s) as show,
    ):
        run(_perform(local, access, clock, Path(directory), Story(seed=seed), show, played, ends, report))


async def _perform(
    local: Cluster,
    access: Connection,
    clock: SystemClock,
    directory: Path,
    story: Story,
    show: scaling.Show,
    played: Sequence[str],
    ends: _Ends,
    report: Report,
) -> None:
    said = ""

    def tell(words: str) -> None:
        nonlocal said
        if words != said:
            said = words
            report.note(words)

    scaled = None
    async with (
        Client(access, clock, user_agent="berthmaster-demo") as client,
        warming.pool_standing(client, clock, [scaling.NAMESPACE, warming.NAMESPACE], tell) as warm_s,
    ):
        if SCALING in played:
            plan = warming.endpoint(scaling.PLAN)
            async with warming.starts_of(client, clock, scaling.NAMESPACE) as scaled:
                ends.scaling = await scaling.perform(local, client, clock, directory, story, show, plan=plan)
        if WARMING in played:
            await warming.until_warm(client, clock, tell)
            ends.warming = warming.outcome(warm_s, await warming.burst(client, clock, _BURST, tell), scaled)


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


def _faults(ends: _Ends) -> list[str]:
    found = []
    if ends.packing is not None and ends.packing.replay.truth.faults:
        found.append(f"{len(ends.packing.replay.truth.faults)} faults of placement")
    if ends.scaling is not None and ends.scaling.lost:
        found.append(f"{ends.scaling.lost} requests lost")
    if ends.warming is not None and not ends.warming.hits_s:
        found.append("no pod of the burst found a warm node")
    return found


def _tell(ends: _Ends, *, as_json: bool, svg: str | None) -> None:
    if as_json:
        told: dict[str, Any] = {}
        if ends.packing is not None:
            told |= document(ends.packing)
        if ends.scaling is not None:
            told["scaling"] = scaling_report.document(ends.scaling)
        if ends.warming is not None:
            told["warming"] = warming_report.document(ends.warming)
        click.echo(json.dumps(told, indent=2))
    console = Console(record=svg is not None, stderr=as_json, width=110 if svg else None)
    if not as_json or svg:
        tables = [] if ends.packing is None else [closing_table(ends.packing)]
        if ends.scaling is not None:
            tables.append(scaling_report.closing_table(ends.scaling))
        if ends.warming is not None:
            tables.append(warming_report.closing_table(ends.warming))
        console.print(Group(*tables))
    if svg:
        console.save_svg(svg, title="make demo")
