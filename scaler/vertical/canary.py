"""Which replica tries L while the others run at the target.

Without one an over-provisioned fleet never holds as much as L anywhere and learning stalls (measured: bench/scaler).
"""

from __future__ import annotations

import numpy as np

from scaler.vertical.rows import Rows

FEWEST_REPLICAS = 3  # with fewer, one replica is too much of the service to try anything on
HIGHEST_WEIGHT = 10.0  # the canary never takes the whole load, so that the others stay warm and comparable
_HELD_QUANTILE = 0.9  # a level that a replica held for a tenth of its seconds


def canary(names: tuple[str, ...], replicas: int, present: str | None) -> str | None:
    """Return the canary: the present one while it lives, else the first by name; None with fewer than 3 replicas."""
    if replicas < FEWEST_REPLICAS or not names:
        return None
    return present if present in names else min(names)


def canary_weight(limit: float, in_flight: float, replicas: int) -> float:
    """Return the weight at a balancer, the others having 1, with which the canary holds L of what is in progress.

    w / (w + n - 1) = L / in_flight, so w = (n - 1) L / (in_flight - L), in 1..10.

    Args:
        limit: L.
        in_flight: Requests in progress on all replicas.
        replicas: n, serving.
    """
    rest = in_flight - limit
    return min(max((replicas - 1) * limit / rest, 1.0), HIGHEST_WEIGHT) if rest > 0 else HIGHEST_WEIGHT


def held_by_busiest(rows: Rows) -> float:
    """Return the highest concurrency that any replica held: the 90th percentile of its rows, the largest of all."""
    order = np.lexsort((rows.in_flight, rows.replica))
    replica, k = rows.replica[order], rows.in_flight[order]
    first = np.flatnonzero(np.diff(replica, prepend=-1))
    count = np.diff(np.append(first, replica.size))
    at = first + np.minimum(np.ceil(_HELD_QUANTILE * count).astype(np.int64) - 1, count - 1)
    return float(k[np.maximum(at, first)].max())
