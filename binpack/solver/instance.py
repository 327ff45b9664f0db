"""What CP-SAT is asked and what it answers: plain integers, no names, no floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.plan import SolveStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """Interchangeable pods.

    Attributes:
        count: How many there are.
        tier: Rank of their priority within the batch, 0 = lowest.
        demand: Of one pod, > 0: what leaving it out loses within its tier.
    """

    count: int
    tier: int
    demand: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A pattern: pods that one node of a group takes together.

    Attributes:
        node_group: Whose nodes may take it.
        takes: (pod group, number of its pods), sorted by group.
        cost: What one use costs; it may be negative.
        breaks: Reserves that one use breaks into.
    """

    node_group: int
    takes: tuple[tuple[int, int], ...]
    cost: int
    breaks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One batch, ready to solve: how often is each column used?

    Each node takes at most one column, each pod stands in at most one. Lexicographic value: leave out as little demand
    as possible of the highest tier, then of the next; in the lowest tier demand times `unplaced_price` is added to the
    cost of the columns and of broken reserves.

    Attributes:
        node_counts: Nodes per node group.
        hint: A feasible answer, uses per column.
        spare: Per reserve how often it may be broken into free of charge; every further time costs `reserve_price`.
    """

    pods: tuple[PodGroup, ...]
    node_counts: tuple[int, ...]
    columns: tuple[Column, ...]
    hint: tuple[int, ...]
    unplaced_price: int
    spare: tuple[int, ...] = ()
    reserve_price: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How long the solver may think.

    Attributes:
        deterministic_s: CP-SAT's machine-independent time: the same answer everywhere. About a second of one core each.
        wall_s: After this the child process is given up; it decides whether an answer comes, never which.
        seed: Of the solver's pseudo-random choices.
    """

    deterministic_s: float = 0.1
    wall_s: float = 1.0
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The solver's answer.

    Attributes:
        uses: How often each column is used; empty without an answer.
        bound: Proven lower limit of `value` over the instance's columns; None where higher tiers are not proven.
    """

    status: SolveStatus
    uses: tuple[int, ...] = ()
    bound: int | None = None
    deterministic_s: float = 0.0


def left_out(instance: Instance, uses: Sequence[int]) -> tuple[int, ...]:
    """Return how many pods of each group these uses of the columns leave out."""
    missing = [group.count for group in instance.pods]
    for column, times in zip(instance.columns, uses, strict=True):
        if times:
            for group, number in column.takes:
                missing[group] -= number * times
    return tuple(missing)


def overdrawn(instance: Instance, uses: Sequence[int]) -> tuple[int, ...]:
    """Return how often each reserve is broken into beyond what is spare."""
    times_broken = [0] * len(instance.spare)
    for column, times in zip(instance.columns, uses, strict=True):
        for reserve in column.breaks:
            times_broken[reserve] += times
    return tuple(max(0, times - spare) for times, spare in zip(times_broken, instance.spare, strict=True))


def cost(instance: Instance, uses: Sequence[int]) -> int:
    """Return what the columns used and the reserves broken cost; pods left out are not priced in."""
    of_columns = sum(column.cost * times for column, times in zip(instance.columns, uses, strict=True) if times)
    return of_columns + instance.reserve_price * sum(overdrawn(instance, uses))


def value(instance: Instance, uses: Sequence[int]) -> int:
    """Return what CP-SAT minimises last: `cost` plus the price of what the lowest tier leaves out."""
    missing = sum(
        group.demand * n for group, n in zip(instance.pods, left_out(instance, uses), strict=True) if group.tier == 0
    )
    return cost(instance, uses) + instance.unplaced_price * missing
