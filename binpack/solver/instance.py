"""What the solver is asked and what it answers: plain integers, no names, no floats."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.plan import SolveStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """Interchangeable pods.

    Attributes:
        count: How many there are.
        tier: Rank of their priority within the batch, 0 = lowest.
        weight: Demand of one pod, > 0: what leaving it out loses within its tier.
    """

    count: int
    tier: int
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A pattern: pods that one node of a group takes together.

    Attributes:
        node_group: Whose nodes may take it.
        takes: (pod group, number of its pods), sorted by group.
        cost: What one use costs, in the unit of `Instance.unplaced_price`; it may be negative.
    """

    node_group: int
    takes: tuple[tuple[int, int], ...]
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One batch, ready to solve: how often is each column used?

    Each node takes at most one column, each pod stands in at most one. Lexicographic value: leave out as little weight
    as possible of the highest tier, then of the next; in the lowest tier, where anything must be left out, weight times
    `unplaced_price` is added to the cost of the columns.

    Attributes:
        node_counts: Nodes per node group.
        hint: A feasible answer, uses per column.
    """

    pods: tuple[PodGroup, ...]
    node_counts: tuple[int, ...]
    columns: tuple[Column, ...]
    hint: tuple[int, ...]
    unplaced_price: int


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
        objective: Cost of the columns plus `unplaced_price` x weight left out in the lowest tier that leaves any.
        bound: Proven lower limit of `objective` over the instance's columns; None where higher tiers are not proven.
        detail: Why there is no answer, for the log.
    """

    status: SolveStatus
    uses: tuple[int, ...] = ()
    objective: int | None = None
    bound: int | None = None
    deterministic_s: float = 0.0
    detail: str = ""


def left_out(instance: Instance, uses: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many pods of each group these uses of the columns leave out."""
    missing = [group.count for group in instance.pods]
    for column, times in zip(instance.columns, uses, strict=True):
        if times:
            for group, number in column.takes:
                missing[group] -= number * times
    return tuple(missing)
