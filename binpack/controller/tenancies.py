"""The pools' nodes that serve, as `binpack.spare` weighs them, out of the planner's world. Pure."""

from __future__ import annotations

from dataclasses import replace

from binpack.controller.budget_feed import Budgets
from binpack.controller.world import World
from binpack.spare import Tenancy
from binpack.warm.nodes import untainted
from binpack.warm.standing import Standing
from fleet.constraints import CORDON
from fleet.pod import Pod

# What a pool writes on a node that it empties because the planner called it spare (its controller's `Why.SPARE`).
_CLOSED_AS_SPARE = "Spare"


def tenancies(world: World, budgets: Budgets) -> tuple[Tenancy, ...]:
    """Return the pools' nodes that serve, and those that are being emptied, which nobody else sees."""
    found = [_tenancy(world, budgets, name, in_index=True) for name in world.yard.names(Standing.SERVING)]
    for name in world.yard.names(Standing.CLOSED):
        state = world.ledger.state(name)
        if state is not None and state.node.is_spare and state.node.closing == _CLOSED_AS_SPARE:
            found.append(_tenancy(world, budgets, name, in_index=False))
    return tuple(one for one in found if one is not None)


def _tenancy(world: World, budgets: Budgets, name: str, *, in_index: bool) -> Tenancy | None:
    state = world.ledger.state(name)
    if state is None or (in_index and world.node(name) is None):
        return None
    pods: list[Pod] = []
    strangers: list[str] = []
    for uid in world.ledger.users_on(name):
        pod = world.tenants.get(uid)
        if pod is None:
            strangers.append(uid)
        else:
            pods.append(pod)
    opened = untainted(state)
    taints = tuple(taint for taint in opened.node.taints if taint.key != CORDON.key)
    opened = replace(opened, node=replace(opened.node, taints=taints, is_cordoned=False))
    return Tenancy(
        state=opened,
        pods=tuple(pods),
        strangers=tuple(strangers),
        guarded=tuple(text for pod in pods if not pod.is_terminating for text in _guards(pod, budgets)),
        in_index=in_index,
    )


def _guards(pod: Pod, budgets: Budgets) -> list[str]:
    covering = budgets.of(pod)
    if len(covering) > 1:
        return [f"{pod.key} is under {len(covering)} budgets, and the API evicts it under none"]
    return [
        f"budget {one.key} of {pod.key} wants {one.desired_healthy} of {one.expected} healthy"
        for one in covering
        if one.forbids
    ]
