"""Kinds of nodes: what decides how many of which pods a node could ever hold."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """What a node could hold when empty; memory is rounded down so that near-equal machines share a class.

    Attributes:
        model: Number of the model of its devices.
    """

    model: int
    devices: int
    milli_cpu: int
    memory_bytes: int

    @classmethod
    def of(cls, node: Node, model: int) -> NodeClass:
        """Return the class of a node whose devices are of this model: whole cores, five significant bits of memory."""
        memory = max(0, node.allocatable.memory_bytes)
        step = 1 << max(0, memory.bit_length() - 5)
        return cls(
            model=model,
            devices=len(node.devices),
            milli_cpu=max(0, node.allocatable.milli_cpu) // 1000 * 1000,
            memory_bytes=memory // step * step,
        )
