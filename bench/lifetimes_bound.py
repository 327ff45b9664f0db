"""How little can stay free in the long run where pods come and leave: no order, policy or moves get below it.

Of each kind of pod no more run in the mean than arrive, `rate x life` (Little 1961), and what runs at a moment is a way
to fill the nodes. So the mean of what is in use lies in the convex hull of such ways, under those amounts: the linear
programme of `binpack.bound`, on many copies of the nodes so that means need not be whole pods. It lets kinds starve
that waste room, which nobody who serves all can.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from binpack.bound.limit import bound_of
from binpack.lifetimes import Lived
from binpack.lifetimes.drawing import cut, rate_per_s
from binpack.lifetimes.queue import Shape, shape_of
from fleet.node import Node
from fleet.pod import Pod

COPIES = 50


def least_unallocated(nodes: Sequence[Node], lived: Sequence[Lived], load_ratio: float) -> float:
    """Return the least mean free part of the GPUs at this offered load."""
    lived = cut(lived)
    rate = rate_per_s(lived, sum(len(node.devices) for node in nodes), load_ratio)
    running: defaultdict[Shape, float] = defaultdict(float)
    pods: dict[Shape, Pod] = {}
    for one in lived:
        running[shape_of(one.pod)] += rate * one.life_s / len(lived)
        pods[shape_of(one.pod)] = one.pod
    demand = Counter({shape: math.ceil(COPIES * mean) for shape, mean in running.items()})
    many = [replace(node, name=f"{node.name}-{copy}") for copy in range(COPIES) for node in nodes]
    found = bound_of(many, [pods[shape] for shape in demand.elements()]).unallocated_gpu_ratio
    assert found is not None
    return found
