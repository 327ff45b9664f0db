"""Loopback ports for a cluster: free now, and not promised to another cluster."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Collection, Sequence

from fleet.errors import LocalClusterError

# Below the range that Linux hands to outgoing connections (32768 and up), so that nothing takes a recorded port while
# its owner is being restarted.
_LOWEST, _HIGHEST = 20_000, 32_767


def is_free(port: int) -> bool:
    """Return True if a server can listen on 127.0.0.1:port now (old connections in TIME_WAIT do not count)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(
    names: Sequence[str],
    *,
    promised: Collection[int],
    free: Callable[[int], bool] = is_free,
    seed: int | None = None,
) -> dict[str, int]:
    """Return a port for every name, all different.

    Args:
        names: What the ports are for.
        promised: Ports recorded by other clusters, even if nothing listens there now.
        free: Whether a port can be listened on.
        seed: For repeatable choices; without it two starts at the same moment rarely meet.

    Raises:
        LocalClusterError: There are not enough free ports.
    """
    order = random.Random(seed).sample(range(_LOWEST, _HIGHEST + 1), _HIGHEST + 1 - _LOWEST)
    chosen: dict[str, int] = {}
    remaining = iter(order)
    for name in names:
        for port in remaining:
            if port not in promised and free(port):
                chosen[name] = port
                break
        else:
            raise LocalClusterError(f"no {len(names)} free ports between {_LOWEST} and {_HIGHEST} on 127.0.0.1")
    return chosen
