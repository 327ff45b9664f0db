"""`berthmaster top`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import click
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from berthmaster.autoscaler_table import AutoscalerRow, rows
from berthmaster.autoscaler_table import table as autoscaler_table
from berthmaster.autoscalers import Autoscalers, asked
from berthmaster.options import connect, json_option, kubeconfig_option, output, run
from berthmaster.view import View, watched
from berthmaster.warmpool_table import PoolRow, pool_rows, pool_table
from berthmaster.warmpools import WarmPools, asked_pools
from binpack.fragmentation import fragmented_milli_gpu
from binpack.index.mix import default_mix
from binpack.state import DeviceState, NodeState
from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import ApiError

_REFRESH_S = 1.0
# A screen holds so many; the rest is counted below them.
_ROWS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """All devices of one model: how many are untouched, partly used, full or dead, and what is left of them.

    Attributes:
        free_milli_gpu: Of healthy devices.
        allocated_ratio: Held part of all devices, dead ones included, whether or not it can be given again.
    """

    model: str
    nodes: int
    devices: int
    untouched: int
    partly_used: int
    full: int
    unhealthy: int
    free_milli_gpu: int
    allocated_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One look at the cluster.

    Attributes:
        fragmented_milli_gpu: Idle milli-GPU that the demand mix cannot use where it lies.
        waiting: Gated pods.
    """

    nodes: int
    pods: int
    waiting: int
    blocked_nodes: tuple[str, ...]
    fragmented_milli_gpu: float
    models: tuple[ModelRow, ...]
    warnings: tuple[str, ...]


def summarise(
    states: Mapping[str, NodeState], *, pods: int, waiting: int, fragmented: float, warnings: tuple[str, ...]
) -> Summary:
    """Return the summary of these node states. Pure."""
    by_model: dict[str, list[tuple[str, DeviceState]]] = defaultdict(list)
    for name, state in states.items():
        for device in state.devices:
            by_model[device.device.model or "unknown"].append((name, device))
    return Summary(
        nodes=len(states),
        pods=pods,
        waiting=waiting,
        blocked_nodes=tuple(sorted(name for name, state in states.items() if state.blocked)),
        fragmented_milli_gpu=round(fragmented, 1),
        models=tuple(_row(model, members) for model, members in sorted(by_model.items())),
        warnings=warnings,
    )


def _row(model: str, members: list[tuple[str, DeviceState]]) -> ModelRow:
    devices = [device for _, device in members]
    untouched = sum(device.is_untouched for device in devices)
    full = sum(device.free_milli <= 0 for device in devices)
    unhealthy = sum(not device.device.is_healthy for device in devices)
    free = sum(max(0, device.free_milli) for device in devices if device.device.is_healthy)
    taken = sum(1000 - max(0, device.free_milli) for device in devices)
    return ModelRow(
        model=model,
        nodes=len({name for name, _ in members}),
        devices=len(devices),
        untouched=untouched,
        partly_used=sum(device.users > 0 and device.free_milli > 0 for device in devices),
        full=full,
        unhealthy=unhealthy,
        free_milli_gpu=free,
        allocated_ratio=round(taken / (1000 * len(devices)), 4),
    )


@click.command()
@click.option("--once", is_flag=True, help="Print one picture and end.")
@kubeconfig_option
@json_option
def command(once: bool, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Show nodes, devices, fragmentation, both axes of every autoscaler and every warm pool, live. Ctrl-C ends it."""
    run(_top(once or as_json, kubeconfig, context, as_json=as_json))


async def _top(is_once: bool, kubeconfig: str | None, context: str | None, *, as_json: bool) -> None:
    clock = SystemClock()
    connection = connect(kubeconfig, context)
    async with (
        watched(connection, clock) as view,
        asked(connection, clock) as autoscalers,
        asked_pools(connection, clock) as pools,
    ):

        async def others() -> tuple[Scaling, Warming]:
            return await _scaling(autoscalers, clock.now_s()), await _warming(pools, clock.now_s())

        if as_json:
            click.echo(json.dumps(_document(_look(view), *await others()), indent=2))
        elif is_once:
            scaling, warming = await others()
            most = max(len(scaling.rows), len(warming.rows))
            output().print(_picture(_look(view), scaling, most=most, warming=warming))
        else:
            scaling, warming = await others()
            first = _picture(_look(view), scaling, _ROWS, warming)
            with Live(first, console=output(), screen=False, auto_refresh=False) as live:
                while True:
                    await clock.sleep(_REFRESH_S)
                    view.refresh()
                    scaling, warming = await others()
                    live.update(_picture(_look(view), scaling, _ROWS, warming), refresh=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The autoscalers as one look found them.

    Attributes:
        rows: One each.
        is_installed: Whether the cluster knows the kind.
        warnings: What could not be read.
    """

    rows: tuple[AutoscalerRow, ...] = ()
    is_installed: bool = True
    warnings: tuple[str, ...] = ()


async def _scaling(autoscalers: Autoscalers, now_s: float) -> Scaling:
    """Return the look; a refusal is told in it, because nodes can be seen without the right to see autoscalers."""
    try:
        found = await autoscalers.all()
    except ApiError as error:
        return Scaling(warnings=(f"the autoscalers cannot be read: {error}",))
    if found is None:
        return Scaling(is_installed=False)
    known, problems = found
    return Scaling(rows=rows(known, now_s), warnings=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Warming:
    """The warm pools as one look found them; as `Scaling`."""

    rows: tuple[PoolRow, ...] = ()
    is_installed: bool = True
    warnings: tuple[str, ...] = ()


async def _warming(pools: WarmPools, now_s: float) -> Warming:
    """Return the look; a refusal is told in it."""
    try:
        found = await pools.all()
    except ApiError as error:
        return Warming(warnings=(f"the warm pools cannot be read: {error}",))
    if found is None:
        return Warming(is_installed=False)
    known, problems = found
    return Warming(rows=pool_rows(known, now_s), warnings=problems)


def _document(summary: Summary, scaling: Scaling, warming: Warming = Warming()) -> dict[str, object]:
    return asdict(summary) | {
        "warnings": [*summary.warnings, *scaling.warnings, *warming.warnings],
        "autoscalers": [asdict(row) for row in scaling.rows] if scaling.is_installed else None,
        "warmpools": [asdict(row) for row in warming.rows] if warming.is_installed else None,
    }


def _look(view: View) -> Summary:
    pods = view.pods.values()
    return summarise(
        view.states,
        pods=sum(bool(pod.node_name) and pod.is_live for pod in pods),
        waiting=sum(labels.PLAN_GATE in pod.gates for pod in pods),
        fragmented=fragmented_milli_gpu(view.states.values(), default_mix()),
        warnings=view.ledger.warnings(),
    )


def _picture(summary: Summary, scaling: Scaling, most: int, warming: Warming = Warming()) -> Group:
    table = Table("model", box=None, header_style="bold")
    for heading in ("nodes", "devices", "untouched", "partly used", "full", "dead", "free GPUs", "allocated"):
        table.add_column(heading, justify="right")
    for row in summary.models:
        table.add_row(
            escape(row.model),
            *(str(n) for n in (row.nodes, row.devices, row.untouched, row.partly_used, row.full, row.unhealthy)),
            f"{row.free_milli_gpu / 1000:.1f}",
            f"{row.allocated_ratio:.1%}",
        )
    lines = [
        f"{summary.nodes} nodes, {summary.pods} pods on them, {summary.waiting} waiting; "
        f"{summary.fragmented_milli_gpu / 1000:.1f} idle GPUs are fragmented for the demand mix"
    ]
    lines += [f"[yellow]blocked for devices:[/] {', '.join(summary.blocked_nodes)}"] if summary.blocked_nodes else []
    lines += [
        f"[yellow]warning:[/] {escape(warning)}"
        for warning in (*summary.warnings, *scaling.warnings, *warming.warnings)[:10]
    ]
    axes = ("", autoscaler_table(scaling.rows, most)) if scaling.rows else ()
    return Group(*lines, table, *axes, *(("", pool_table(warming.rows, most)) if warming.rows else ()))
