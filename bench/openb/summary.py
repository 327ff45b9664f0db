"""From cells to one row per trace: means over the seeds, the gap to the limit, and who fares worse than under FGD."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.openb.cells import FGD, GIVEN, LEARNT, MOVED, OTHER_SEEDS, SEEDS
from bench.openb.published import at_100, bounds

CLASSES = ("1gpu", "2gpu", "4gpu", "8gpu", "f>=600", "f400-599", "f<400", "cpu")
WORSE_RATIO = 0.02  # of a class's arrivals: how many more of it than FGD may fail

Cells = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One policy on one trace over the seeds; percent of the GPU capacity left unallocated at 100 % of arrivals.

    Attributes:
        seeds: How many.
        percent: Mean, with its spread `sd` between seeds and the `worst` seed.
        failed: Mean number of pods that found no place, by class; arrived: how many came.
        moves: Mean number of moves.
    """

    seeds: int
    percent: float
    sd: float
    worst: float
    failed: Mapping[str, float]
    arrived: Mapping[str, float]
    moves: float
    cpu_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One trace.

    Attributes:
        ours: By column (learnt, given, moved) and FGD re-made, those that were run.
        others: Ours learnt on seeds on which nothing was chosen.
        published: By policy.
        bound: Proved limit; None where none was computed.
    """

    trace: str
    ours: Mapping[str, Figures]
    others: Figures | None
    published: Mapping[str, float]
    bound: float | None
    worse: Mapping[str, float] = field(default_factory=dict)

    def gap_ratio(self, column: str) -> float | None:
        """Return how far a column is above the limit, relative to how far the published FGD is."""
        figures = self.ours.get(column)
        if figures is None or self.bound is None:
            return None
        return (figures.percent - self.bound) / (self.published["fgd"] - self.bound)


def rows(cells: Cells) -> list[Row]:
    """Return a row per trace that has any cell, in the order of names."""
    published, limits = at_100(), bounds()
    found = []
    for trace in sorted({cell["trace"] for cell in cells.values()}):
        here = [cell for cell in cells.values() if cell["trace"] == trace]
        ours = {
            column: figures
            for column in (LEARNT, GIVEN, MOVED, FGD)
            if (figures := _figures(_of(here, column, SEEDS))) is not None
        }
        if not ours:
            continue
        found.append(
            Row(
                trace=trace,
                ours=ours,
                others=_figures(_of(here, LEARNT, OTHER_SEEDS)),
                published=published[trace],
                bound=limits.get(trace),
                worse=_worse(_of(here, LEARNT, SEEDS), _of(here, FGD, SEEDS)),
            )
        )
    return found


def _of(cells: Iterable[Mapping[str, Any]], column: str, seeds: Iterable[int]) -> dict[int, Mapping[str, Any]]:
    wanted = set(seeds)
    return {cell["seed"]: cell for cell in cells if cell["column"] == column and cell["seed"] in wanted}


def _figures(cells: Mapping[int, Mapping[str, Any]]) -> Figures | None:
    if not cells:
        return None
    runs = list(cells.values())
    percents = [run["unallocated_percent"] for run in runs]
    return Figures(
        seeds=len(runs),
        percent=statistics.fmean(percents),
        sd=statistics.stdev(percents) if len(percents) > 1 else 0.0,
        worst=max(percents),
        failed=_means(runs, "failed"),
        arrived=_means(runs, "arrived"),
        moves=statistics.fmean(run["moves"] for run in runs),
        cpu_ms=statistics.median(run["cpu_ms_per_decision"] for run in runs),
    )


def _means(runs: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    return {kind: statistics.fmean(run[name].get(kind, 0) for run in runs) for kind in CLASSES}


def _worse(ours: Mapping[int, Mapping[str, Any]], fgd: Mapping[int, Mapping[str, Any]]) -> dict[str, float]:
    """Return the classes that fail more often than under FGD on the same sequences by over 2 % of their arrivals.

    The value is by how much, as a part of the arrivals.
    """
    both = sorted(set(ours) & set(fgd))
    found = {}
    for kind in CLASSES:
        arrived = sum(ours[seed]["arrived"].get(kind, 0) for seed in both)
        more = sum(ours[seed]["failed"].get(kind, 0) - fgd[seed]["failed"].get(kind, 0) for seed in both)
        if arrived and more / arrived > WORSE_RATIO:
            found[kind] = more / arrived
    return found
