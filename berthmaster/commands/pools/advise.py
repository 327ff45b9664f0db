"""`berthmaster pools advise`."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec
from rich.markup import escape

from berthmaster.advising import Asked, Drawer, asked_from, asked_of, document, tables, verdict, with_shapes
from berthmaster.options import connect, json_option, kubeconfig_option, output, run
from berthmaster.warmpools import WarmPools
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import ApiError, BerthmasterError, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject
from warmpool.controller.store import memory_from

_TIMEOUT_S = 60.0


class _Stored(msgspec.Struct):
    data: dict[str, str] | None = None


class _Pods(msgspec.Struct):
    items: list[PodObject] = msgspec.field(default_factory=list)


@click.command()
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=DEVICES:MODEL:COST[:LEAD_S]",
    help="One more kind of node that can be bought; may be repeated.",
)
@click.option("--most-pools", type=click.IntRange(min=1), help="At most this many pools; as many as today by default.")
@click.option(
    "--pool-cost",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="What one more pool must save per hour to be worth having.",
)
@click.option(
    "--store-namespace", default=labels.PULL_NAMESPACE, show_default=True, help="Where pools keep their history."
)
@click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False),
    help="Read saved demands and shapes instead of asking the cluster.",
)
@click.option("--save", type=click.Path(dir_okay=False), help="Save them as they were found, for --file.")
@kubeconfig_option
@json_option
def command(
    shapes: tuple[str, ...],
    most_pools: int | None,
    pool_cost: float,
    store_namespace: str,
    path: str | None,
    save: str | None,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
) -> None:
    """Propose which warm pools there should be, with hits and cost beside today's.

    One pool for several models needs fewer idle nodes than one for each, and a large node can serve several small
    replicas: shapes and image sets are chosen together. Changes nothing.
    """
    from warmpool.advice.propose import propose  # OR-Tools is loaded by those alone who solve

    asked = _load(path) if path is not None else run(_ask(store_namespace, kubeconfig, context))
    if save is not None:
        Path(save).write_bytes(msgspec.json.format(msgspec.json.encode(asked)))
    asked = with_shapes(asked, shapes)
    proposal = propose(asked.demands, asked.shapes, most_pools=most_pools, pool_cost=pool_cost)
    if as_json:
        click.echo(json.dumps(document(asked, proposal), indent=2))
        return
    console = output()
    if not asked.demands:
        console.print("there is no warm pool yet: docs/warmpool.md says how to begin")
        return
    before, after = tables(asked, proposal)
    console.print(before, "", after, "", verdict(proposal), sep="\n")
    for note in (*asked.notes, *proposal.notes):
        console.print(f"[yellow]note:[/] {escape(note)}")


def _load(path: str) -> Asked:
    try:
        return asked_from(Path(path).read_bytes())
    except OSError as error:
        raise BerthmasterError(f"cannot read {path}: {error.strerror or error}") from error


async def _ask(namespace: str, kubeconfig: str | None, context: str | None) -> Asked:
    async with Client(connect(kubeconfig, context), SystemClock(), user_agent=labels.FIELD_MANAGER) as client:
        try:
            found = await WarmPools(client).all()
            if found is None:
                raise BerthmasterError(
                    "the cluster has no WarmPools: the warm pool is not installed (kubectl apply -k manifests/base)"
                )
            pools, _ = found
            hours = {pool.name: await _hours(client, namespace, pool.name) for pool in pools}
            raw = await client.get(paths.PODS, {"resourceVersion": "0"}, timeout_s=_TIMEOUT_S) if pools else b"{}"
            pods = msgspec.json.decode(raw, type=_Pods).items
        except (ApiError, msgspec.MsgspecError) as error:
            raise BerthmasterError(f"the pools cannot be read: {error}") from error
    return asked_of(pools, hours, map(_drawer, pods))


async def _hours(client: Client, namespace: str, pool: str) -> dict[int, list[float]]:
    """Return what a pool remembers by the hour; nothing where it remembers nothing."""
    try:
        raw = await client.get(paths.config_maps(namespace, f"pool-{pool}"), timeout_s=_TIMEOUT_S)
    except NotFound:
        return {}
    return memory_from(msgspec.json.decode(raw, type=_Stored).data or {}).ledger.hours


def _drawer(obj: PodObject) -> Drawer:
    text = (obj.metadata.annotations or {}).get(labels.DRAW, "")
    ask = pod_from(obj).ask if text else None
    return Drawer(draw=text, devices=ask.count if ask is not None else 0)
