"""The picture: what every autoscaler pays and how many requests it keeps waiting, one small panel a load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from bench.scaler.cells import SEED, STARTS_S
from bench.scaler.workloads import WORKLOADS

# Ours in strong colours, rivals in muted ones that also differ in grey.
COLOURS = {
    "steady": "#d1495b",
    "thrifty": "#edae49",
    "HPA": "#2e4057",
    "KEDA": "#5c7fa3",
    "Knative": "#0b7a75",
    "Ray Serve": "#7b9e87",
    "AIBrix": "#8d6a9f",
    "spec": "#9a9a9a",
}
NAMES = {"steady": "Berthmaster steady", "thrifty": "Berthmaster thrifty", "spec": "greedy rule"}
SIZES = {5: 16, 60: 40, 180: 80}
PANELS = (
    "step", "code", "conv", "mooncake", "nasa", "servegen-large", "servegen-mid", "servegen-small", "worldcup",
)  # fmt: skip
_LEAST_PERCENT = 0.05
# From coarse to fine: the first set with three ticks in a panel is used.
_TICKS = (
    (1, 10, 100, 1000),
    (1, 2, 5, 10, 20, 50, 100),
    (1, 1.5, 2, 3),
    (0.8, 1, 1.2, 1.4, 1.6, 1.8, 2),
    tuple(round(0.8 + 0.1 * place, 1) for place in range(15)),
    tuple(round(0.8 + 0.05 * place, 2) for place in range(30)),
    tuple(round(0.8 + 0.01 * place, 2) for place in range(1000)),
)


def draw(cells: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Write the picture."""
    plt.rcParams.update({"svg.hashsalt": "scaler", "font.size": 9, "svg.fonttype": "none", "font.family": "sans-serif"})
    figure, panels = plt.subplots(3, 3, figsize=(10.5, 9.0), layout="constrained", sharey=True)
    for axes, trace in zip(panels.flat, PANELS, strict=True):
        _panel(axes, trace, cells)
    for axes in panels[:, 0]:
        axes.set_ylabel("late requests, %")
    for axes in panels[-1, :]:
        axes.set_xlabel("replica-seconds / ideal")
    handles, labels = _legend(panels.flat[0])
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    figure.suptitle("Lower left is better. One line an autoscaler; dots grow with the start time: 5, 60, 180 s.")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _panel(axes: Axes, trace: str, cells: Mapping[str, Mapping[str, Any]]) -> None:
    for policy in reversed(COLOURS):
        found = [cells.get(f"{trace}/{policy}/{start_s}/{SEED}/0") for start_s in STARTS_S]
        points = [
            (cell["replica_s"] / cell["ideal_replica_s"], 100 * cell["violation_ratio"], SIZES[cell["start_s"]])
            for cell in found
            if cell is not None
        ]
        if not points:
            continue
        cost, late, size = zip(*points, strict=True)
        is_ours = policy in ("steady", "thrifty")
        style = {"color": COLOURS[policy], "zorder": 3 if is_ours else 2}
        axes.plot(cost, late, linewidth=1.8 if is_ours else 0.9, **style)
        axes.scatter(cost, late, s=size, linewidths=0, label=NAMES.get(policy, policy), **style)
    axes.set_title(WORKLOADS[trace].title, fontsize=10)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=_LEAST_PERCENT, linscale=0.5)
    axes.set_ylim(-0.01, 100)
    axes.set_yticks([0, 0.1, 1, 10, 100])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    low, high = axes.get_xlim()
    axes.set_xticks(
        next(found for ticks in _TICKS if len(found := [tick for tick in ticks if low <= tick <= high]) >= 3)
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: Axes) -> tuple[list[Any], list[str]]:
    handles, labels = axes.get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    order = [NAMES.get(policy, policy) for policy in COLOURS if NAMES.get(policy, policy) in by_label]
    marks = [plt.Line2D([], [], color=by_label[label].get_facecolor()[0], linewidth=3) for label in order]
    return marks, order
