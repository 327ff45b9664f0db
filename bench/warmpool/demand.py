"""What is drawn: made-up demand with known laws, and the replicas that real traffic would have needed.

replicas(t) = max over 6 minutes of ceil(rate / cap), cap = the 99.95 % quantile of the rate / 60 (flash: the maximum
/ 60). A draw is a replica more, all of a minute's at one time; in a gap of the trace nothing is known or drawn. The
traces are those of bench/forecast_traces and, for the weeks missing there, of bench/warmpool/traces.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HERE = Path(__file__).parent
DAY_MIN = 1440
STEP_S = 15
LARGEST = 60
_SMOOTH_MIN = 6
_QUANTILE = 0.9995
MADE_UP_DAYS = 28
# Weeks of the World Cup: first and last day (1 May is 0), and which part of the rates the fleet of 60 covers.
WORLD_CUP = {
    "worldcup-flash": (0, 21, 1.0),
    "worldcup-ordinary": (21, 39, _QUANTILE),
    "worldcup-tournament": (39, 74, _QUANTILE),
    "worldcup-finals": (52, 74, _QUANTILE),
}
# Coefficient of variation within a window: the median of the pool's windows (see bench/scaler/traces), at most 3.
SERVEGEN_CV = {"large": 2.0165, "mid": 3.0, "small": 2.1765}
TRACES = (*WORLD_CUP, "nasa-july", "nasa-august", *(f"servegen-{name}" for name in SERVEGEN_CV))
MADE_UP = (
    *(f"poisson-{rate}" for rate in (6, 30, 120)),
    *(f"batch{size}-{rate}" for rate in (6, 30, 120) for size in (2, 4, 8)),
)
TITLES = {
    "worldcup-flash": "World Cup, flash crowd",
    "worldcup-ordinary": "World Cup, ordinary weeks",
    "worldcup-tournament": "World Cup, tournament",
    "worldcup-finals": "World Cup, finals",
    "nasa-july": "NASA, July",
    "nasa-august": "NASA, August",
    "servegen-large": "ServeGen large",
    "servegen-mid": "ServeGen mid",
    "servegen-small": "ServeGen small",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is drawn minute by minute.

    Attributes:
        draws_s: Times of each minute's draws; None = not known.
        freed: Replicas that ended in the minute, shape (minutes,).
        in_use: Replicas at its end; nan = not known. None = made up, without a fleet.
    """

    draws_s: tuple[tuple[float, ...] | None, ...]
    freed: Floats
    in_use: Floats | None

    @property
    def minutes(self) -> int:
        """Return how long it is."""
        return len(self.draws_s)


def demand(name: str, seed: int) -> Demand:
    """Return the demand of a name; the same seed gives the same draws."""
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if name in MADE_UP:
        return _made_up(name, random)
    rates, part = _rates(name, random)
    return _of_rates(rates, float(np.nanquantile(rates, part)) / LARGEST, random)


def title(name: str) -> str:
    """Return a name for people."""
    if name in TITLES:
        return TITLES[name]
    law, rate = name.split("-")
    return f"Poisson, {rate}/h" if law == "poisson" else f"batches of {law[5:]}, {rate}/h"


def _made_up(name: str, random: Generator) -> Demand:
    law, rate = name.split("-")
    size = 1.0 if law == "poisson" else float(law[5:])
    minutes = MADE_UP_DAYS * DAY_MIN
    events = random.poisson(float(rate) / 60.0 / size, minutes)
    draws = []
    for minute, count in enumerate(events):
        found: list[float] = []
        for _ in range(count):
            at_s = 60.0 * minute + STEP_S * float(random.integers(0, 60 // STEP_S))
            found += [at_s] * int(random.geometric(1.0 / size))
        draws.append(tuple(sorted(found)))
    return Demand(draws_s=tuple(draws), freed=np.zeros(minutes), in_use=None)


def _of_rates(rates: Floats, cap: float, random: Generator) -> Demand:
    wanted = np.ceil(rates / cap)
    padded = np.concatenate((np.full(_SMOOTH_MIN - 1, -1.0), np.nan_to_num(wanted, nan=-1.0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, _SMOOTH_MIN)
    replicas = np.where(np.isnan(wanted), np.nan, windows.max(axis=1))
    steps = np.diff(replicas, prepend=replicas[0])
    offsets = STEP_S * random.integers(0, 60 // STEP_S, len(steps))
    draws = tuple(
        None if np.isnan(now) else (60.0 * minute + float(offset),) * int(max(0.0, np.nan_to_num(step)))
        for minute, (now, step, offset) in enumerate(zip(replicas, steps, offsets, strict=True))
    )
    return Demand(draws_s=draws, freed=np.nan_to_num(np.maximum(0.0, -steps)), in_use=replicas)


def _rates(name: str, random: Generator) -> tuple[Floats, float]:
    """Return requests per minute, nan in gaps, and the part of them that the whole fleet covers."""
    if name in WORLD_CUP:
        first, last, part = WORLD_CUP[name]
        return _world_cup()[first * DAY_MIN : last * DAY_MIN], part
    family, which = name.split("-")
    if family == "nasa":
        return _read("forecast_traces", f"nasa_{which}"), _QUANTILE
    mean = 60.0 * np.repeat(_read("forecast_traces", f"servegen_{which}"), 10)
    spread = SERVEGEN_CV[which] ** 2
    known = np.isfinite(mean) & (mean > 0)
    counts = np.where(np.isfinite(mean), 0.0, np.nan)
    counts[known] = random.gamma(mean[known] / spread, spread)
    return counts, _QUANTILE


@lru_cache(maxsize=1)
def _world_cup() -> Floats:
    """Return 1 May to 13 July 1998."""
    parts = (
        ("warmpool/traces", "worldcup_may_1_7"),
        ("forecast_traces", "worldcup_may"),
        ("warmpool/traces", "worldcup_may_29_june_12"),
        ("forecast_traces", "worldcup_cup"),
        ("warmpool/traces", "worldcup_july_4_13"),
    )
    return np.concatenate([_read(folder, name) for folder, name in parts])


@lru_cache(maxsize=32)
def _read(folder: str, name: str) -> Floats:
    text = gzip.decompress((HERE.parent / folder / f"{name}.txt.gz").read_bytes()).decode()
    return np.array([float(line) if line else np.nan for line in text.split("\n")[:-1]])
