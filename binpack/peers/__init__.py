"""The published placement policies, re-made as peers of the index: same arrays, same hard rules, other scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from binpack.index.mix import Mix
from binpack.peers.fgd import Fragmentation
from binpack.peers.peer import ClusteringPeer, Peer, RandomPeer
from binpack.peers.simple import best_fit, dot_product, first_fit, packing
from binpack.state import NodeState

Maker = Callable[[Iterable[NodeState], Sequence[str], Mix, int], Peer]

PEERS: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        "fgd": lambda states, order, mix, _: Peer(
            states, order, lambda arrays: Fragmentation(mix, arrays.models.names).score
        ),
        "best-fit": lambda states, order, _mix, _seed: Peer(states, order, lambda _: best_fit),
        "dot-product": lambda states, order, _mix, _seed: Peer(states, order, lambda _: dot_product),
        "clustering": lambda states, order, _mix, _seed: ClusteringPeer(states, order),
        "packing": lambda states, order, _mix, _seed: Peer(states, order, lambda _: packing),
        "first-fit": lambda states, _order, _mix, _seed: Peer(list(states), (), lambda _: first_fit),
        "random": lambda states, order, _mix, seed: RandomPeer(states, order, seed),
    }
)
"""Makes a policy from the empty nodes, the node names in the order that decides ties, the demand mix and the seed."""

__all__ = ["PEERS", "Maker", "Peer"]
