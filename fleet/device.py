"""One GPU, and what a pod asks of GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

WHOLE_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of a node.

    Attributes:
        id: DRA device name, else UUID, else index on the node.
        model: Product name, "" where nothing tells it.
        memory_mib: Memory of the card; None where nothing tells it, and then memory never limits a share that asks
            milli-GPU too.
        is_healthy: False keeps it from being given; whoever holds it already keeps it.
    """

    id: str
    model: str = ""
    memory_mib: int | None = None
    is_healthy: bool = True


class AskKind(Enum):
    """Which books a request for devices is written in."""

    CLASSIC = "classic"  # nvidia.com/gpu on a classic node: a count, kubelet chooses the cards
    CHOSEN = "chosen"  # berthmaster.dev/gpu on a sharing node: whole cards of our choosing
    SHARE = "share"  # part of one card (or of several) on a sharing node


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
    """

    kind: AskKind
    count: int = 1
    milli_gpu: int = WHOLE_MILLI
    memory_mib: int = 0
    models: tuple[str, ...] = ()
    is_ordered: bool = False

    @property
    def is_whole(self) -> bool:
        """Return True where each device must be untouched and is taken as a whole."""
        return self.kind is not AskKind.SHARE

    @property
    def total_milli_gpu(self) -> int:
        """Return the milli-GPU asked over all devices."""
        return self.count * self.milli_gpu
