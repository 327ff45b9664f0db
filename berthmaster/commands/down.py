"""`berthmaster down`."""

from __future__ import annotations

import click
from rich.console import Console

from berthmaster.local.cluster import Cluster, names
from berthmaster.local.layout import DEFAULT_NAME
from berthmaster.local.progress import report_for
from fleet.clock import SystemClock


@click.command()
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Which cluster.")
@click.option("--all", "is_all", is_flag=True, help="Every cluster of this user.")
def command(name: str, is_all: bool) -> None:
    """End a local cluster: its processes, its ports and its data. The built programs stay in the cache."""
    clock = SystemClock()
    report = report_for(Console(stderr=True), clock)
    for each in names() if is_all else (name,):
        if not Cluster(each, clock=clock).down(report=report):
            report.note(f"There is no cluster {each}: nothing to do")
