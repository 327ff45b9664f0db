"""Which replicas go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scaler.seen import Phase, Replica

_ORDER: Final = {Phase.FAILED: 0, Phase.STARTING: 1, Phase.READY: 2}


def victims(replicas: Sequence[Replica], count: int) -> tuple[str, ...]:
    """Return the names of the `count` replicas that serve least.

    Those that were moved first, for another serves in their stead. Then failed ones, then starting ones farthest from
    Ready (those without a node, then the last ordered), then Ready ones with the fewest requests; one whose requests
    are not known is held to be the busiest. A replica that serves nobody costs nothing to drop, and one that is about
    to serve is worth more than one just begun (ray-project/ray#43034). Draining ones are going already.

    Args:
        replicas: All there are.
        count: How many go.
    """
    candidates = [replica for replica in replicas if replica.phase in _ORDER]
    candidates.sort(key=_worth)
    return tuple(replica.name for replica in candidates[: max(count, 0)])


def _worth(replica: Replica) -> tuple[bool, int, bool, float, float, str]:
    is_starting = replica.phase is Phase.STARTING
    busy = float("inf") if replica.in_flight is None else replica.in_flight
    return (
        not replica.is_replaced,
        _ORDER[replica.phase],
        not replica.unscheduled if is_starting else True,
        -replica.since_s if is_starting else busy,
        -replica.since_s,
        replica.name,
    )
