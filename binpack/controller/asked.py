"""The world that a plan was asked for: by it a plan is right or wrong, whatever has happened since. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from binpack.check_register import Roll
from binpack.controller.world import World
from binpack.dra.check import Published, check_claims
from binpack.planner import Verified, verified
from binpack.state import NodeState
from fleet.plan import Plan, Violation
from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """All that a batch's plan is judged by, as it was at one time; what changes later does not move it.

    Attributes:
        states: Of the nodes that plans may name.
        roll: Who was where.
        coming: Pods on their way, with their nodes.
        published: What claims are judged by; None = no pod of the batch has any.
    """

    states: Mapping[str, NodeState]
    roll: Roll
    coming: tuple[tuple[Pod, str], ...]
    published: Published | None

    @classmethod
    def now(cls, world: World, batch: Sequence[Pod], names: Collection[str]) -> Asked:
        """Take the world as it is; O(nodes) of references, and of claims where a pod has any."""
        return cls(
            states=world.states(names),
            roll=world.register.roll(),
            coming=tuple(world.ledger.coming),
            published=world.desk.published(names) if any(pod.resource_claims for pod in batch) else None,
        )

    def holds(self, world: World, batch: Sequence[Pod], plans: Iterable[Plan]) -> bool:
        """Return True if for these plans the world is still as it was, so that one judgement is as good as two."""
        names = nodes_of(plans)
        states = world.states(names)
        if any(states.get(name) != self.states.get(name) for name in names):
            return False
        if self.published is not None and self.published != world.desk.published(self.published.node_labels):
            return False
        if not any(world.index.company.is_involved(pod) for pod in batch):
            return True
        return self.coming == tuple(world.ledger.coming) and self.roll == world.register.roll()

    def verified(self, world: World, batch: Sequence[Pod], plans: Sequence[Plan]) -> Verified:
        """Return what the verifier says of plans by this world; what it finds wrong was wrong from the start."""
        with world.register.as_of(self.roll):
            return verified(plans, batch, self.states, world.register, self._of_claims, self.coming)

    def _of_claims(self, plan: Plan, batch: Sequence[Pod]) -> tuple[Violation, ...]:
        return () if self.published is None else check_claims(plan, batch, self.published)


def verified_now(world: World, batch: Sequence[Pod], plans: Sequence[Plan]) -> Verified:
    """Return what the verifier says of plans by the world as it is known now."""
    states = world.states(nodes_of(plans))
    return verified(plans, batch, states, world.register, world.desk.violations, world.ledger.coming)


def nodes_of(plans: Iterable[Plan]) -> set[str]:
    """Return the nodes that the plans name."""
    return {placement.berth.node for plan in plans for placement in plan.placements}
