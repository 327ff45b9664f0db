"""`berthmaster status`."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from berthmaster.local.cluster import Cluster, ComponentStatus, Health, names
from berthmaster.local.layout import DEFAULT_NAME
from berthmaster.options import json_option

_COLOURS = {Health.RUNNING: "green", Health.NOT_ANSWERING: "yellow", Health.DEAD: "red"}


@click.command()
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which cluster.")
@json_option
@click.pass_context
def command(ctx: click.Context, name: str, as_json: bool) -> None:
    """Show a local cluster's processes. Exit status: 0 all run, 1 some do not, 3 there is no such cluster."""
    local = Cluster(name)
    record, found = local.record(), local.status()
    is_complete = record is not None and record.is_complete
    kubectl = record.binaries["kubectl"] if record is not None else ""
    is_whole = is_complete and all(status.health is Health.RUNNING for status in found)
    if as_json:
        click.echo(json.dumps(_as_json(local, found, kubectl, is_whole=is_whole), indent=2))
    else:
        _print(local, found, kubectl, is_whole=is_whole)
    ctx.exit(0 if is_whole else 1 if found else 3)


def _as_json(local: Cluster, found: Sequence[ComponentStatus], kubectl: str, *, is_whole: bool) -> dict[str, object]:
    return {
        "name": local.name,
        "state": "running" if is_whole else "degraded" if found else "absent",
        "kubeconfig": str(local.kubeconfig) if found else None,
        "kubectl": kubectl or None,
        "components": [
            {
                "name": status.name,
                "health": status.health.value,
                "pid": status.pid,
                "port": status.port,
                "log": str(status.log),
            }
            for status in found
        ],
    }


def _print(local: Cluster, found: Sequence[ComponentStatus], kubectl: str, *, is_whole: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    others = [name for name in names() if name != local.name]
    if not found:
        console.print(f"There is no cluster {local.name}: berthmaster up --name {local.name}")
    else:
        table = Table("component", "state", "pid", "port", box=None, header_style="bold")
        for status in found:
            colour = _COLOURS[status.health]
            pid = str(status.pid) if status.pid else "-"
            table.add_row(status.name, f"[{colour}]{status.health.value}[/]", pid, str(status.port))
        console.print(table)
        console.print(f"Logs: {found[0].log.parent}")
        console.print(f"kubectl: {kubectl}")
        if is_whole:
            console.print(f"Cluster {local.name} is running: export KUBECONFIG={local.kubeconfig}")
        else:
            broken = ", ".join(status.name for status in found if status.health is not Health.RUNNING)
            told = f"Broken: {broken}" if broken else "Its start was never completed"
            console.print(f"{told}. Mend it with: berthmaster up --name {local.name}")
    if others:
        console.print(f"Other clusters: {', '.join(others)}")
