"""The closing table."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def table(found: dict[str, Any]) -> RenderableType:
    """Return what was measured beside what was to be reached, and every fault under it."""
    shown = Table(title="Berthmaster beside the stock kube-scheduler", title_justify="left")
    shown.add_column("what", no_wrap=True)
    for column in ("rival", "berthmaster", "figure", "target", "reached"):
        shown.add_column(column)
    for one in found["speed"]:
        rival = one["rival"]
        stock, ours = one["medians"][rival], one["medians"]["berthmaster"]
        ratio = one["ratio_pods_per_s"]
        shown.add_row(
            ("" if rival == "stock" else f"{rival.upper()}: ")
            + f"pods/s, {one['nodes']:,} nodes"
            + (f", {one['full_nodes']:,} full" if one["full_nodes"] else ""),
            f"{stock['pods_per_s']:.1f}",
            f"{ours['pods_per_s']:.1f}",
            f"{ratio['median']:.2f}x ({min(ratio['pairs']):.2f} to {max(ratio['pairs']):.2f})",
            f">= {one['target_ratio']}x" if one["target_ratio"] else "-",
            _verdict(one["is_reached"]),
        )
        for name, title in (("p50_s", "p50"), ("p99_s", "p99")):
            shown.add_row(f"  created to bound, {title}", f"{stock[name]:.2f} s", f"{ours[name]:.2f} s", "", "", "")
        for name, title in (("scheduling", "scheduling side"), ("other", "API server and others")):
            values = [f"{medians[f'{name}_cpu_ms_per_pod']:.1f} ms" for medians in (stock, ours)]
            shown.add_row(f"  CPU per pod, {title}", *values, "", "", "")
        calm = one["at_half_the_rate"]
        if calm:
            shown.add_row(
                f"  created to bound, p99, at {calm['created_per_s']:.0f} pods/s",
                "",
                f"{calm['p99_s']:.2f} s",
                "half of our rate",
                f"< {calm['target_p99_s']:g} s",
                _verdict(calm["is_reached"]),
            )
        shown.add_row(
            "  Filter meanwhile, p50 and p99",
            "",
            f"{ours['filter_p50_ms']:.2f}, {ours['filter_p99_ms']:.2f} ms",
            "",
            "",
            "",
        )
    if "filter" in found:
        _filter_rows(shown, found["filter"])
    if "memory" in found:
        _memory_rows(shown, found["memory"])
    if "packing" in found:
        _packing_rows(shown, *found["packing"])
    runs = [(f"{one['nodes']} nodes, {run['side']}", run) for one in found["speed"] for run in one["runs"]]
    runs += [(f"{one['nodes']} nodes, at half the rate", one["at_half_the_rate"]) for one in found["speed"]]
    runs += [("memory", found["memory"])] if "memory" in found else []
    runs += [(f"packing, {run['side']}", run) for run in found.get("packing", [])]
    wrong = [f"{title}: {fault}" for title, run in runs if run for fault in run["faults"]]
    closing = [Text(f"FAULT {fault}", style="red") for fault in wrong[:20]]
    return Group(shown, *(closing or [Text("0 faults in an independent recount of the API's objects after every run")]))


def _filter_rows(shown: Table, one: dict[str, Any]) -> None:
    handler, wall = one["handler_ms"], one["wall_ms"]
    shown.add_row(
        f"Filter, pinned pod, {one['nodes']:,} nodes",
        "",
        f"p50 {handler['p50']:.3f}, p99 {handler['p99']:.3f} ms",
        "inside the handler",
        f"p99 < {one['target_handler_ms']} ms",
        _verdict(one["handler_is_reached"]),
    )
    shown.add_row(
        "  wall, beside a null handler",
        f"{wall['null']['p50']:.3f} ms (null)",
        f"{wall['extender']['p50']:.3f} ms",
        f"{one['wall_ratio']['median']:.2f}x",
        f"<= {one['target_wall_ratio']}x",
        _verdict(one["wall_is_reached"]),
    )


def _packing_rows(shown: Table, kai: dict[str, Any], ours: dict[str, Any]) -> None:
    shown.add_row(
        f"KAI: GPUs given away, {ours['machines']} openb machines, {ours['pods']:,} pods",
        f"{100 * kai['allocated_ratio']:.2f} %",
        f"{100 * ours['allocated_ratio']:.2f} %",
        f"{100 * ours['asked_ratio']:.0f} % asked",
        "more than KAI",
        _verdict(ours["allocated_ratio"] > kai["allocated_ratio"]),
    )
    for title, name in (("pods/s", "pods_per_s"), ("created to bound, p99, s", "p99_s")):
        shown.add_row(f"  {title}", *(f"{one[name]:.1f}" for one in (kai, ours)), "", "", "")
    shown.add_row(
        "  nodes given away more than whole", *(str(len(one["over_allocated"])) for one in (kai, ours)), "", "", ""
    )


def _memory_rows(shown: Table, one: dict[str, Any]) -> None:
    parts = ", ".join(f"{name} {of['rss_mb']:.0f}" for name, of in one["processes"].items())
    child = one["solver_child"]
    shown.add_row(
        f"memory, {one['nodes']:,} nodes, {one['pods']:,} pods",
        "",
        f"{parts} MB",
        f"{one['together']['rss_mb']:.0f} MB resident (PSS {one['together']['pss_mb']:.0f})",
        f"< {one['target_mb']:.0f} MB",
        _verdict(one["is_reached"]),
    )
    if child:
        shown.add_row("  the solver's child beside them", "", f"{child['rss_mb']:.0f} MB", "", "", "")


def _verdict(is_reached: bool | None) -> str:
    return {True: "yes", False: "no", None: "-"}[is_reached]
