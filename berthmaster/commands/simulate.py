"""`berthmaster simulate`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TextIO

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from berthmaster import lifetimes_report
from berthmaster.progress_line import ProgressLine
from binpack.bound import Bound, bounds_at
from binpack.lifetimes import LifeSetting, Lived, simulate_lifetimes
from binpack.simulate import MIXES, POLICIES, Outcome, Result, Setting, simulate
from binpack.trace import load_lives, load_nodes, load_pods, traces
from fleet.node import Node
from fleet.pod import Pod

_MIB: Final = 2**20
_AT_THE_END: Final = 2**31  # a milestone that no arrivals pass


@click.command()
@click.option(
    "--nodes",
    default="openb",
    show_default=True,
    help="CSV of nodes (sn, cpu_milli, memory_mib, gpu, model), or openb, openb-all: the lists that come along.",
)
@click.option(
    "--pods",
    default="default",
    show_default=True,
    help="CSV of pods (name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec), or a trace that comes along: "
    f"{', '.join(traces())}.",
)
@click.option("--policy", type=click.Choice(POLICIES), default=POLICIES[0], show_default=True)
@click.option("--seed", type=int, default=42, show_default=True, help="Of the order of arrival.")
@click.option(
    "--arrive", type=float, default=1.3, show_default=True, help="Arrivals end at this GPU demand over capacity."
)
@click.option(
    "--batch", type=int, default=1, show_default=True, help="Pods planned together; 1 = one at a time, no look-ahead."
)
@click.option(
    "--mix",
    type=click.Choice(MIXES),
    default=MIXES[0],
    show_default=True,
    help="given: berthmaster knows the trace's demand mix, not its order; learn: it learns the mix from what arrives.",
)
@click.option(
    "--moves-ratio",
    type=float,
    default=0.0,
    show_default=True,
    help="When a pod finds no room, others may be moved for it: up to this part of the pods placed so far; "
    "with --lifetimes within any hour up to this part of the pods in place.",
)
@click.option(
    "--bound",
    "has_bound",
    is_flag=True,
    help="Prove, for the pods that arrived, how much GPU any method would leave unallocated at least.",
)
@click.option(
    "--lifetimes",
    "load_ratio",
    type=float,
    metavar="RHO",
    help="Let pods come at random at this GPU load over capacity, wait, live as long as in the trace, and leave.",
)
@click.option("--days", type=float, default=30.0, show_default=True, help="With --lifetimes: how long is measured.")
@click.option(
    "--warm-up-days", type=float, help="With --lifetimes: how long before that; if not given, the longest life."
)
@click.option("--json", "json_out", type=click.Path(dir_okay=False), help="Write the result as JSON; - = stdout.")
@click.option(
    "--placements",
    type=click.Path(dir_okay=False),
    help="Write one JSON line per arrival, in order; gpu_milli is per device. - = stdout.",
)
@click.pass_context
def command(
    context: click.Context,
    nodes: str,
    pods: str,
    policy: str,
    seed: int,
    arrive: float,
    batch: int,
    mix: str,
    moves_ratio: float,
    has_bound: bool,
    load_ratio: float | None,
    days: float,
    warm_up_days: float | None,
    json_out: str | None,
    placements: str | None,
) -> None:
    """Place a trace on empty nodes by one policy, with no cluster: the openb protocol of the FGD paper (ATC'23).

    Pods arrive in shuffled order and never leave. With --batch 1 each is placed before the next is seen, is refused
    only if no node can hold it at that moment, and stays refused.

    With --lifetimes pods leave: arrivals are Poisson, pods are drawn from the trace with their own lives, cut at the
    99th percentile, and whenever something leaves a node, waiting pods are tried there in order of arrival.
    """
    _refuse_mixed(context, is_lifetimes=load_ratio is not None)
    if load_ratio is not None:
        leaving = LifeSetting(
            policy=policy,
            seed=seed,
            load_ratio=load_ratio,
            days=days,
            warm_up_days=warm_up_days,
            mix=mix,
            moves_ratio=moves_ratio,
        )
        _run_lifetimes(nodes, pods, leaving, json_out)
        return
    if json_out == "-" and placements == "-":
        raise click.UsageError("only one of --json and --placements can be -")
    setting = Setting(policy=policy, seed=seed, arrive_ratio=arrive, batch=batch, mix=mix, moves_ratio=moves_ratio)
    found_nodes, found_pods = load_nodes(nodes), load_pods(pods)
    with ExitStack() as stack:
        lines = _opened(placements, stack)
        progress = ProgressLine()
        arrived: list[Pod] = []

        def note(outcome: Outcome) -> None:
            arrived.append(outcome.pod)
            if lines is not None:
                lines.write(json.dumps(_line(outcome), separators=(",", ":")) + "\n")
            progress.step(f"{len(arrived)} pods arrived")

        result = simulate(found_nodes, found_pods, setting, on_outcome=note)
        progress.end()
        bounds = _bounds(found_nodes, arrived, result) if has_bound else None
        if bounds is not None:
            result = replace(result, bound_ratio=bounds[_AT_THE_END].unallocated_gpu_ratio)
        report = as_json(result, _trace_name(pods), bounds)
        target = _opened(json_out, stack)
        if target is not None:
            target.write(json.dumps(report, indent=2) + "\n")
    if json_out != "-" and placements != "-":
        _print(report)


def _refuse_mixed(context: click.Context, *, is_lifetimes: bool) -> None:
    """Refuse options that say nothing about the kind of run asked for."""
    foreign = ("arrive", "batch", "has_bound", "placements") if is_lifetimes else ("days", "warm_up_days")
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in foreign and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: {'not with' if is_lifetimes else 'only with'} --lifetimes")


def _run_lifetimes(nodes: str, pods: str, setting: LifeSetting, json_out: str | None) -> None:
    lives = load_lives(pods)
    lived = [Lived(pod=pod, life_s=lives[pod.name]) for pod in load_pods(pods)]
    progress = ProgressLine()
    result = simulate_lifetimes(
        load_nodes(nodes), lived, setting, on_progress=lambda done: progress.step(f"{100 * done:.1f} % of the time")
    )
    progress.end()
    report = lifetimes_report.as_json(result, _trace_name(pods))
    with ExitStack() as stack:
        target = _opened(json_out, stack)
        if target is not None:
            target.write(json.dumps(report, indent=2) + "\n")
    if json_out != "-":
        lifetimes_report.show(report)


def _bounds(nodes: Sequence[Node], arrived: Sequence[Pod], result: Result) -> dict[int, Bound]:
    """Prove the bound at each milestone and at the end, saying how far that is."""
    milestones = (*result.unallocated_at, _AT_THE_END)
    progress = ProgressLine()

    def note(proven: int) -> None:
        progress.step(f"{proven} of {len(milestones)} bounds proven")

    bounds = bounds_at(nodes, arrived, milestones, on_proven=note)
    progress.end()
    return bounds


def _trace_name(pods: str) -> str:
    return Path(pods).name.removesuffix(".gz").removesuffix(".csv")


def as_json(result: Result, trace: str, bounds: Mapping[int, Bound] | None = None) -> dict[str, Any]:
    """Return the result as it is written, ratios rounded to 1e-6, bounds down.

    Args:
        result: What the run measured.
        trace: Name of the trace.
        bounds: By milestone; None = not asked for.
    """
    setting = result.setting
    bound_at = {} if bounds is None else {at: _floored(bound.unallocated_gpu_ratio) for at, bound in bounds.items()}
    return {
        "policy": setting.policy if setting.batch == 1 else f"{setting.policy}-batch-{setting.batch}",
        "seed": setting.seed,
        "trace": trace,
        "mix": setting.mix,
        "batch": setting.batch,
        "arrived_pods": result.arrived,
        "arrived_ratio": _rounded(result.arrived_ratio),
        "unallocated_gpu_ratio": _rounded(result.unallocated_gpu_ratio),
        "unallocated_at": {str(at): _rounded(ratio) for at, ratio in result.unallocated_at.items()},
        "failed_pods": dict(result.failed_pods),
        "failed_pods_at_100": dict(result.failed_pods_at_100),
        "refused_but_fits": result.refused_but_fits,
        "faults": list(result.faults),
        "moves": result.moves,
        "bound_ratio": _floored(result.bound_ratio),
        "bound_at": {
            str(at): bound_at.get(at) if ratio is not None else None for at, ratio in result.unallocated_at.items()
        },
        "wall_s": round(result.wall_s, 3),
        "pods_per_s": round(result.pods_per_s, 1),
        "ms_per_decision": round(1000 * result.decision_s / max(1, result.arrived), 4),
        "cpu_ms_per_decision": round(1000 * result.decision_cpu_s / max(1, result.arrived), 4),
    }


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 6)


def _floored(ratio: float | None) -> float | None:
    return None if ratio is None else math.floor(ratio * 1e6) / 1e6


def _line(outcome: Outcome) -> dict[str, Any]:
    pod, berth, ask = outcome.pod, outcome.berth, outcome.pod.ask
    line: dict[str, Any] = {
        "pod": pod.name,
        "node": None if berth is None else berth.node,
        "devices": [] if berth is None else list(berth.devices),
        "gpu_milli": 0 if ask is None else ask.milli_gpu,
        "num_gpu": 0 if ask is None else ask.count,
        "cpu_milli": pod.requests.milli_cpu,
        "memory_mib": pod.requests.memory_bytes // _MIB,
    }
    return line if berth is not None else line | {"reason": outcome.reason}


def _opened(path: str | None, stack: ExitStack) -> TextIO | None:
    if path is None:
        return None
    if path == "-":
        return sys.stdout
    try:
        return stack.enter_context(Path(path).open("w", encoding="utf-8"))
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error


def _print(report: dict[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold]{report['policy']}[/] on {report['trace']}, seed {report['seed']}: {report['arrived_pods']} pods "
        f"arrived ({_percent(report['arrived_ratio'])} of GPU capacity), {report['ms_per_decision']:.2f} ms each"
    )
    has_bound = report["bound_ratio"] is not None
    table = Table(
        "arrived demand", "unallocated GPU", *["any method at least"] * has_bound, box=None, header_style="bold"
    )
    for at, ratio in report["unallocated_at"].items():
        if ratio is not None:
            table.add_row(f"{at} %", _percent(ratio), *[_percent(report["bound_at"][at])] * has_bound)
    console.print(table)
    if report["moves"]:
        console.print(f"{report['moves']} pods were moved")
    failed = ", ".join(f"{name} {count}" for name, count in report["failed_pods_at_100"].items()) or "none"
    console.print(f"refused within 100 %: {failed}")
    if report["refused_but_fits"] or report["faults"]:
        console.print(
            f"[red]{report['refused_but_fits']} refused pods would have fitted; faults: {report['faults'][:5]}[/]"
        )
    else:
        console.print("recount: nothing given twice, no pod refused that fits")


def _percent(ratio: float | None) -> str:
    return "no GPU" if ratio is None else f"{100 * ratio:.2f} %"
