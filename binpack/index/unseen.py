"""Pods that fill a whole big node: one more of each kind is expected than have been seen.

They come rarely, a few in a thousand pods, and their nodes can be broken into long before the first of them comes: the
only nodes of a cluster with 128 cores, say. This is Laplace's rule of succession with one imaginary pod per size of
node, which weighs much among the first hundred pods and nothing among thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from binpack.index.mix import Mix, Shape
from binpack.index.node_class import NodeClass
from fleet.device import WHOLE_MILLI

_BIG_NODE_DEVICES: Final = 8
_CPU_SIXTEENTHS: Final = 15  # what is left of a node's CPU beside its own daemons


def with_unseen(mix: Mix, classes: Iterable[NodeClass]) -> Mix:
    """Return the mix with one pod more per size of big node: all devices and nearly all CPU, of any model.

    Args:
        mix: What was seen.
        classes: The node classes there are. Nodes of at least 8 devices are big, or those that have the most.
    """
    sizes = {(one.devices, one.milli_cpu) for one in classes if one.devices > 1}
    most = max((devices for devices, _ in sizes), default=0)
    counts = Counter(dict(mix.shapes))
    for devices, milli_cpu in sorted(sizes):
        if devices >= min(_BIG_NODE_DEVICES, most):
            milli_cpu = milli_cpu * _CPU_SIXTEENTHS // 16
            counts[Shape(milli_cpu=milli_cpu, count=devices, milli_gpu=WHOLE_MILLI)] += 1
    return Mix.of(counts)
