"""Who is to have room that does not suffice: fair between namespaces, then not passed over for ever. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from binpack.controller.shares import contended_order
from binpack.controller.world import World
from binpack.demand import LONG_WAIT_S, in_turn
from fleet.pod import Pod


def turn_order(world: World, batch: Sequence[Pod]) -> list[Pod] | None:
    """Return the order in which the batch is to be placed; None where whoever fits best may come first.

    Where namespaces have weights those decide. Else, once a pod of the batch has waited for room for an hour, turns
    are by waiting time and demand: as much demand as fits at once would let the same pods wait again and again. How
    long a pod waits is counted from when this leader first found no room for it.
    """
    fair = contended_order(world, batch)
    if fair is not None:
        return fair
    waited_s = {pod.uid: world.waited_s(pod.uid) for pod in batch}
    if max(waited_s.values(), default=0.0) < LONG_WAIT_S:
        return None
    return sorted(batch, key=lambda pod: in_turn(pod, waited_s[pod.uid]))
