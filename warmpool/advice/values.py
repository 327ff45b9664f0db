"""What is asked of the adviser, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """A kind of node that can be bought.

    Attributes:
        name: Unlike the others.
        devices: On one node; 0 = none.
        model: Of them; "" = not told.
        hour_cost: Of one node, any one currency.
        lead_s: From order to warm, mean.
    """

    name: str
    devices: int
    model: str = ""
    hour_cost: float = 1.0
    lead_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Draws of one kind: of one of today's pools.

    Attributes:
        name: Of that pool.
        shape: Name of the shape that serves it today.
        devices: That one replica takes; 0 = a whole node, whatever is on it.
        model: That it must have; "" = any.
        images: That must lie on the node.
        goal_ratio: Share of draws that must find a warm node.
        hourly: Draws in each hour, in replicas; None = not watched.
    """

    name: str
    shape: str
    devices: int = 0
    model: str = ""
    images: tuple[str, ...] = ()
    goal_ratio: float = 0.99
    hourly: tuple[float | None, ...] = ()

    @property
    def per_hour(self) -> float:
        """Return the mean of the watched hours; 0 where none was."""
        known = [count for count in self.hourly if count is not None]
        return sum(known) / len(known) if known else 0.0

    @property
    def watched_hours(self) -> int:
        """Return how many hours were watched."""
        return sum(count is not None for count in self.hourly)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a pool comes to, by the model of `sizing`.

    Attributes:
        size: Warm unclaimed nodes wanted, mean over the hours.
        peak_size: Most.
        idle_nodes: Warm and unclaimed, mean.
        hour_cost: Of these.
        hit_ratio: Share of draws that find a warm node.
    """

    size: float
    peak_size: int
    idle_nodes: float
    hour_cost: float
    hit_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A pool that there could be.

    Attributes:
        serves: Names of the demands, sorted.
    """

    shape: NodeShape
    serves: tuple[str, ...]
    images: tuple[str, ...]
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The answer.

    Attributes:
        today: One pool per demand, on today's shape, by the same model.
        pools: What is proposed.
        is_optimal: Proven best among the candidates.
        candidates: How many pools were weighed.
        notes: What makes the answer weak: little history, no price.
    """

    today: tuple[Candidate, ...]
    pools: tuple[Candidate, ...]
    is_optimal: bool
    candidates: int
    notes: tuple[str, ...] = ()

    @property
    def saved_ratio(self) -> float:
        """Return the share of today's idle cost that the proposal saves."""
        before = sum(pool.cost.hour_cost for pool in self.today)
        return 1.0 - sum(pool.cost.hour_cost for pool in self.pools) / before if before > 0 else 0.0
