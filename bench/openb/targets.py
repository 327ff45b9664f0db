"""What was promised, beside what was measured; a target whose cells were not run is not judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.openb.cells import FGD, GIVEN, LEARNT, MIXED, MOVED
from bench.openb.summary import Row

# Unallocated GPU at 100 % of arrivals, %, mean of seeds 42..51.
_MOST = {
    "default": 3.8, "gpuspec33": 4.9, "gpuspec25": 4.0, "gpushare100": 11.9, "multigpu50": 2.35, "cpu250": 4.4,
}  # fmt: skip
_MOST_MOVED = {"default": 3.5, "gpuspec33": 4.2, "gpushare100": 11.4}
# The class-value policy as first described, the mix given: mean of ten other shuffles of the same traces.
_FIRST_DESCRIBED = {
    "default": 3.73, "gpushare40": 5.12, "gpushare60": 7.58, "gpushare80": 9.57, "gpushare100": 11.77,
    "multigpu20": 3.28, "multigpu30": 2.88, "multigpu40": 2.57, "multigpu50": 2.27, "gpuspec10": 3.81,
    "gpuspec20": 3.95, "gpuspec25": 3.96, "gpuspec33": 4.73, "cpu050": 3.74, "cpu100": 3.73, "cpu200": 3.72,
    "cpu250": 4.38,
}  # fmt: skip
_SLACK = 0.05
_GAP, _GAP_TRACES, _GAP_MOVED = 0.45, 14, 0.25
_OTHER_SHUFFLES = 0.15
_MS_PER_DECISION = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One target: what was promised, what came out, whether it holds."""

    what: str
    target: str
    measured: str
    is_reached: bool

    def as_json(self) -> dict[str, str]:
        """Return it as it is written."""
        outcome = "reached" if self.is_reached else "missed"
        return {"what": self.what, "target": self.target, "measured": self.measured, "outcome": outcome}


def verdicts(rows: Sequence[Row], cells: Mapping[str, Mapping[str, Any]]) -> list[Verdict]:
    """Return every target that these rows can judge."""
    others = [row for row in rows if row.others is not None]
    found = [
        *_at_most(rows, _MOST, LEARNT, "mix learnt"),
        *_every(rows, LEARNT, "below FGD, mix learnt", "all", _is_below_fgd, _beside_fgd),
        *_every(rows, GIVEN, "mix given: as first described", f"+ {_SLACK}", _is_as_described, _beside_described),
        *_every(rows, FGD, "no class fails more than under FGD", "+ 2 % of its arrivals", _is_fair, _unfair),
        *_every(others, LEARNT, "other shuffles give the same", f"+- {_OTHER_SHUFFLES}", _is_alike, _beside_others),
        *_gaps(rows, LEARNT, _GAP, _GAP_TRACES),
        *_at_most(rows, _MOST_MOVED, MOVED, "5 % moved"),
        *_gaps(rows, MOVED, _GAP_MOVED, len([row for row in rows if MOVED in row.ours])),
    ]
    mixed = [cell for cell in cells.values() if cell["column"] == MIXED]
    if mixed:
        astray = sum(cell["cpu_pods_astray"] for cell in mixed)
        on_gpu_nodes = sum(cell["cpu_pods_on_gpu_nodes"] for cell in mixed)
        came = sum(cell["arrived"].get("cpu", 0) for cell in mixed)
        found.append(
            Verdict(
                what="default with 310 nodes without GPUs: CPU pods on GPU nodes",
                target="none while others have room",
                measured=f"{astray} of {came}; {on_gpu_nodes - astray} when no other had room",
                is_reached=astray == 0,
            )
        )
    times = [row.ours[LEARNT].cpu_ms for row in rows if LEARNT in row.ours]
    if times:
        found.append(
            Verdict(
                what="one decision, books and learning included, slowest trace",
                target=f"{_MS_PER_DECISION:g} ms",
                measured=f"{max(times):.2f} ms of one core",
                is_reached=max(times) <= _MS_PER_DECISION,
            )
        )
    return found


def _at_most(rows: Sequence[Row], most: Mapping[str, float], column: str, what: str) -> list[Verdict]:
    return [
        Verdict(
            what=f"{row.trace}, {what}",
            target=f"<= {most[row.trace]:g} %",
            measured=f"{row.ours[column].percent:.2f} %",
            is_reached=row.ours[column].percent <= most[row.trace],
        )
        for row in rows
        if row.trace in most and column in row.ours
    ]


def _every(
    rows: Sequence[Row],
    column: str,
    what: str,
    target: str,
    holds: Callable[[Row], bool],
    told: Callable[[Row], str],
) -> list[Verdict]:
    """Judge what must hold on every trace, and name those where it does not."""
    judged = [row for row in rows if column in row.ours and LEARNT in row.ours]
    bad = [row for row in judged if not holds(row)]
    if not judged:
        return []
    measured = f"{len(judged) - len(bad)} of {len(judged)} traces"
    if bad:
        measured += "; not " + ", ".join(f"{row.trace} ({told(row)})" for row in bad)
    return [Verdict(what=what, target=target, measured=measured, is_reached=not bad)]


def _is_below_fgd(row: Row) -> bool:
    rivals = [row.published["fgd"], *([row.ours[FGD].percent] if FGD in row.ours else [])]
    return row.ours[LEARNT].percent < min(rivals)


def _beside_fgd(row: Row) -> str:
    return f"{row.ours[LEARNT].percent:.2f}, FGD {row.published['fgd']:.2f}"


def _is_as_described(row: Row) -> bool:
    return row.ours[GIVEN].percent <= _FIRST_DESCRIBED[row.trace] + _SLACK


def _beside_described(row: Row) -> str:
    return f"{row.ours[GIVEN].percent:.2f}, was {_FIRST_DESCRIBED[row.trace]:.2f}"


def _is_fair(row: Row) -> bool:
    return not row.worse


def _unfair(row: Row) -> str:
    return ", ".join(f"{kind} +{100 * more:.1f} %" for kind, more in row.worse.items())


def _is_alike(row: Row) -> bool:
    return row.others is None or row.others.percent <= row.ours[LEARNT].percent + _OTHER_SHUFFLES


def _beside_others(row: Row) -> str:
    return f"{row.others.percent:.2f} after {row.ours[LEARNT].percent:.2f}" if row.others is not None else ""


def _gaps(rows: Sequence[Row], column: str, most: float, wanted: int) -> list[Verdict]:
    ratios = {row.trace: ratio for row in rows if (ratio := row.gap_ratio(column)) is not None}
    if not ratios:
        return []
    wanted = min(wanted, len(ratios))
    over = {trace: ratio for trace, ratio in ratios.items() if ratio > most}
    measured = f"{len(ratios) - len(over)} of {len(ratios)} traces"
    if over:
        measured += "; over: " + ", ".join(f"{trace} {100 * ratio:.0f} %" for trace, ratio in over.items())
    return [
        Verdict(
            what=f"gap to the bound, of FGD's gap, {'5 % moved' if column == MOVED else 'mix learnt'}",
            target=f"<= {100 * most:.0f} % on {wanted} of {len(ratios)}",
            measured=measured,
            is_reached=len(ratios) - len(over) >= wanted,
        )
    ]
