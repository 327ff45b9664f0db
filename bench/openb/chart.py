"""The picture: per trace what the best published policies, FGD and ours leave unallocated, above the proven bound."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt

from bench.openb.cells import LEARNT, MOVED
from bench.openb.summary import Row

OURS, MOVES, RIVAL, FAR, LIMIT = "#d1495b", "#edae49", "#2e4057", "#9aa5b1", "#0b7a75"
_TITLE = "GPU capacity left unallocated when demand reaches 100 % of it, lower is better"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the picture."""
    plt.rcParams.update({"font.size": 9, "font.family": "sans-serif"})
    ordered = sorted((row for row in rows if LEARNT in row.ours), key=lambda row: row.published["fgd"])
    places = range(len(ordered))
    figure, axes = plt.subplots(figsize=(10.5, 5.2), layout="constrained")
    for place, row in zip(places, ordered, strict=True):
        low = row.bound if row.bound is not None else row.ours[LEARNT].percent
        axes.plot([place, place], [low, row.published["best-fit"]], color="#dddddd", linewidth=1, zorder=1)
    points = (
        ("best-fit, published", FAR, "v", 26, [row.published["best-fit"] for row in ordered]),
        ("FGD, published", RIVAL, "s", 30, [row.published["fgd"] for row in ordered]),
        ("Berthmaster, mix learnt", OURS, "o", 42, [row.ours[LEARNT].percent for row in ordered]),
        ("with 5 % of the pods moved", MOVES, "D", 24, [_moved(row) for row in ordered]),
    )
    for name, color, marker, size, values in points:
        if not all(map(isnan, values)):
            axes.scatter(places, values, color=color, marker=marker, s=size, label=name, zorder=3, linewidths=0)
    limits = [row.bound if row.bound is not None else float("nan") for row in ordered]
    axes.scatter(places, limits, color=LIMIT, marker="_", s=160, linewidths=2, label="bound: nobody can do better")
    axes.set_xticks(list(places), [row.trace for row in ordered], rotation=40, ha="right")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("unallocated GPU, %")
    axes.grid(axis="y", color="#eeeeee")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    axes.set_title(_TITLE, loc="left")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _moved(row: Row) -> float:
    return row.ours[MOVED].percent if MOVED in row.ours else float("nan")
