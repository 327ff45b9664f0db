"""`berthmaster explain POD`, in full `berthmaster explain pod POD`."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.markup import escape
from rich.table import Column, Table

from berthmaster.explain import Explanation, explain
from berthmaster.explain_claims import own
from berthmaster.options import connect, json_option, kubeconfig_option, output, run
from berthmaster.said import read
from berthmaster.view import watched
from binpack.wording import plural
from fleet.clock import SystemClock
from fleet.kube.client import Client


@click.command()
@click.argument("pod")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pod.")
@click.option("--most", default=10, show_default=True, type=click.IntRange(1, 1000), help="Options to list.")
@kubeconfig_option
@json_option
def command(pod: str, namespace: str, most: int, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Say where POD is and why there, what else was feasible, or why it waits."""
    if "/" in pod:
        namespace, _, pod = pod.partition("/")
    found = run(_explain(pod, namespace, most, kubeconfig, context))
    if as_json:
        click.echo(json.dumps(asdict(found) | {"standing": found.standing.value}, indent=2))
    else:
        show(found)


async def _explain(name: str, namespace: str, most: int, kubeconfig: str | None, context: str | None) -> Explanation:
    connection, clock = connect(kubeconfig, context), SystemClock()
    async with watched(connection, clock) as view, Client(connection, clock, user_agent="berthmaster") as client:
        pod = view.find(namespace, name)
        said = await read(client, pod.namespace, pod.name)
        view.ledger.remove_pod(pod.uid)
        view.desk.give_back(own(view.desk, pod))
        view.refresh()
        return explain(pod, view.index, view.states, most, said)


def show(found: Explanation) -> None:
    """Print the explanation for people."""
    console = output()
    console.print(f"[bold]{found.pod}[/] is {found.standing.value}; it needs {escape(found.needs)}")
    if found.berth is not None:
        devices = f", devices {', '.join(found.berth.devices)}" if found.berth.devices else ""
        console.print(f"berth: {found.berth.node}{devices}")
    console.print(f"why: {escape(found.why)}")
    if found.said is not None:
        since = f" since {found.said.since}" if found.said.since else ""
        console.print(f"the planner says{escape(since)}: {escape(found.said.reason)}: {escape(found.said.text)}")
    if found.means:
        console.print(f"{found.reason} means: {found.means}")
        console.print(f"what helps: {found.helps}")
    if found.options:
        table = Table(
            Column("node", overflow="fold"),
            Column("devices", overflow="fold"),
            "cost, milli-GPU",
            "",
            box=None,
            header_style="bold",
        )
        for option in found.options:
            table.add_row(
                option.node, ",".join(option.devices) or "-", f"{option.cost:.3f}", "<- here" if option.is_taken else ""
            )
        console.print(f"feasible on {plural(found.feasible_nodes, 'node')}; the cheapest berths:")
        console.print(table)
    for reason, nodes in found.excluded:
        console.print(f"{plural(nodes, 'node')} excluded: {escape(reason)}")
