"""Which pods come when, and for how long: drawn from a trace, the same for every policy.

Arrivals are Poisson. A pod is drawn from the trace with equal chances, with its own life, cut at the 99th percentile of
the trace; the rate is such that the GPU time that arrives is the wanted part of the GPU time that there is::

    rate = load * devices * 1000 / mean(milli-GPU * life)
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from binpack.arrivals import milli_gpu_of
from binpack.index.kept import asks_several
from binpack.index.mix import Mix, Shape, shape_of
from binpack.lifetimes.values import CUT_RATIO, Lived
from fleet.device import WHOLE_MILLI
from fleet.pod import Pod

_LEAST_LIFE_S = 1.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod, when it comes, and how long it will hold its berth once it has one."""

    at_s: float
    pod: Pod
    life_s: float


def cut(lived: Sequence[Lived]) -> list[Lived]:
    """Return the pods in order of name, lives cut to the 99th percentile, and to a second at least."""
    most = float(np.quantile([one.life_s for one in lived], CUT_RATIO)) if lived else 0.0
    ordered = sorted(lived, key=lambda one: one.pod.name)
    return [replace(one, life_s=max(_LEAST_LIFE_S, min(one.life_s, most))) for one in ordered]


def rate_per_s(lived: Sequence[Lived], devices: int, load_ratio: float) -> float:
    """Return the arrivals per second that offer this load; 0 where the pods ask no GPU time."""
    milli_gpu_s = sum(milli_gpu_of(one.pod) * one.life_s for one in lived)
    return load_ratio * devices * WHOLE_MILLI * len(lived) / milli_gpu_s if milli_gpu_s else 0.0


def mix_by_load(lived: Sequence[Lived]) -> Mix:
    """Return the mix as it stands in a cluster at a moment: each shape as often as it lives long."""
    weights: Counter[Shape] = Counter()
    for one in lived:
        weights[shape_of(one.pod)] += round(one.life_s)
    return Mix.of(weights)


def usual(lived: Sequence[Lived], devices: int) -> list[tuple[Pod, float]]:
    """Return how many pods of several whole devices the mix by load means at a moment, with all devices in use."""
    rate = rate_per_s(lived, devices, 1.0)
    return [(one.pod, rate * one.life_s / len(lived)) for one in lived if asks_several(one.pod)]


def drawn(lived: Sequence[Lived], rate: float, until_s: float, seed: int) -> Iterator[Arrival]:
    """Yield arrivals from 0 s to `until_s`, named NAME-N."""
    generator = random.Random(seed)
    at_s, number = generator.expovariate(rate), 0
    while at_s < until_s:
        one = generator.choice(lived)
        name = f"{one.pod.name}-{number}"
        yield Arrival(at_s, replace(one.pod, name=name, uid=name), one.life_s)
        at_s, number = at_s + generator.expovariate(rate), number + 1
