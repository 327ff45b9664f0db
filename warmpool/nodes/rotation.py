"""Which nodes are to be replaced before they must go: early enough, a few at a time, replacement first.

Nodes made together expire together (aws/karpenter-provider-aws#6980), so the first replacement begins while there is
still time for all of them one after the other: with expiries e₁ ≤ e₂ ≤ … and r seconds per replacement, at
min_j (e_j − j·r).
"""

from __future__ import annotations

from collections.abc import Sequence

from warmpool.nodes.limits import Limits
from warmpool.values import PoolNode, PoolSpec


def due(pool: PoolSpec, idle: Sequence[PoolNode], now_s: float, limits: Limits) -> tuple[PoolNode, ...]:
    """Return the unclaimed nodes to replace now, at most `surge_nodes`, in the order in which they must go.

    Args:
        pool: For its shape and surge.
        idle: Warm unclaimed nodes that nobody closed.
        now_s: Own clock.
        limits: For the time that one replacement takes.
    """
    drifted = [node for node in idle if is_drifted(pool, node)]
    expiring = sorted(
        (node.expires_at_s, node.name, node) for node in idle if node.expires_at_s is not None and node not in drifted
    )
    surge = max(1, pool.surge_nodes)
    starts_s = [
        expires_at_s - (1 + position // surge) * limits.replace_s
        for position, (expires_at_s, _, _) in enumerate(expiring)
    ]
    rotating = sorted(drifted, key=lambda node: (node.born_at_s, node.name))
    if starts_s and now_s >= min(starts_s):
        # Only those without which the last one would be late; the rest keeps its time.
        latest = max(position for position, start_s in enumerate(starts_s) if now_s >= start_s)
        rotating += [node for _, _, node in expiring[: latest + 1]]
    return tuple(rotating[:surge])


def is_drifted(pool: PoolSpec, node: PoolNode) -> bool:
    """Return True if the node was ordered as another shape than the pool wants now."""
    return bool(node.shape) and node.shape != pool.shape.fingerprint
