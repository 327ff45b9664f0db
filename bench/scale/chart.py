"""The picture: what one decision costs as clusters grow, beside what it would cost if it grew as they do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt

OURS, TAIL, LINEAR = "#d1495b", "#edae49", "#9aa5b1"


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the picture.

    Args:
        rows: Of `latency.measure`, by size.
        path: An .svg.
    """
    plt.rcParams.update({"font.size": 9, "font.family": "sans-serif", "svg.hashsalt": "bench-scale"})
    sizes = [row["nodes"] for row in rows]
    figure, axes = plt.subplots(figsize=(7.0, 3.8), layout="constrained")
    linear = [rows[0]["cpu"]["mean"] * size / sizes[0] for size in sizes]
    axes.plot(sizes, linear, color=LINEAR, linestyle="--", label="mean, if it grew like the cluster")
    for name, color in (("p99", TAIL), ("mean", OURS)):
        axes.plot(sizes, [row["cpu"][name] for row in rows], color=color, marker="o", label=name)
    axes.set_xlabel("nodes")
    axes.set_ylabel("CPU of one decision, ms")
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#eeeeee")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    axes.set_title("One decision of the index on clusters that are 80 % full", loc="left")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
