"""The bound at every milestone of a run: for the pods that had arrived by then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from binpack.arrivals import milli_gpu_of
from binpack.bound.limit import Bound, Bounds
from fleet.device import WHOLE_MILLI
from fleet.node import Node
from fleet.pod import Pod


def bounds_at(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    milestones: Iterable[int],
    *,
    on_proven: Callable[[int], None] | None = None,
) -> dict[int, Bound]:
    """Return the bound for the longest beginnings of `pods` that ask no more than each milestone, % of the capacity.

    Milestones that all pods together do not reach within one pod are judged by all of them.

    Args:
        nodes: All nodes.
        pods: In order of arrival.
        milestones: In % of the GPU capacity.
        on_proven: Called after each with how many are proven.
    """
    capacity = WHOLE_MILLI * sum(len(node.devices) for node in nodes)
    bounds = Bounds(nodes, pods)
    found: dict[int, Bound] = {}
    for place, at in enumerate(milestones, start=1):
        found[at] = bounds.of(_within(pods, at * capacity // 100))
        if on_proven is not None:
            on_proven(place)
    return found


def _within(pods: Sequence[Pod], most_milli_gpu: int) -> Sequence[Pod]:
    asked = 0
    for place, pod in enumerate(pods):
        asked += milli_gpu_of(pod)
        if asked > most_milli_gpu:
            return pods[:place]
    return pods
