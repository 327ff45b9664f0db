"""How much idle GPU the demand mix cannot use where it lies, for a whole cluster."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from binpack.index.arrays import Arrays
from binpack.index.mix import Mix
from binpack.peers.fgd import Fragmentation
from binpack.state import NodeState


def fragmented_milli_gpu(states: Iterable[NodeState], mix: Mix) -> float:
    """Return the fragment amount, summed over nodes.

    F = sum over typical pods m of share[m] * (idle milli-GPU on devices that m cannot use).
    Source: Weng et al., USENIX ATC 2023.
    """
    arrays = Arrays()
    for state in states:
        arrays.set_node(state)
    rows = np.arange(arrays.count)
    residual = np.maximum(arrays.residual[rows], 0)
    fragment = Fragmentation(mix, arrays.models.names).fragment(
        arrays.node_model[rows], arrays.milli_cpu[rows], residual
    )
    return float(fragment.sum())
