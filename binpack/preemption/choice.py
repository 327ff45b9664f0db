"""The fewest pods whose going makes room, the least important first, no disruption budget broken where avoidable.

Sets are compared by how many budgets they break, then by how many pods they hold, then by the highest and by the sum of
the priorities among them. Small sets are gone through one by one; where there are too many, kube-scheduler's way stands
in: all go in thought, and one after another is let stay, the most important first (pkg/scheduler/framework/preemption).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import combinations
from math import comb
from typing import Final

from fleet.budget import DisruptionBudget
from fleet.pod import Pod

_MOST_LOOKS: Final = 600
BudgetsOf = Callable[[Pod], Collection[DisruptionBudget]]
Fits = Callable[[Collection[str]], bool]
Price = tuple[int, int, int, int]


def price(victims: Iterable[Pod], budgets_of: BudgetsOf, gone: Iterable[Pod] = ()) -> Price:
    """Return what it costs that these pods go: broken budgets, how many, highest priority, sum of priorities.

    Args:
        victims: Pods to go.
        budgets_of: The budgets that cover a pod.
        gone: Pods already chosen, which use up budgets too.
    """
    chosen = list(victims)
    used: dict[str, int] = {}
    broken = 0
    for pod in (*gone, *chosen):
        covering = budgets_of(pod)
        for budget in covering:
            used[budget.key] = used.get(budget.key, 0) + 1
            allowed = budget.allowed if budget.is_current else 0
            broken += used[budget.key] > allowed
        broken += len(covering) > 1  # the API evicts such a pod under none of them
    priorities = [pod.priority for pod in chosen]
    return broken, len(chosen), max(priorities, default=-(2**31)), sum(priorities)


def fewest(
    candidates: Sequence[Pod],
    fits: Fits,
    budgets_of: BudgetsOf,
    *,
    gone: Sequence[Pod] = (),
    may_break: bool = False,
) -> tuple[Pod, ...] | None:
    """Return the cheapest pods whose going makes room; None where no allowed set does.

    Args:
        candidates: Who may go, in the order of preference; nobody has to.
        fits: Whether there is room once the pods of these uids are gone; more gone never means less room.
        budgets_of: The budgets that cover a pod.
        gone: Pods already chosen elsewhere, which use up budgets too.
        may_break: Whether budgets may be broken where nothing else makes room.
    """
    if not fits({pod.uid for pod in candidates}):
        return None
    upper = spared(candidates, fits, budgets_of, gone=gone)
    best = price(upper, budgets_of, gone)
    found: tuple[Pod, ...] | None = upper if may_break or not best[0] else None
    looks = 0
    for count in range(len(candidates) + 1):
        # A larger set is worth a look only as long as every smaller one breaks a budget.
        if found is not None and not best[0] and count > best[1]:
            break
        looks += comb(len(candidates), count)
        if looks > _MOST_LOOKS:
            break
        for chosen in combinations(candidates, count):
            cost = price(chosen, budgets_of, gone)
            is_better = found is None or cost < best
            if is_better and (may_break or not cost[0]) and fits({pod.uid for pod in chosen}):
                found, best = chosen, cost
    return found


def spared(
    candidates: Sequence[Pod], fits: Fits, budgets_of: BudgetsOf, *, gone: Sequence[Pod] = ()
) -> tuple[Pod, ...]:
    """Return pods whose going makes room and of which nobody could stay; all of them go where all do not suffice.

    Those whose going would break a budget are let stay first, then the most important, of these the oldest.
    """
    going = {pod.uid: pod for pod in candidates}
    breaks = {pod.uid: price([pod], budgets_of, gone)[0] for pod in candidates}
    for pod in sorted(reversed(candidates), key=lambda pod: (-breaks[pod.uid], -pod.priority)):
        rest = going.keys() - {pod.uid}
        if fits(rest):
            del going[pod.uid]
    return tuple(going.values())
