"""`berthmaster explain node NODE`."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
from rich.markup import escape
from rich.table import Column, Table

from berthmaster import proposal_words
from berthmaster.explain_node import NodeExplanation, claim_holders, explain_node
from berthmaster.options import connect, json_option, kubeconfig_option, output, run
from berthmaster.view import watched
from fleet.clock import SystemClock
from fleet.errors import BerthmasterError


@click.command()
@click.argument("node")
@kubeconfig_option
@json_option
def command(node: str, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Show each device of NODE, who holds what of it, and how an empty card could be cut for pods that wait."""
    found = run(_explain(node, kubeconfig, context))
    if as_json:
        proposals = [proposal_words.as_json(proposal) for proposal in found.proposals]
        click.echo(json.dumps(asdict(found) | {"proposals": proposals}, indent=2))
    else:
        _print(found)


async def _explain(name: str, kubeconfig: str | None, context: str | None) -> NodeExplanation:
    async with watched(connect(kubeconfig, context), SystemClock()) as view:
        state = view.states.get(name)
        if state is None:
            raise BerthmasterError(f"no node {name}")
        uids = view.ledger.pods_on(name)
        berths = {uid: view.ledger.berth_of(uid) for uid in uids}
        holders = {view.pods[uid].key: berth for uid, berth in berths.items() if berth is not None and uid in view.pods}
        waiting = [pod for pod in view.pods.values() if pod.gates and not pod.problems]
        reach = (cell.id for cell in view.desk.pools.reach(name).cells)
        claimed = claim_holders(view.desk.claims.values(), reach)
        return explain_node(state, holders, waiting, view.ledger.warnings_on(name), claimed)


def _print(found: NodeExplanation) -> None:
    console = output()
    console.print(f"[bold]{found.node}[/] is a {found.kind} node with {len(found.devices)} devices")
    if found.devices:
        names = ("device", "model", "mode", "island", "free", "held by")
        table = Table(*(Column(name, overflow="fold") for name in names), box=None, header_style="bold")
        for row in found.devices:
            table.add_row(
                row.device,
                escape(row.model) or "-",
                row.mode if row.is_healthy else f"{row.mode}, dead",
                str(row.island or "-"),
                escape(row.free),
                escape(", ".join(row.holders)) or "-",
            )
        console.print(table)
    for name, free, amount in found.advertised:
        console.print(f"{name}: {free} of {amount} free")
    for text in (*found.closed, *(warning for warning in found.warnings if warning not in found.closed)):
        console.print(f"[yellow]{escape(text)}[/]")
    for proposal in found.proposals:
        for line in proposal_words.lines(proposal):
            console.print(escape(line), soft_wrap=True)
