"""The fewest pods whose going makes room, the least important first, no disruption budget broken where avoidable.

Sets are compared by how many budgets they break, then by how many pods they hold, then by the highest and by the sum of
the priorities among them. Small sets are gone through one by one; where there are too many, kube-scheduler's way stands
in: all go in thought, and one after another is let stay, the most important first (pkg/scheduler/framework/preemption).
Members of a gang that can only go together (`binpack.preemption.bonds`) count together.
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
Along = Callable[[Sequence[Pod]], tuple[Pod, ...] | None]
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


def alone(chosen: Sequence[Pod]) -> tuple[Pod, ...]:
    """Return the chosen: nobody has to go with them."""
    return tuple(chosen)


def fewest(
    candidates: Sequence[Pod],
    fits: Fits,
    budgets_of: BudgetsOf,
    *,
    gone: Sequence[Pod] = (),
    may_break: bool = False,
    along: Along = alone,
) -> tuple[Pod, ...] | None:
    """Return the cheapest pods whose going makes room; None where no allowed set does.

    Args:
        candidates: Who may go, in the order of preference; nobody has to.
        fits: Whether there is room once the pods of these uids are gone; more gone never means less room.
        budgets_of: The budgets that cover a pod.
        gone: Pods already chosen elsewhere, which use up budgets too.
        may_break: Whether budgets may be broken where nothing else makes room.
        along: Some candidates and all who must go with them, of other nodes as well; None where these may not go.
            Every candidate may go if no other does.
    """
    if not fits(_everybody(candidates, along)):
        return None
    upper = spared(candidates, fits, budgets_of, gone=gone, along=along)
    best = price(upper or (), budgets_of, gone)
    found = upper if upper is not None and (may_break or not best[0]) else None
    looks = 0
    for count in range(len(candidates) + 1):
        # A larger set is worth a look only as long as every smaller one breaks a budget.
        if found is not None and not best[0] and count > best[1]:
            break
        looks += comb(len(candidates), count)
        if looks > _MOST_LOOKS:
            break
        for chosen in combinations(candidates, count):
            going = along(chosen)
            if going is None or (found is not None and not best[0] and len(going) > best[1]):
                continue
            cost = price(going, budgets_of, gone)
            is_better = found is None or cost < best
            if is_better and (may_break or not cost[0]) and fits({pod.uid for pod in going}):
                found, best = going, cost
    return found


def spared(
    candidates: Sequence[Pod],
    fits: Fits,
    budgets_of: BudgetsOf,
    *,
    gone: Sequence[Pod] = (),
    along: Along = alone,
) -> tuple[Pod, ...] | None:
    """Return pods whose going makes room and of which nobody could stay; all of them go where all do not suffice.

    Those whose going would break a budget are let stay first, then those who take most others along, then the most
    important, of these the oldest. None where those who are left may not go together.
    """
    going = {pod.uid: pod for pod in candidates}
    parties = {pod.uid: along([pod]) or (pod,) for pod in candidates}
    breaks = {uid: price(party, budgets_of, gone)[0] for uid, party in parties.items()}
    order = sorted(reversed(candidates), key=lambda pod: (-breaks[pod.uid], -len(parties[pod.uid]), -pod.priority))
    for pod in order:
        rest = going.keys() - {pod.uid}
        if fits(rest):
            del going[pod.uid]
    found = along(tuple(going.values()))
    if found is None or len(found) == len(going):
        return found
    # Who goes along with others may make room for some who were to go by themselves.
    for pod in order:
        if pod.uid in going:
            rest_along = along([one for one in going.values() if one.uid != pod.uid])
            if rest_along is not None and len(rest_along) < len(found) and fits({one.uid for one in rest_along}):
                del going[pod.uid]
                found = rest_along
    return found


def _everybody(candidates: Sequence[Pod], along: Along) -> set[str]:
    uids = {pod.uid for pod in candidates}
    if along is not alone:
        uids.update(one.uid for pod in candidates for one in along([pod]) or ())
    return uids
