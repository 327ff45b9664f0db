"""`berthmaster up`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import click
from rich.console import Console

from berthmaster.local import fake_nodes
from berthmaster.local.binaries import ensure
from berthmaster.local.children import interruptible
from berthmaster.local.cluster import Cluster, Outcome
from berthmaster.local.components import Options
from berthmaster.local.layout import DEFAULT_NAME
from berthmaster.local.progress import Report, report_for
from berthmaster.options import json_option, run
from binpack.trace import load_nodes
from binpack.wording import plural
from fleet.clock import SystemClock
from fleet.kube.credentials import connection
from fleet.node import Node

_READY_S = 300.0
_SAID = {
    Outcome.STARTED: "is up",
    Outcome.HEALED: "is whole again",
    Outcome.ALREADY_RUNNING: "is already running",
}


@click.command()
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Clusters of different names run side by side.")
@click.option("--nodes", type=click.IntRange(0, 20_000), help="Create that many fake nodes of 8 GPUs.")
@click.option("--cluster", type=click.Choice(["openb"]), help="Create the 1,213 GPU nodes of the openb trace.")
@click.option(
    "--sharing/--no-sharing",
    default=False,
    show_default=True,
    help="Set the fake nodes of --nodes aside for shares and chosen devices (they take no nvidia.com/gpu pods then).",
)
@json_option
def command(name: str, nodes: int | None, cluster: str | None, sharing: bool, as_json: bool) -> None:
    """Start a real control plane on this machine, with Berthmaster in it; or start what of it has died.

    The last line goes to stdout alone, so that eval "$(berthmaster up)" sets KUBECONFIG.
    """
    if nodes is not None and cluster is not None:
        raise click.UsageError("--nodes and --cluster exclude each other")
    clock = SystemClock()
    report = report_for(Console(stderr=True), clock)
    local = Cluster(name, clock=clock)
    binaries = ensure(report, clock=clock)
    started_s = clock.monotonic_s()
    outcome = local.up(Options(), binaries, report=report)
    ready_s = clock.monotonic_s() - started_s
    wanted = load_nodes(cluster) if cluster else fake_nodes.uniform(nodes or 0, is_sharing=sharing)
    try:
        with interruptible():
            created = populate(local, wanted, binaries.kubernetes, report, clock)
    except (KeyboardInterrupt, SystemExit):
        if outcome is Outcome.STARTED:
            local.down(report=report)
        raise
    if as_json:
        shown = {
            "name": name,
            "outcome": outcome.value,
            "kubeconfig": str(local.kubeconfig),
            "ready_s": round(ready_s, 2),
            "nodes_created": created,
        }
        click.echo(json.dumps(shown, indent=2))
        return
    report.note(closing(name, outcome, created, took_s=clock.monotonic_s() - started_s))
    click.echo(f"export KUBECONFIG={shlex.quote(str(local.kubeconfig))}")


def closing(name: str, outcome: Outcome, created: int, *, took_s: float) -> str:
    """Return what was done, nodes included, and how to end it."""
    done = _SAID[outcome]
    if created:
        done += f", with {plural(created, 'node')} created"
    elif outcome is Outcome.ALREADY_RUNNING:
        done += ": nothing to do"
    return f"Cluster {name} {done} ({took_s:.1f} s). End it with: berthmaster down --name {name}"


def populate(local: Cluster, nodes: Sequence[Node], kubelet: str, report: Report, clock: SystemClock) -> int:
    """Create the nodes that are not there yet, wait until all are ready, and return how many were created."""
    if not nodes:
        return 0
    access = connection(str(local.kubeconfig), clock=clock)
    with report.step(f"Creating {len(nodes)} nodes", expected_s=len(nodes) / 250) as tell:
        created = run(fake_nodes.create(access, nodes, clock=clock, kubelet=kubelet, tell=tell))
    with report.step(f"Waiting for {len(nodes)} nodes", expected_s=len(nodes) / 150) as tell:
        names = [node.name for node in nodes]
        run(fake_nodes.wait_ready(access, names, clock=clock, most_s=_READY_S, tell=tell))
    return created
