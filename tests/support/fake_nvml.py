"""NVML as a test wants it: devices with MIG instances, counters, processes, and faults per question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scaler.observer.nvml import Memory, NvmlError


@dataclass(eq=False)
class Card:
    """A device or an instance; `faults` maps a method's name to the reason it gives."""

    uuid: str = "GPU-0"
    model: str = "NVIDIA H100 80GB HBM3"
    used_mib: int = 30_000
    free_mib: int = 50_000
    gpu_percent: float = 55.0
    memory_percent: float = 20.0
    power_w: float = 300.0
    temperature_c: float = 42.0
    pids: tuple[int, ...] = ()
    has_counters: bool = True
    # GPM: percent over the time between two samples, by metric.
    percents: dict[int, float] = field(default_factory=lambda: {1: 60.0, 2: 50.0, 3: 25.0, 5: 12.5, 10: 40.0})
    instances: list[tuple[int, str, Card]] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)


class Sample:
    def __init__(self, card: Card) -> None:
        self.card = card


class FakeNvml:
    """The Protocol `Nvml`, with `faults` of the library itself beside those of its cards."""

    def __init__(self, *cards: Card) -> None:
        self.cards = list(cards)
        self.faults: dict[str, str] = {}
        self.opened = 0
        self.closed = 0
        self.samples: set[Sample] = set()

    def _fail(self, what: str, faults: Mapping[str, str]) -> None:
        if what in faults:
            raise NvmlError(faults[what])

    def open(self) -> None:
        self._fail("open", self.faults)
        self.opened += 1

    def close(self) -> None:
        self._fail("close", self.faults)
        self.closed += 1

    def count(self) -> int:
        self._fail("count", self.faults)
        return len(self.cards)

    def device(self, index: int) -> Card:
        card = self.cards[index]
        self._fail("device", card.faults)
        return card

    def instances(self, device: Card) -> Sequence[tuple[int, str, Card]]:
        self._fail("instances", device.faults)
        return device.instances

    def uuid(self, device: Card) -> str:
        self._fail("uuid", device.faults)
        return device.uuid

    def model(self, device: Card) -> str:
        return device.model

    def memory(self, handle: Card) -> Memory:
        self._fail("memory", handle.faults)
        return Memory(used_bytes=handle.used_mib * 2**20, free_bytes=handle.free_mib * 2**20)

    def utilisation(self, device: Card) -> tuple[float, float]:
        self._fail("utilisation", device.faults)
        return device.gpu_percent, device.memory_percent

    def power_w(self, device: Card) -> float:
        self._fail("power_w", device.faults)
        return device.power_w

    def temperature_c(self, device: Card) -> float:
        self._fail("temperature_c", device.faults)
        return device.temperature_c

    def processes(self, handle: Card) -> tuple[int, ...]:
        self._fail("processes", handle.faults)
        return handle.pids

    def has_counters(self, device: Card) -> bool:
        self._fail("has_counters", device.faults)
        return device.has_counters

    def sample(self, device: Card, instance: int | None) -> Sample:
        card = device if instance is None else next(card for number, _, card in device.instances if number == instance)
        self._fail("sample", card.faults)
        sample = Sample(card)
        self.samples.add(sample)
        return sample

    def free(self, sample: Sample) -> None:
        self.samples.remove(sample)  # KeyError: freed twice

    def between(self, first: Sample, second: Sample, metrics: Sequence[int]) -> Mapping[int, float]:
        assert first in self.samples, "a sample was used after it had been freed"
        assert second in self.samples, "a sample was used after it had been freed"
        assert first.card is second.card, "samples of two devices"
        self._fail("between", first.card.faults)
        return {metric: first.card.percents[metric] for metric in metrics if metric in first.card.percents}
