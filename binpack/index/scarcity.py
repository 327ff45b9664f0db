"""Whether CPU or GPUs run out first, and what follows from it for the potential."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from binpack.index.mix import Mix
from binpack.index.node_class import NodeClass
from binpack.index.potential import Weights
from fleet.device import WHOLE_MILLI

_ENOUGH_RATIO: Final = 0.9
_STEPS: Final = 4  # few steps, so that tables are seldom made anew as nodes come and go


def cpu_demand_ratio(mix: Mix, nodes: Iterable[tuple[NodeClass, int]]) -> float:
    """Return the CPU wanted of nodes with devices over what they have, once the mix asks for every device.

    Pods without devices count as far as the nodes without devices cannot hold them.

    Args:
        mix: The demand.
        nodes: Node classes with how many nodes there are of each.
    """
    held = list(nodes)
    beside_devices = sum(n * one.milli_cpu for one, n in held if one.devices)
    elsewhere = sum(n * one.milli_cpu for one, n in held if not one.devices)
    devices = sum(n * one.devices for one, n in held)
    asked = mix.total_milli_gpu
    if not asked or not beside_devices:
        return 0.0
    scale = WHOLE_MILLI * devices / asked
    with_devices = scale * sum(n * shape.milli_cpu for shape, n in mix.shapes if shape.count)
    without = scale * sum(n * shape.milli_cpu for shape, n in mix.shapes if not shape.count)
    return (with_devices + max(0.0, without - elsewhere)) / beside_devices


def suited(weights: Weights, ratio: float) -> Weights:
    """Return the weights for this CPU demand ratio: the scarcer CPU is, the more it matters to finish nodes evenly.

    From a ratio of 0.9 to one of 1.0 the weight of what is left over rises from its normal to its scarce value, and
    those of idle nodes and of the mean appetite for CPU fall to 0: pods of much and of little CPU find each other on
    more nodes.
    """
    scarcity = min(1.0, max(0.0, (ratio - _ENOUGH_RATIO) / (1 - _ENOUGH_RATIO)))
    step = round(scarcity * _STEPS) / _STEPS
    if not step:
        return weights
    return replace(
        weights,
        averaged=weights.averaged * (1 - step),
        left_over=weights.left_over + step * (weights.left_over_scarce - weights.left_over),
        idle_node_milli=weights.idle_node_milli * (1 - step),
    )
