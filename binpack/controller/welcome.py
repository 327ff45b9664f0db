"""Whether those who have a seat may still go there, for all that rules between pods say. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from binpack.controller.world import World
from fleet.pod import Pod


def unwelcome(world: World, seated: Iterable[Pod]) -> Pod | None:
    """Return a pod whose seat a rule between pods forbids by now; None = all may go, in whatever order.

    Everybody with a seat counts as being there, but for the pod that is judged.
    """
    company = world.company
    involved = [(pod, pod.seat.node) for pod in seated if pod.seat is not None and company.is_involved(pod)]
    if involved:
        world.refresh()
    return next((pod for pod, node in involved if not company.holds(pod, node)), None)


def is_left_by_others(world: World, node: str) -> bool:
    """Return True while somebody who is on his way out is still on the node."""
    return any(pod.is_terminating for pod in world.tenants.on(node).values())
