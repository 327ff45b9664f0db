"""What is replayed: made-up loads with known answers, and real traces; the same seed gives the same requests.

Every load begins with five minutes that are not counted, at the level with which it goes on: the time before where the
trace has it, else the first five minutes' requests at random times.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from scaler.simulate.load import Load

TRACES = Path(__file__).parent / "traces"
LEAD_IN_S = 300
WEB_PEAK_RPS = 100.0
WEB_SERVICE_S = 1.0
SERVEGEN_PEAK_RPS = 20.0
SERVEGEN_SERVICE_S = 5.0
SERVEGEN_MOST_CV = 3.0
SERVEGEN_STEP_S = 600
OUTPUT_TOKEN_S = 0.03  # from one token to the next
AZURE_INPUT_TOKENS_PER_S = 3000.0
MOONCAKE_INPUT_TOKENS_PER_S = 8000.0
COPY_SPREAD_S = 0.5  # copies of one request come within this time
SHORTEST_SERVICE_S = 0.001

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One load of the bench.

    Attributes:
        title: For people.
        make: Draws the requests.
        is_long: Whether it is one of the long traces (conv, Mooncake, and all of 12 h).
        is_check: Whether the rules were not tuned on it.
        is_surge: Whether it only shows how fast capacity can grow.
        jump_s: When the rate jumps once for good; None = it does not.
    """

    title: str
    make: Callable[[Generator], Load]
    is_long: bool = False
    is_check: bool = False
    is_surge: bool = False
    jump_s: int | None = None


@lru_cache(maxsize=2)
def load(name: str, seed: int) -> Load:
    """Return a workload's requests; each workload has random numbers of its own."""
    return WORKLOADS[name].make(np.random.default_rng([seed, zlib.crc32(name.encode())]))


def piecewise(points: Sequence[tuple[float, float]]) -> Callable[[Generator], Load]:
    """Return a Poisson load whose rate runs in straight lines through (second, rate) points; a jump has two at once."""

    def make(random: Generator) -> Load:
        arrivals = []
        for (from_s, from_rps), (to_s, to_rps) in pairwise(points):
            if to_s == from_s:
                continue
            place = random.uniform(0.0, 1.0, random.poisson((to_s - from_s) * (from_rps + to_rps) / 2))
            mean = (from_rps + to_rps) / 2
            slope = (to_rps - from_rps) / (2 * mean)
            # The share of requests before part x of the piece is x (1 - slope) + slope x^2; solved for x, stably.
            part = 2 * place / ((1 - slope) + np.sqrt((1 - slope) ** 2 + 4 * slope * place))
            arrivals.append(from_s + part * (to_s - from_s))
        return _exponential(np.concatenate(arrivals), WEB_SERVICE_S, int(points[-1][0]), random)

    return make


def web(trace: str, begin: str) -> Callable[[Generator], Load]:
    """Return 12 h of a web site by minute, scaled to 100 requests/s in its busiest minute, 1 s each."""

    def make(random: Generator) -> Load:
        rows = _rows(trace)
        first = next(place for place, row in enumerate(rows) if row[0] == begin)
        counts = np.array([float(row[1]) for row in rows[first - 5 : first + 720]])
        expected = counts / counts[5:].max() * WEB_PEAK_RPS * 60.0
        minute = np.repeat(np.arange(counts.size), random.poisson(expected))
        return _exponential((minute + random.uniform(size=minute.size)) * 60.0, WEB_SERVICE_S, counts.size * 60, random)

    return make


def servegen(pool: str, day: int) -> Callable[[Generator], Load]:
    """Return 12 h of an LLM service: Gamma gaps with the pool's median variation, at most 3, 20 requests/s at most."""

    def make(random: Generator) -> Load:
        table = np.array([[float(value) for value in row] for row in _rows(f"servegen_{pool}_per_10_minutes")])
        first = int(np.searchsorted(table[:, 0], (day - 1) * 86_400.0))
        rate = table[first - 1 : first + 72, 1]
        rate = rate / rate[1:].max() * SERVEGEN_PEAK_RPS
        edges_s = np.concatenate([[0.0], LEAD_IN_S + SERVEGEN_STEP_S * np.arange(73.0)])
        due = np.concatenate([[0.0], np.cumsum(np.diff(edges_s) * rate)])  # requests expected by each edge
        shape = min(table[0, 2], SERVEGEN_MOST_CV) ** -2.0
        gaps = random.gamma(shape, 1.0 / shape, int(due[-1] + 50.0 * np.sqrt(due[-1])))
        place = np.cumsum(gaps)
        arrival_s = np.interp(place[place < due[-1]], due, edges_s)
        return _exponential(arrival_s, SERVEGEN_SERVICE_S, int(edges_s[-1]), random)

    return make


def tokens(trace: str, copies: int, input_tokens_per_s: float) -> Callable[[Generator], Load]:
    """Return an LLM trace by request, each `copies` times; it takes its input's time and 0.03 s per output token."""

    def make(random: Generator) -> Load:
        came_s, inputs, outputs = np.array([[float(value) for value in row] for row in _rows(trace)]).T
        held_s = np.maximum(inputs / input_tokens_per_s + outputs * OUTPUT_TOKEN_S, SHORTEST_SERVICE_S)
        arrival_s, held_s = np.repeat(came_s, copies), np.repeat(held_s, copies)
        arrival_s = arrival_s + random.uniform(0.0, COPY_SPREAD_S, arrival_s.size)
        early = held_s[arrival_s < LEAD_IN_S]
        arrival_s = np.concatenate([random.uniform(0.0, LEAD_IN_S, early.size), arrival_s + LEAD_IN_S])
        return _sorted(arrival_s, np.concatenate([early, held_s]), int(arrival_s.max()) + 1)

    return make


def _exponential(arrival_s: Floats, mean_s: float, duration_s: int, random: Generator) -> Load:
    held_s = np.maximum(random.exponential(mean_s, arrival_s.size), SHORTEST_SERVICE_S)
    return _sorted(arrival_s, held_s, duration_s)


def _sorted(arrival_s: Floats, held_s: Floats, duration_s: int) -> Load:
    order = np.argsort(arrival_s, kind="stable")
    return Load(arrival_s=arrival_s[order], service_s=held_s[order], duration_s=duration_s)


@lru_cache(maxsize=4)
def _rows(trace: str) -> list[list[str]]:
    with gzip.open(TRACES / f"{trace}.csv.gz", "rt", encoding="utf-8") as lines:
        return list(csv.reader(lines))[1:]


_WORLD_CUP, _NASA = "worldcup98_per_minute", "nasa_http_1995_per_minute"

WORKLOADS: dict[str, Workload] = {
    "step": Workload(
        title="step 10 to 100 rps", make=piecewise([(0, 10), (600, 10), (600, 100), (1600, 100)]), jump_s=600
    ),
    "surge": Workload(
        title="surge 10 to 10,000 rps",
        make=piecewise([(0, 10), (600, 10), (600, 10_000), (900, 10_000)]),
        is_surge=True,
        jump_s=600,
    ),
    "spike": Workload(
        title="spike of 60 s",
        make=piecewise([(0, 10), (900, 10), (900, 100), (960, 100), (960, 10), (2100, 10)]),
    ),
    "ramp": Workload(
        title="ramp of 10 min", make=piecewise([(0, 10), (600, 10), (1200, 100), (1800, 100), (2400, 10), (3000, 10)])
    ),
    "flat": Workload(title="flat 50 rps", make=piecewise([(0, 50), (3900, 50)])),
    "code": Workload(title="Azure code x10", make=tokens("azure_llm_code_2023", 10, AZURE_INPUT_TOKENS_PER_S)),
    "conv": Workload(
        title="Azure conv x4", make=tokens("azure_llm_conv_2023", 4, AZURE_INPUT_TOKENS_PER_S), is_long=True
    ),
    "mooncake": Workload(
        title="Mooncake x2", make=tokens("mooncake_conversation", 2, MOONCAKE_INPUT_TOKENS_PER_S), is_long=True
    ),
    "nasa": Workload(title="NASA 13 July", make=web(_NASA, "1995-07-13T06:00"), is_long=True),
    "servegen-large": Workload(title="ServeGen large", make=servegen("large", 9), is_long=True),
    "servegen-mid": Workload(title="ServeGen mid", make=servegen("mid", 9), is_long=True),
    "servegen-small": Workload(title="ServeGen small", make=servegen("small", 9), is_long=True),
    "worldcup": Workload(title="World Cup 10 June", make=web(_WORLD_CUP, "1998-06-10T12:00"), is_long=True),
    "nasa-20": Workload(title="NASA 20 July", make=web(_NASA, "1995-07-20T06:00"), is_long=True, is_check=True),
    "worldcup-14": Workload(
        title="World Cup 14 June", make=web(_WORLD_CUP, "1998-06-14T12:00"), is_long=True, is_check=True
    ),
    "worldcup-8": Workload(
        title="World Cup 8 July", make=web(_WORLD_CUP, "1998-07-08T12:00"), is_long=True, is_check=True
    ),
    "servegen-large-11": Workload(
        title="ServeGen large, day 11", make=servegen("large", 11), is_long=True, is_check=True
    ),
    "servegen-mid-11": Workload(title="ServeGen mid, day 11", make=servegen("mid", 11), is_long=True, is_check=True),
}
