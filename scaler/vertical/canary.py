"""Which replica tries L while the others run at the target.

Without one an over-provisioned fleet never holds as much as L anywhere and learning stalls (measured: bench/scaler).
"""

from __future__ import annotations

import numpy as np

from scaler.vertical.values import Rows

FEWEST_REPLICAS = 3  # with fewer, one replica is too much of the service to try anything on
_HELD_QUANTILE = 0.9  # a level that a replica held for a tenth of its seconds


def canary(names: tuple[str, ...], replicas: int, present: str | None) -> str | None:
    """Return the canary: the present one while it lives, else the first by name; None with fewer than 3 replicas."""
    if replicas < FEWEST_REPLICAS or not names:
        return None
    return present if present in names else min(names)


def held_by_busiest(rows: Rows) -> float:
    """Return the highest concurrency that any replica held: the 90th percentile of its rows, the largest of all."""
    order = np.lexsort((rows.k, rows.replica))
    replica, k = rows.replica[order], rows.k[order]
    first = np.flatnonzero(np.diff(replica, prepend=-1))
    count = np.diff(np.append(first, replica.size))
    at = first + np.minimum(np.ceil(_HELD_QUANTILE * count).astype(np.int64) - 1, count - 1)
    return float(k[np.maximum(at, first)].max())
