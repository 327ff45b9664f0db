"""What each namespace holds beside its weight: in whose favour room is given that does not suffice. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from binpack.controller.world import World
from binpack.fairness import Standing, capacity_of, fair_order, holding_of
from fleet.pod import Pod


def standing_of(world: World) -> Standing:
    """Return what namespaces hold now, and what there is of it."""
    held: dict[str, Counter[str]] = {}
    nodes = [state.node for state in world.states(world.ledger.known()).values()]
    for node in nodes:
        for pod in world.tenants.on(node.name).values():
            held.setdefault(pod.namespace, Counter()).update(holding_of(pod, node))
    return Standing(capacity=capacity_of(nodes), held=held, weights=world.weights)


def contended_order(world: World, batch: Sequence[Pod]) -> list[Pod] | None:
    """Return the fair order of a batch; None where it does not matter: no weights are set, or one namespace asks."""
    if not world.weights or len({pod.namespace for pod in batch}) < 2:
        return None
    return fair_order(batch, standing_of(world))
