"""The picture: idle nodes against draws missed, one small panel a demand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.warmpool.cells import GOALS, LEADS_S, SEEDS
from bench.warmpool.demand import title

PANELS = (
    "poisson-30", "batch4-30", "batch8-30", "worldcup-ordinary", "worldcup-tournament", "worldcup-flash", "nasa-august",
    "servegen-large", "servegen-mid",
)  # fmt: skip
_LEAST_PERCENT = 0.4
_MOST_TICKS = 5
OURS, STATIC, POISSON, BUFFER = "#d1495b", "#2e4057", "#0b7a75", "#edae49"


def draw(cells: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write the picture."""
    plt.rcParams.update(
        {"svg.hashsalt": "warmpool", "font.size": 9, "svg.fonttype": "none", "font.family": "sans-serif"}
    )
    figure, panels = plt.subplots(3, 3, figsize=(10.5, 8.6), layout="constrained")
    for axes, name in zip(panels.flat, PANELS, strict=True):
        _panel(axes, name, [cell for cell in cells.values() if cell["name"] == name and cell["lead_s"] == LEADS_S[0]])
    for axes in panels[:, 0]:
        axes.set_ylabel("draws that missed, %")
    for axes in panels[-1, :]:
        axes.set_xlabel("idle node-hours")
    handles = [
        plt.Line2D([], [], color=OURS, marker="o", linestyle="", label="Berthmaster, goals 95 and 99 %"),
        plt.Line2D([], [], color=STATIC, label="every fixed N"),
        plt.Line2D([], [], color=POISSON, marker="s", linestyle="", label="Poisson quantile, goals 95 and 99 %"),
        plt.Line2D([], [], color=BUFFER, marker="^", linestyle="", label="10 and 20 % of the nodes in use"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle("Lower left is better. Dashed: what the goals allow. A node takes 511 s to be warm.")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _panel(axes: Axes, name: str, cells: list[Mapping[str, Any]]) -> None:
    for cell in cells:
        is_first = cell["seed"] == SEEDS[0]
        for goal in GOALS:
            told = cell["goals"][f"{goal:g}"]
            axes.scatter(told["idle_h"], 100 * (1 - told["hit_ratio"]), color=OURS, s=28, zorder=4, linewidths=0)
            if is_first:
                missed = 100 * (1 - told["poisson_hit_ratio"])
                axes.scatter(told["poisson_idle_h"], missed, color=POISSON, marker="s", s=24, zorder=3, linewidths=0)
        if is_first:
            seen = [point for point in cell["static"] if 100 * (1 - point[0]) >= _LEAST_PERCENT / 2]
            idle_h = [point[1] for point in seen]
            axes.plot(idle_h, [100 * (1 - point[0]) for point in seen], color=STATIC, linewidth=1.2, zorder=2)
            for hit, spare_h in cell.get("buffers", {}).values():
                axes.scatter(spare_h, 100 * (1 - hit), color=BUFFER, marker="^", s=28, zorder=3, linewidths=0)
    for goal in GOALS:
        axes.axhline(100 * (1 - goal), color="#999999", linewidth=0.7, linestyle="--", zorder=1)
    axes.set_title(title(name), fontsize=10)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(_LEAST_PERCENT, 60)
    axes.set_yticks([0.5, 1, 2, 5, 10, 20, 50])
    low, high = axes.get_xlim()
    ticks = [scale * 10**power for power in range(1, 6) for scale in (1, 2, 5)]
    shown = [tick for tick in ticks if low <= tick <= high]
    axes.set_xticks(shown if len(shown) <= _MOST_TICKS else shown[::2])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)
