"""`berthmaster explain pool NAME`."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from berthmaster.autoscaler_words import Part
from berthmaster.options import connect, json_option, kubeconfig_option, output, run
from berthmaster.warmpool_object import PoolNode, WarmPool
from berthmaster.warmpool_words import explained_pool
from berthmaster.warmpools import asked_pools
from fleet.clock import SystemClock


@click.command()
@click.argument("name")
@kubeconfig_option
@json_option
def command(name: str, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Say of warm pool NAME how many nodes and why, what draws found, and what one node more would have saved."""
    pool, nodes = run(_read(name, kubeconfig, context))
    if as_json:
        click.echo(json.dumps(_document(pool, nodes), indent=2))
    else:
        _print(explained_pool(pool, nodes, SystemClock().now_s()))


async def _read(name: str, kubeconfig: str | None, context: str | None) -> tuple[WarmPool, tuple[PoolNode, ...]]:
    async with asked_pools(connect(kubeconfig, context), SystemClock()) as pools:
        return await pools.named(name), await pools.nodes(name)


def _document(pool: WarmPool, nodes: tuple[PoolNode, ...]) -> dict[str, Any]:
    """Return the object's spec and status, and its nodes; what was not told is null."""
    return {
        "pool": pool.name,
        "spec": pool.spec,
        "status": msgspec.to_builtins(pool.status),
        "nodes": [
            {
                "name": node.metadata.name,
                "reason": node.told[0],
                "message": node.told[1],
                "open": node.is_open,
                "claim": None if node.claim is None else {"kind": node.claim.kind, "pods": list(node.claim.pods)},
            }
            for node in nodes
        ],
    }


def _print(parts: tuple[Part, ...]) -> None:
    console = output()
    for part in parts:
        console.print(f"[bold]{escape(part.title)}[/]")
        for line in part.lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
