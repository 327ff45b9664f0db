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
_TYPICAL_KEPT: Final = 128


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
