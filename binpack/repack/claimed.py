"""What it costs to free devices for the resource claims of a pod, by node: an estimate, like `binpack.repack.nearest`.

A node counts as near where few devices are missing and those who hold some by claims are cheap to move. Which devices
these are is not looked at: a node whose devices are of another kind is tried in vain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from binpack.dra.choose import Refused
from binpack.dra.desk import Desk
from binpack.dra.wishes import Wish
from binpack.index.columns import Bools, Floats, Ints
from binpack.repack.occupants import Occupants
from fleet.pod import Pod

_MOST_LOOKED_AT: Final = 64  # nodes whose devices are looked at, those with the cheapest holders


def holds_by_claim(occupants: Occupants, rows: Ints) -> Bools:
    """Return which of these rows belong to pods that hold devices by claims."""
    members = occupants.members
    return np.array([bool((one := members[row]) and one.berth.choices) for row in rows.tolist()], np.bool_)


def cheapest_by_slot(slot: Ints, cost: Floats, count: int) -> Floats:
    """Return the least of the costs at each slot, (count,); inf where there is none."""
    found = np.full(count, np.inf)
    np.minimum.at(found, slot, cost)
    return found


def with_claims(
    pod: Pod, desk: Desk, name_of: Callable[[int], str], amounts: Floats, slot: Ints, cost: Floats
) -> Floats:
    """Return what it costs at least to make room for a pod with claims that fits nowhere, by slot; inf = not looked at.

    Args:
        pod: The pod.
        desk: What its claims could get.
        name_of: Returns the name of the node in a slot.
        amounts: What freeing CPU and memory costs, by slot; inf where the pod may not go.
        slot: Of movable pods that hold devices by claims.
        cost: Of moving each of them.
    """
    found = np.full(len(amounts), np.inf)
    wish = desk.wish(pod)
    if not isinstance(wish, Wish):
        return found
    least = cheapest_by_slot(slot, cost, len(amounts))
    # Where neither CPU is short nor anybody could go who has devices, nothing is to be gained.
    likely: Floats = np.where(np.isfinite(least), amounts + least, np.where(amounts > 0, amounts, np.inf))
    able = np.flatnonzero(np.isfinite(likely))
    for number in able[np.argsort(likely[able], kind="stable")][:_MOST_LOOKED_AT].tolist():
        answer = desk.offer(name_of(number), wish)
        missing = max(1, answer.wanted - answer.free) if isinstance(answer, Refused) else 0
        here = np.sort(cost[slot == number])[:missing]
        if len(here) or not missing:
            found[number] = amounts[number] + here.sum()
    return found
