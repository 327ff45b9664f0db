"""What the forecast is worth: its error beside the simpler rules', the weight it earns, and what a floor would change.

    python -m bench.scaler_forecast                        # seven traces, horizons of 3, 15, 30 and 60 minutes
    python -m bench.scaler_forecast --traces worldcup_cup --horizons 60

Writes bench/results/scaler_forecast.json. WAPE = sum of absolute errors / sum of what came, over every origin of the
last seven days less an hour. The weight is walked through the whole trace hour by hour as the controller would, with
at most ten days of history. "Beyond slots" is of a fluid fleet, its replicas Ready one horizon after the order, need =
rate / 70 % of the slots, on the ten-minute mean alone and with the floor: the part of the requests that comes while
every slot is taken. "Cost" is the floor's replica-hours beside those without it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from scaler.forecast.codes import Rates, encode_all
from scaler.forecast.conformal import quantile
from scaler.forecast.outlook import CONFIDENCE_RATIO, OutlookState, look
from scaler.forecast.points import points
from scaler.forecast.series import DAY_MIN, MINUTES, History
from scaler.forecast.skill import skill, weight
from scaler.forecast.stored import to_bytes

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "scaler_forecast.json"
# Minutes that one value of the file stands for, requests/s per unit of it.
TRACES = {
    "worldcup_may": (1, 1 / 60),
    "worldcup_cup": (1, 1 / 60),
    "nasa_july": (1, 1 / 60),
    "nasa_august": (1, 1 / 60),
    "servegen_large": (10, 1.0),
    "servegen_mid": (10, 1.0),
    "servegen_small": (10, 1.0),
}
HORIZONS = (3, 15, 30, 60)
SCORED_MIN = 7 * DAY_MIN - 60
EVERY_MIN = 60
_HEADROOM = 0.7


def load(name: str) -> Rates:
    """Return a trace as requests/s per minute; an empty line is a gap."""
    step, unit = TRACES[name]
    lines = gzip.decompress((HERE / "forecast_traces" / f"{name}.txt.gz").read_bytes()).decode().split("\n")[:-1]
    values = np.array([float(line) * unit if line else np.nan for line in lines], np.float32)
    return np.repeat(values, step)


def wapes(rates: Rates, horizon: int, step: int) -> dict[str, float]:
    """Return each rule's WAPE in percent."""
    first = len(rates) - SCORED_MIN - horizon + 1
    found = points(rates, first, len(rates) - horizon + 1, horizon)
    yesterday = rates[first - 1 + horizon - DAY_MIN :][: len(found.actual)].astype(np.float64)
    rules = {
        "last": found.last,
        "mean10": found.mean10,
        "yesterday": yesterday,
        "profile": found.profiled,
        "forecast": found.combined,
    }
    known = np.isfinite(found.actual) & (np.arange(first, first + len(found.actual)) % step == 0)
    for told in rules.values():
        known &= np.isfinite(told)
    actual = found.actual[known]
    return {
        name: round(100 * float(np.abs(told[known] - actual).sum() / actual.sum()), 1) for name, told in rules.items()
    }


def walk(rates: Rates, horizon: int) -> dict[str, Any]:
    """Return the weights earned hour by hour, how well the quantile covered, and what the floor would have changed."""
    earned, weights, milliseconds = 0.0, [], []
    covered, told = 0, 0
    plain, floored = _Fleet(rates), _Fleet(rates)
    for end in range(2 * DAY_MIN, len(rates) - horizon - EVERY_MIN, EVERY_MIN):
        past = rates[max(0, end - MINUTES) : end]
        begin = perf_counter()
        found = skill(past, horizon)
        earned = weight(found, earned)
        milliseconds.append(1000 * (perf_counter() - begin))
        weights.append(earned)
        factor = quantile(found.errors, CONFIDENCE_RATIO) if found.low_ratio is not None else None
        ahead = points(rates[: end + EVERY_MIN], end, end + EVERY_MIN, horizon)
        target = slice(end - 1 + horizon, end - 1 + horizon + EVERY_MIN)
        if factor is not None:
            high = ahead.combined * factor
            known = np.isfinite(rates[target]) & np.isfinite(high)
            covered += int((rates[target] <= high)[known].sum())
            told += int(known.sum())
            raised = ahead.mean10 + earned * np.maximum(0.0, np.nan_to_num(high - ahead.mean10))
        else:
            raised = ahead.mean10
        plain.serve(target, ahead.mean10)
        floored.serve(target, raised)
    return {
        "weight_mean": round(float(np.mean(weights)), 3),
        "weight_above_0_ratio": round(float(np.mean(np.array(weights) > 0)), 3),
        "turned_on_or_off": int(np.abs(np.diff(np.array(weights) > 0)).sum()),
        "covered_ratio": round(covered / told, 3) if told else None,
        "beyond_percent": round(plain.beyond_percent, 2),
        "beyond_with_floor_percent": round(floored.beyond_percent, 2),
        "cost_with_floor_ratio": round(floored.replica_min / plain.replica_min, 3),
        "score_ms": round(float(np.median(milliseconds)), 3),
    }


class _Fleet:
    """A fluid fleet, replicas counted in real numbers of one request in progress per second and slot."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._beyond = self._came = self.replica_min = 0.0

    def serve(self, minutes: slice, expected: np.ndarray) -> None:
        came = self._rates[minutes]
        known = np.isfinite(came) & np.isfinite(expected)
        slots = expected[known] / _HEADROOM
        self._beyond += float(np.maximum(0.0, came[known] - slots).sum())
        self._came += float(came[known].sum())
        self.replica_min += float(slots.sum())

    @property
    def beyond_percent(self) -> float:
        return 100 * self._beyond / self._came if self._came else 0.0


def costs(rates: Rates) -> dict[str, float]:
    """Return what one endpoint costs: a minute's look, bytes held and bytes stored."""
    minute = 30_000_000
    history = History.of(encode_all(rates[-(MINUTES - 1) :]), minute)
    state, spent = OutlookState(), []
    for step in range(50):
        begin = perf_counter()
        _, state = look(history, state, 60.0 * minute, 60.0 * (1 + step % 3))
        spent.append(1000 * (perf_counter() - begin))
    return {
        "look_with_score_ms": round(float(np.median(spent)), 3),
        "held_bytes": history.codes().nbytes,
        "stored_bytes": len(to_bytes(history)),
    }


def rows(traces: list[str], horizons: list[int]) -> Iterator[dict[str, Any]]:
    for trace in traces:
        rates = load(trace)
        for horizon in horizons:
            step = TRACES[trace][0]
            yield {"trace": trace, "horizon_min": horizon, "wape_percent": wapes(rates, horizon, step)} | walk(
                rates, horizon
            )


def show(found: list[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold")
    for heading in ("trace", "min ahead", "last", "mean 10", "yesterday", "profile", "forecast"):
        table.add_column(heading, justify="left" if heading == "trace" else "right")
    for heading in ("weight", "in use", "90 % covers", "beyond slots", "with floor", "cost"):
        table.add_column(heading, justify="right")
    for row in found:
        table.add_row(
            row["trace"],
            str(row["horizon_min"]),
            *(f"{row['wape_percent'][rule]:.1f} %" for rule in ("last", "mean10", "yesterday", "profile", "forecast")),
            f"{row['weight_mean']:.2f}",
            f"{row['weight_above_0_ratio']:.0%}",
            "-" if row["covered_ratio"] is None else f"{row['covered_ratio']:.1%}",
            f"{row['beyond_percent']:.2f} %",
            f"{row['beyond_with_floor_percent']:.2f} %",
            f"x{row['cost_with_floor_ratio']:.3f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", nargs="+", choices=TRACES, default=list(TRACES))
    parser.add_argument("--horizons", nargs="+", type=int, default=list(HORIZONS), metavar="MIN")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    console = Console(highlight=False)
    found = []
    for row in rows(options.traces, options.horizons):
        found.append(row)
        console.print(f"{row['trace']}, {row['horizon_min']} min ahead: weight {row['weight_mean']:.2f}", style="dim")
    console.print(show(found))
    report = {
        "command": "python -m bench.scaler_forecast",
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "numpy": version("numpy")},
        "confidence_ratio": CONFIDENCE_RATIO,
        "per_endpoint": costs(load(options.traces[0])),
        "rows": found,
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    console.print(f"per endpoint: {report['per_endpoint']}; written to {options.out.name}")


if __name__ == "__main__":
    main()
