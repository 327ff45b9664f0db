"""What runs of a gang, read out of the planner's world: who of it may be made to go, and by how many. Pure."""

from __future__ import annotations

from collections.abc import Collection

from binpack.books import is_agent
from binpack.controller.world import World
from binpack.gangs.roll import key_of
from binpack.preemption.bonds import Crew
from fleet.pod import Pod


def crew_of(world: World, pod: Pod, going: Collection[str]) -> Crew | None:
    """Return what runs of a pod's gang; None where the pod needs nobody else and nobody needs it.

    Where nobody says how many members a gang needs, it needs all that run.

    Args:
        world: The planner's.
        pod: Any.
        going: Pods made to go of which the watch does not show it yet.
    """
    key = key_of(pod)
    if key is None:
        return None
    roll = world.together.roll
    size, members = roll.size(key), roll.members(key)
    if size == 0:
        return None  # the basic policy
    tenants = [tenant for one in members if (tenant := world.tenants.get(one.uid)) is not None]
    running = [one for one in tenants if not one.is_terminating and one.uid not in going]
    is_fixed = any(one.uid in world.away or one.uid in world.together.seated or is_agent(one) for one in members)
    spare = 0 if size is None else len(running) + roll.ended_well(key) - size
    return Crew(running=tuple(running), spare=spare, is_fixed=is_fixed)
