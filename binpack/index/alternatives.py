"""Several ways to serve one pod, weighed against each other: one B300, two H200 or four H100.

Devices of different models have no common measure but what the pod says itself: n_k devices of model k serve it. So a
device of k is 1/n_k of the pod, and what a way costs is counted per device of it and scaled to the pod::

    cost(k) = cost of placing n_k devices of k * n / n_k  +  extra(k)

with n the largest count. extra(k) is n * 1000 * (c_k / min c - 1) where the pod says what a served token costs: a way
that is 30 % dearer loses to another unless that one wastes 0.3 of the pod's GPUs. Where it does not, the order counts:
each step down costs what a less preferred model costs, for n devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from binpack.index.columns import Floats, Ints
from fleet.device import WHOLE_MILLI, DeviceAsk
from fleet.plan import Reason, Unplaced
from fleet.pod import Pod

_POSITIONS = 4096  # more than any node has devices


def variants_of(pod: Pod) -> list[Pod]:
    """Return the pod once for each way, with a plain ask."""
    assert pod.ask is not None
    return [replace(pod, ask=ask) for ask in pod.ask.variants()]


def cheapest(pod: Pod, costs: Callable[[Pod], tuple[Floats, Ints]], step_milli: float) -> tuple[Floats, Ints]:
    """Return the cost of the cheapest way on every slot, (count,), and which way on which device, (count,), below -1.

    Args:
        pod: A pod with alternatives.
        costs: What a pod with a plain ask costs on every slot, and on which device.
        step_milli: What each step down the order of preference costs, per device.
    """
    ask = pod.ask
    assert ask is not None
    tables = [costs(one) for one in variants_of(pod)]
    weighed = np.stack(
        [
            cost * (ask.count / one.count) + extra
            for (cost, _), one, extra in zip(tables, ask.alternatives, _extras(ask, step_milli), strict=True)
        ]
    )
    which = np.argmin(weighed, axis=0)
    every = np.arange(weighed.shape[1])
    position = np.stack([position for _, position in tables])[which, every]
    return weighed[which, every], -2 - (which * _POSITIONS + position + 1)


def chosen(pod: Pod, position: int) -> tuple[Pod, int]:
    """Return the pod with the ask of the way that `position` says, and the device; as they are where it says none."""
    if position >= -1:
        return pod, position
    which, device = divmod(-2 - position, _POSITIONS)
    return variants_of(pod)[which], device - 1


def nearest_miss(misses: Sequence[Unplaced]) -> Unplaced:
    """Return the answer that is nearest to a berth: a way that could be free some day before one that never can."""
    return min(misses, key=lambda miss: (miss.reason is Reason.NO_SUCH_DEVICE, _lacking(miss)))


def _lacking(miss: Unplaced) -> int:
    return 0 if miss.shortfall is None else sum(amount for _, amount in miss.shortfall.missing)


def _extras(ask: DeviceAsk, step_milli: float) -> list[float]:
    costs = [one.cost_milli for one in ask.alternatives]
    if not costs[0]:
        return [ask.count * step_milli * step for step in range(len(costs))]
    least = min(costs)
    return [ask.count * WHOLE_MILLI * (cost - least) / least for cost in costs]
