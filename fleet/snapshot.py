"""One immutable picture of the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.node import Node
from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Nodes and pods as listed; the ledger is a function of this and of nothing else."""

    taken_at_s: float = 0.0
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
