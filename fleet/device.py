"""One GPU, and what a pod asks of GPUs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

WHOLE_MILLI = 1000


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One MIG instance of a device.

    Attributes:
        profile: Its name, 2g.20gb say.
        start: The memory slice at which it begins.
        uuid: By which the driver and containers know it, MIG-…; "" where nobody told, or of one yet to be made.
    """

    profile: str
    start: int
    uuid: str = ""

    @property
    def place(self) -> Partition:
        """Return it without its UUID: profile and start, which is all that decides what may stand beside it."""
        return Partition(self.profile, self.start) if self.uuid else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of a node.

    Attributes:
        id: DRA device name, else UUID, else index on the node.
        model: Product name, "" where nothing tells it.
        memory_mib: Memory of the card; None where nothing tells it, and then memory never limits a share that asks
            milli-GPU too.
        is_healthy: False keeps it from being given; whoever holds it already keeps it.
        partitions: None = not in MIG mode, given whole or in shares. In MIG mode it is given by instances alone: the
            ones listed, or, where none are, any that the card's geometry allows.
        island: Number of the group of devices with a fast link between them on this node; 0 = of no group.
    """

    id: str
    model: str = ""
    memory_mib: int | None = None
    is_healthy: bool = True
    partitions: tuple[Partition, ...] | None = None
    island: int = 0


class AskKind(Enum):
    """Which books a request for devices is written in."""

    CLASSIC = "classic"  # nvidia.com/gpu on a classic node: a count, kubelet chooses the cards
    CHOSEN = "chosen"  # berthmaster.dev/gpu on a sharing node: whole cards of our choosing
    SHARE = "share"  # part of one card (or of several) on a sharing node
    PARTITION = "partition"  # one MIG instance of a card in MIG mode on a sharing node


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One of several ways to serve a pod: so many devices of a model.

    Attributes:
        cost_milli: What a served token costs there, in thousandths of any unit; 0 = not said.
    """

    model: str
    count: int
    cost_milli: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAsk:
    """What one pod asks of the GPUs of one node.

    Attributes:
        kind: Which books.
        count: Number of different devices, >= 1.
        milli_gpu: Share of each device in thousandths, 0..1000; 0 only for a share that asks memory alone.
        memory_mib: Memory on each device, 0 = not asked.
        models: Acceptable product names; empty = any.
        is_ordered: True where the order of `models` is a preference.
        profile: Of the MIG instance asked for; its `milli_gpu` is a nominal share, for sums.
        is_one_island: The devices must be of one island.
        alternatives: Models with counts of their own, the preferred first; `count` and `models` then are the largest
            count and all the models. Empty = `models` and `count` say all.
    """

    kind: AskKind
    count: int = 1
    milli_gpu: int = WHOLE_MILLI
    memory_mib: int = 0
    models: tuple[str, ...] = ()
    is_ordered: bool = False
    profile: str = ""
    is_one_island: bool = False
    alternatives: tuple[Alternative, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Return True where each device must be untouched and is taken as a whole."""
        return self.kind is AskKind.CHOSEN or self.kind is AskKind.CLASSIC

    @property
    def total_milli_gpu(self) -> int:
        """Return the milli-GPU asked over all devices."""
        return self.count * self.milli_gpu

    def variants(self) -> tuple[DeviceAsk, ...]:
        """Return the plain asks any of which will do, the preferred first: itself where it has no alternatives."""
        return _variants(self) if self.alternatives else (self,)


@lru_cache(maxsize=4096)
def _variants(ask: DeviceAsk) -> tuple[DeviceAsk, ...]:
    return tuple(
        replace(ask, count=one.count, models=(one.model,), is_ordered=False, alternatives=())
        for one in ask.alternatives
    )
