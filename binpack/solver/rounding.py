"""Whole numbers from the relaxation: what it uses in full stays, and what is left is a small instance of its own. Pure.

The relaxation of a large batch uses few patterns in parts: of 3,000 pods and 8,000 patterns 46. Fixing the others
leaves an instance that CP-SAT proves in hundredths of a second, and the joint answer is the hint for the whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from binpack.solver.instance import Instance, left_out

_NEARLY = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An instance of which some uses are settled.

    Attributes:
        instance: What is left of pods and nodes; all pods in the lowest tier, where each has its price.
        columns: Which of the whole instance's columns it has.
        fixed: Settled uses of the whole instance's columns.
    """

    instance: Instance
    columns: tuple[int, ...]
    fixed: tuple[int, ...]

    def whole(self, uses: Sequence[int]) -> tuple[int, ...]:
        """Return the uses of the whole instance's columns that these of the part make."""
        found = list(self.fixed)
        for column, times in zip(self.columns, uses, strict=True):
            found[column] += times
        return tuple(found)


def floors(uses: Sequence[float]) -> tuple[int, ...]:
    """Return how often each column is used in full."""
    return tuple(int(times + _NEARLY) for times in uses)


def open_kinds(instance: Instance, uses: Sequence[float]) -> frozenset[int]:
    """Return the pod groups that some column takes which is used in part."""
    return frozenset(
        group
        for column, times, whole in zip(instance.columns, uses, floors(uses), strict=True)
        if times - whole > _NEARLY
        for group, _ in column.takes
    )


def freed(instance: Instance, uses: Sequence[int], kinds: Collection[int]) -> tuple[int, ...]:
    """Return the uses without those of columns that take any of these pod groups."""
    return tuple(
        0 if any(group in kinds for group, _ in column.takes) else times
        for column, times in zip(instance.columns, uses, strict=True)
    )


def part(instance: Instance, fixed: Sequence[int], hint: Sequence[int]) -> Part | None:
    """Return what is left once these uses are settled; None where they use up more than there is.

    Args:
        instance: The whole.
        fixed: Settled uses per column.
        hint: A feasible answer to the whole that uses every column at least as often.
    """
    nodes, spare = list(instance.node_counts), list(instance.spare)
    for column, times in zip(instance.columns, fixed, strict=True):
        nodes[column.node_group] -= times
        for reserve in column.breaks if times else ():
            spare[reserve] -= times
    pods = left_out(instance, fixed)
    if min(nodes, default=0) < 0 or min(pods, default=0) < 0:
        return None
    columns = tuple(
        number
        for number, column in enumerate(instance.columns)
        if nodes[column.node_group] and all(pods[group] >= many for group, many in column.takes)
    )
    small = replace(
        instance,
        pods=tuple(replace(group, count=many, tier=0) for group, many in zip(instance.pods, pods, strict=True)),
        node_counts=tuple(nodes),
        columns=tuple(instance.columns[number] for number in columns),
        hint=tuple(hint[number] - fixed[number] for number in columns),
        spare=tuple(max(0, left) for left in spare),
    )
    return Part(instance=small, columns=columns, fixed=tuple(fixed))
