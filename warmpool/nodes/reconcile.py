"""The pool as a whole, one tick: how many to order, which to give up, which to take back, and why.

position = warm + coming. Claimed and serving nodes are not in it, so that a claim starts its own refill; a node counts
from its order on, so that a slow driver buys no second machine (kubernetes/autoscaler#451).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from warmpool.nodes.limits import Limits
from warmpool.nodes.rotation import due, is_drifted
from warmpool.providers.breaker import Breakers
from warmpool.providers.provider import Capabilities
from warmpool.values import COMING, GONE, NodeState, Offer, PoolNode, PoolSpec, Why

_ORDER = tuple(NodeState)
_SERVING_PER_DRAIN = 10  # of so many serving nodes one is emptied at a time, and one in any case


class PlanReason(StrEnum):
    """Why the pool does what it does."""

    ENOUGH = "Enough"
    SHORT = "Short"
    SURPLUS = "Surplus"
    ROTATING = "Rotating"
    AT_MAXIMUM = "AtMaximum"
    NO_CAPACITY = "InsufficientCapacity"
    RETIRING = "Retiring"
    NOT_OURS_TO_ORDER = "NotOursToOrder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Begin to give a node up: its `close_why` from now on."""

    name: str
    why: Why


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """What the pool wants done.

    Attributes:
        target: Warm unclaimed nodes wanted, within the pool's bounds.
        position: Warm and coming ones there are.
        warm: Of these, those that a draw would get now.
        surge: Nodes beyond the target that rotation wants for a while.
        total: All nodes there are, those on their way out included.
        orders: How many to order of which offer.
        resize: Number to tell a counted provider; None = it is not one.
        closes: Nodes to give up.
        reopens: Nodes on their way out to take back.
        short: Wanted, and neither there nor ordered now.
        is_capacity_available: At least one offer was not refused lately; the condition CapacityAvailable.
        reason: In one word.
    """

    target: int
    position: int
    warm: int
    surge: int
    total: int
    reason: PlanReason
    orders: tuple[tuple[Offer, int], ...] = ()
    resize: int | None = None
    closes: tuple[Close, ...] = ()
    reopens: tuple[str, ...] = ()
    short: int = 0
    is_capacity_available: bool = True


def reconcile(
    pool: PoolSpec,
    nodes: Sequence[PoolNode],
    target: int,
    now_s: float,
    *,
    breakers: Breakers,
    limits: Limits,
    capabilities: Capabilities,
    is_retiring: bool = False,
) -> PoolPlan:
    """Return what to do so that `target` nodes are warm and unclaimed.

    The answer depends on the nodes' states alone, not on their order.

    Args:
        pool: What is wanted.
        nodes: All nodes of the pool after this tick's `advance`, released ones left out.
        target: Wanted warm unclaimed nodes; brought within the pool's bounds here.
        now_s: Own clock.
        breakers: Offers that were refused.
        limits: For rotation.
        capabilities: What the provider can do.
        is_retiring: The pool is being deleted: whatever nobody uses goes.
    """
    left = [node for node in nodes if node.state is not NodeState.RELEASED]  # failed ones that still exist cost, too
    present = [node for node in left if node.state not in GONE]
    wanted = 0 if is_retiring else max(pool.min_nodes, min(target, pool.max_nodes))
    standing = [node for node in present if node.is_in_position]
    warm = [node for node in standing if node.is_claimable]
    # To whoever counts free nodes, a claimed one is free until its pods are there.
    claimed = sum(node.state is NodeState.CLAIMED for node in present)
    rotating = due(pool, warm, now_s, limits) if _may_rotate(pool, present, capabilities, is_retiring) else ()
    fresh = len(standing) - len(rotating)
    # The old one counts until the new one is warm: the pool never dips.
    missing = max(0, wanted - fresh)
    room = max(0, pool.max_nodes + len(rotating) - len(left))
    reopens = _reopened(present, missing) if missing else ()
    missing -= len(reopens)
    asked = min(missing, room)
    orders = breakers.spread(pool.shape, asked, now_s) if capabilities.can_order and asked else ()
    ordered = sum(count for _, count in orders)
    closes = () if is_retiring else _closes(pool, wanted, present, standing, warm, rotating, capabilities)
    if is_retiring:
        closes = tuple(Close(name=node.name, why=Why.POOL_GONE) for node in _by_worth(_idle(present)))
    return PoolPlan(
        target=wanted,
        position=len(standing),
        warm=len(warm),
        surge=len(rotating),
        total=len(left),
        orders=orders,
        resize=wanted + claimed if capabilities.is_counted else None,
        closes=closes,
        reopens=reopens,
        short=missing - ordered,
        is_capacity_available=breakers.is_available(pool.shape),
        reason=_reason(is_retiring, missing, room, ordered, rotating, closes, capabilities),
    )


def carried(nodes: Sequence[PoolNode], plan: PoolPlan) -> tuple[PoolNode, ...]:
    """Return the nodes with the plan's closes and reopens in their minds; the next `advance` does the rest."""
    closes = {close.name: close.why for close in plan.closes}
    reopens = frozenset(plan.reopens)
    return tuple(
        replace(node, close_why=closes.get(node.name), closed_seen_s=None)
        if node.name in closes or node.name in reopens
        else node
        for node in nodes
    )


def _may_rotate(pool: PoolSpec, present: Sequence[PoolNode], capabilities: Capabilities, is_retiring: bool) -> bool:
    """Return True if there is room for one more replacement: the last one's old node is gone."""
    leaving = sum(
        node.state is NodeState.RELEASING and node.close_why in (Why.EXPIRING, Why.DRIFTED) for node in present
    )
    can_swap = capabilities.can_order and capabilities.can_release_exactly
    return can_swap and not is_retiring and leaving < max(1, pool.surge_nodes)


def _closes(
    pool: PoolSpec,
    wanted: int,
    present: Sequence[PoolNode],
    standing: Sequence[PoolNode],
    warm: Sequence[PoolNode],
    rotating: Sequence[PoolNode],
    capabilities: Capabilities,
) -> tuple[Close, ...]:
    """Return the nodes to give up: of no use first, then beyond the target, then those that were replaced."""
    if not capabilities.can_release_exactly:
        return ()
    closes: list[Close] = []
    if len(standing) >= wanted:
        useless = [node for node in present if node.is_idle and node.is_cordoned]
        closes += [Close(name=node.name, why=Why.USELESS) for node in _by_worth(useless)]
    replaced = max(0, len(warm) - wanted) if rotating else 0
    gone = [node for node in rotating if not node.is_kept][:replaced]
    closes += [Close(name=node.name, why=Why.DRIFTED if is_drifted(pool, node) else Why.EXPIRING) for node in gone]
    surplus = len(standing) - len(rotating) - wanted
    others = [node for node in standing if node not in rotating]
    closes += [Close(name=node.name, why=Why.SURPLUS) for node in _by_worth(others)[: max(0, surplus)]]
    draining = sum(node.state is NodeState.RELEASING and node.close_why is Why.SPARE for node in present)
    serving = sum(node.state is NodeState.SERVING for node in present)
    drains = max(1, serving // _SERVING_PER_DRAIN) - draining
    if len(standing) >= wanted and drains > 0:
        spare = [node for node in present if node.state is NodeState.SERVING and node.is_spare and not node.is_kept]
        spare.sort(key=lambda node: (len(node.pods), node.born_at_s, node.name))
        closes += [Close(name=node.name, why=Why.SPARE) for node in spare[:drains]]
    return tuple(closes)


def _by_worth(nodes: Sequence[PoolNode]) -> list[PoolNode]:
    """Return the nodes, least worth first: furthest from warm and youngest; of the warm ones, the oldest."""
    return sorted(
        (node for node in nodes if not node.is_kept),
        key=lambda node: (
            _ORDER.index(node.state),
            -node.ordered_at_s if node.state in COMING else node.born_at_s,
            node.name,
        ),
    )


def _idle(present: Sequence[PoolNode]) -> list[PoolNode]:
    return [node for node in present if node.is_idle]


def _reopened(present: Sequence[PoolNode], missing: int) -> tuple[str, ...]:
    """Return nodes that were beyond the target a moment ago, are still there, and are wanted again."""
    back = [
        node
        for node in present
        if node.state is NodeState.RELEASING and node.close_why is Why.SURPLUS and node.release_told_s is None
    ]
    back.sort(key=lambda node: (node.warm_at_s is None, -node.born_at_s, node.name))
    return tuple(node.name for node in back[:missing])


def _reason(
    is_retiring: bool,
    missing: int,
    room: int,
    ordered: int,
    rotating: Sequence[PoolNode],
    closes: Sequence[Close],
    capabilities: Capabilities,
) -> PlanReason:
    if is_retiring:
        return PlanReason.RETIRING
    if missing > ordered:
        if not capabilities.can_order:
            return PlanReason.NOT_OURS_TO_ORDER
        return PlanReason.AT_MAXIMUM if room < missing else PlanReason.NO_CAPACITY
    if missing:
        return PlanReason.ROTATING if rotating else PlanReason.SHORT
    if closes:
        return PlanReason.SURPLUS
    return PlanReason.ROTATING if rotating else PlanReason.ENOUGH
