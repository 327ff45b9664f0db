"""The demand mix: which shapes of pods are wanted how often. All tables of the policy are made from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from fleet.device import WHOLE_MILLI, AskKind
from fleet.pod import Pod

COVERED_RATIO: Final = 0.95
_SHAPES_KEPT: Final = 4096
_TYPICAL_KEPT: Final = 128
FIRST_LESSON: Final = 50
_REMEMBERED: Final = 12_800  # pods; FIRST_LESSON doubled eight times
_LEAST_KEPT: Final = 0.2  # what a shape seen once weighs after two half-lives is kept, after three it is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one kind of pod asks; `count` 0 = CPU only, `milli_gpu` is per device, `models` sorted, empty = any."""

    milli_cpu: int
    memory_bytes: int = 0
    count: int = 0
    milli_gpu: int = 0
    models: tuple[str, ...] = ()

    @property
    def total_milli_gpu(self) -> int:
        """Return the milli-GPU asked over all devices."""
        return self.count * self.milli_gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Shapes with how often each was seen, > 0, in a canonical order."""

    shapes: tuple[tuple[Shape, int], ...] = ()

    @classmethod
    def of(cls, counts: Mapping[Shape, int]) -> Mix:
        """Return the mix of these counts, most frequent first."""
        return cls(shapes=tuple(sorted(counts.items(), key=lambda item: (-item[1], _order(item[0])))))

    @property
    def total_milli_gpu(self) -> int:
        """Return the milli-GPU that all pods of the mix ask together."""
        return sum(shape.total_milli_gpu * n for shape, n in self.shapes)

    def typical(self) -> tuple[tuple[Shape, int], ...]:
        """Return the most frequent shapes that cover 95 % of the pods, memory left out of account.

        Source: the target workload of Weng et al., USENIX ATC 2023. At most 128 shapes are kept.
        """
        counts: Counter[Shape] = Counter()
        for shape, n in self.shapes:
            merged = Shape(milli_cpu=shape.milli_cpu, count=shape.count, milli_gpu=shape.milli_gpu, models=shape.models)
            counts[merged] += n
        wanted = COVERED_RATIO * sum(counts.values())
        chosen: list[tuple[Shape, int]] = []
        covered = 0
        for shape, n in Mix.of(counts).shapes[:_TYPICAL_KEPT]:
            if covered >= wanted:
                break
            chosen.append((shape, n))
            covered += n
        return tuple(chosen)


def _order(shape: Shape) -> tuple[int, int, int, int, tuple[str, ...]]:
    return (shape.count, shape.milli_gpu, shape.milli_cpu, shape.memory_bytes, shape.models)


def shape_of(pod: Pod, device_mib: int = 0) -> Shape:
    """Return what the pod asks; a share of memory alone counts as that part of a card of `device_mib`."""
    ask = pod.ask
    if (
        ask is None or ask.kind is AskKind.PARTITION
    ):  # an instance takes nothing that shares or whole devices could have
        return Shape(milli_cpu=pod.requests.milli_cpu, memory_bytes=pod.requests.memory_bytes)
    milli = ask.milli_gpu
    if ask.kind is AskKind.SHARE and ask.memory_mib > 0 and device_mib > 0:
        milli = max(milli, min(WHOLE_MILLI, -(-WHOLE_MILLI * ask.memory_mib // device_mib)))
    return Shape(
        milli_cpu=pod.requests.milli_cpu,
        memory_bytes=pod.requests.memory_bytes,
        count=ask.count,
        milli_gpu=milli,
        models=tuple(sorted(set(ask.models))),
    )


def mix_of(pods: Iterable[Pod]) -> Mix:
    """Return the mix of these pods."""
    return Mix.of(Counter(map(shape_of, pods)))


@cache
def default_mix() -> Mix:
    """Return the mix of the openb default trace: what is assumed until enough pods have been seen."""
    text = resources.files("binpack").joinpath("data", "default_mix.json").read_text("utf-8")
    return Mix.of(
        {
            Shape(
                milli_cpu=milli_cpu,
                memory_bytes=memory_mib * 2**20,
                count=count,
                milli_gpu=milli_gpu,
                models=tuple(models),
            ): n
            for milli_cpu, memory_mib, count, milli_gpu, models, n in json.loads(text)["shapes"]
        }
    )


class Lessons:
    """Counts shapes as they arrive and says when it is time for new tables: at 50, 100, 200, 400, ... pods.

    The past fades: whenever 12,800 pods are remembered, every count is halved, so that from then on new tables come
    every 6,400 pods, which are also the half-life of what was seen. A pod that left was demand all the same and fades
    no faster. Of more than 4,096 different shapes the rare half goes.
    """

    def __init__(self) -> None:
        self._counts: dict[Shape, float] = {}
        self._remembered = 0.0
        self._next = FIRST_LESSON

    def learn(self, shapes: Iterable[Shape]) -> Mix | None:
        """Count the shapes; return the new mix whenever their number has passed the next mark."""
        counts = self._counts
        is_time = False
        for shape in shapes:
            counts[shape] = counts.get(shape, 0.0) + 1.0
            self._remembered += 1.0
            if self._remembered >= self._next:
                is_time = True
                self._next = min(2 * self._next, _REMEMBERED)
                if self._remembered >= _REMEMBERED:
                    self._keep({shape: n / 2 for shape, n in counts.items() if n / 2 >= _LEAST_KEPT})
                    counts = self._counts
        if len(counts) > _SHAPES_KEPT:
            self._keep(dict(Counter(counts).most_common(_SHAPES_KEPT // 2)))
        return Mix.of({shape: max(1, round(n)) for shape, n in self._counts.items()}) if is_time else None

    def _keep(self, counts: dict[Shape, float]) -> None:
        self._counts = counts
        self._remembered = sum(counts.values())
