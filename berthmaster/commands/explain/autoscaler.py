"""`berthmaster explain autoscaler NAME`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
import msgspec
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from berthmaster.autoscaler_object import Autoscaler
from berthmaster.autoscaler_words import Part, explained
from berthmaster.autoscalers import asked
from berthmaster.options import connect, json_option, kubeconfig_option, output, run
from berthmaster.reasons import meaning
from fleet.clock import SystemClock


@click.command()
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the autoscaler.")
@kubeconfig_option
@json_option
def command(name: str, namespace: str, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Say of autoscaler NAME how many replicas and how many requests each, why, and what would change it."""
    if "/" in name:
        namespace, _, name = name.partition("/")
    found = run(_read(namespace, name, kubeconfig, context))
    if as_json:
        click.echo(json.dumps(_document(found), indent=2))
    else:
        _print(explained(found, SystemClock().now_s()))


async def _read(namespace: str, name: str, kubeconfig: str | None, context: str | None) -> Autoscaler:
    async with asked(connect(kubeconfig, context), SystemClock()) as autoscalers:
        return await autoscalers.named(namespace, name)


def _document(found: Autoscaler) -> dict[str, Any]:
    """Return the object's spec and status with the meaning of each reason; what was not told is null."""
    told = (found.status.last_decision, found.status.target)
    meanings = {axis.reason: meaning(axis.reason) for axis in told if axis is not None}
    return {
        "autoscaler": found.key,
        "spec": found.spec,
        "starting": found.starting,
        "status": msgspec.to_builtins(found.status),
        "meanings": {reason: asdict(known) for reason, known in meanings.items() if known is not None},
    }


def _print(parts: tuple[Part, ...]) -> None:
    console = output()
    for part in parts:
        console.print(f"[bold]{escape(part.title)}[/]")
        for line in part.lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
