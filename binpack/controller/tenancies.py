"""The pools' nodes that serve, as `binpack.spare` weighs them, out of the planner's world. Pure."""

from __future__ import annotations

from dataclasses import replace

from binpack.controller.world import World
from binpack.spare import Tenancy
from binpack.warm.nodes import untainted
from binpack.warm.standing import Standing
from fleet.pod import Pod

# What a pool writes on a node that it empties because the planner called it spare (its controller's `Why.SPARE`).
_CLOSED_AS_SPARE = "Spare"


def tenancies(world: World) -> tuple[Tenancy, ...]:
    """Return the pools' nodes that serve, and those that are being emptied, which nobody else sees."""
    found = [_tenancy(world, name, in_index=True) for name in world.yard.names(Standing.SERVING)]
    for name in world.yard.names(Standing.CLOSED):
        state = world.ledger.state(name)
        if state is not None and state.node.is_spare and state.node.closing == _CLOSED_AS_SPARE:
            found.append(_tenancy(world, name, in_index=False))
    return tuple(one for one in found if one is not None)


def _tenancy(world: World, name: str, *, in_index: bool) -> Tenancy | None:
    state = world.ledger.state(name)
    if state is None or (in_index and world.node(name) is None):
        return None
    pods: list[Pod] = []
    strangers: list[str] = []
    for uid in world.ledger.users_on(name):
        pod = world.berthed.get(uid)
        if pod is None:
            strangers.append(uid)
        else:
            pods.append(pod)
    opened = untainted(state)
    opened = replace(opened, node=replace(opened.node, is_cordoned=False))
    return Tenancy(state=opened, pods=tuple(pods), strangers=tuple(strangers), in_index=in_index)
