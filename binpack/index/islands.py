"""Devices with a fast link between them: whose are given, and what it costs to part them.

A node's islands add to its potential what lies free in broken ones::

    Phi_islands = lI * (untouched devices of islands of which some, not all, are untouched)

so that whoever needs one device takes the last of a broken island rather than the first of a whole one, and who needs
as many as an island has takes all of it. A pod on several devices pays for each island beyond the first besides. Both
are wishes: nobody waits for them, unless the pod says that it must have one island.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from binpack.index.columns import Bools, Floats, Ints

BROKEN_MILLI: Final = 64.0  # of a device that lies free beside a taken one of its island
PARTED_MILLI: Final = 256.0  # of each island more that a pod is spread over


def peers(marked: Bools, island: Ints) -> Ints:
    """Return, for each device, how many marked ones its island has, (n, D); one without an island is its own."""
    same = (island[:, :, None] == island[:, None, :]) & (island[:, :, None] > 0)
    same |= np.eye(island.shape[1], dtype=np.bool_)
    found: Ints = (same & marked[:, None, :]).sum(axis=2)
    return found


def sizes(island: Ints) -> Ints:
    """Return how many devices each device's island has, (n, D)."""
    return peers(np.ones(island.shape, np.bool_), island)


def broken(untouched: Ints, island: Ints) -> Floats:
    """Return Phi_islands, (n,)."""
    free = untouched > 0
    lies_free = free & (island > 0) & (peers(free, island) < sizes(island))
    found: Floats = BROKEN_MILLI * lies_free.sum(axis=1)
    return found


def breaking(untouched: Ints, island: Ints) -> Floats:
    """Return by how much Phi_islands rises when one device is no longer untouched, for each device, (n, D)."""
    free = untouched > 0
    many, all_of_it = peers(free, island), sizes(island)
    step = np.where(many == all_of_it, all_of_it - 1, -1)
    found: Floats = BROKEN_MILLI * np.where(free & (island > 0), step, 0)
    return found


def parted(chosen: Bools, island: Ints) -> Floats:
    """Return what it costs a pod that its devices are of several islands, (n,); devices of no island cost nothing."""
    marked = chosen & (island > 0)
    earlier = np.tri(island.shape[1], k=-1, dtype=np.bool_)
    same = (island[:, :, None] == island[:, None, :]) & earlier
    is_first = marked & ~(same & marked[:, None, :]).any(axis=2)
    found: Floats = PARTED_MILLI * np.maximum(is_first.sum(axis=1) - 1, 0)
    return found


def roomy(usable: Bools, island: Ints, count: int) -> Bools:
    """Return which usable devices are of an island with `count` usable ones, (n, D)."""
    return usable & (island > 0) & (peers(usable, island) >= count)


def together(free: Bools, island: Ints, count: int) -> Bools:
    """Return which free devices to give, at most `count` per node, (n, D), of as few islands as a greedy choice finds.

    While no island has as many free devices as are still wanted, the one with most is taken whole; then the smallest
    that has enough, so that broken islands are used up first and whole ones last. Equals go by position.
    """
    chosen = np.zeros(free.shape, np.bool_)
    left = np.minimum(count, free.sum(axis=1))
    while (left > 0).any():
        open_ = free & ~chosen
        many = np.where(open_, peers(open_, island), 0)
        enough = many >= left[:, None]
        tightest = np.where(enough, many, many.max(initial=0) + 1).argmin(axis=1)
        target = np.where(enough.any(axis=1), tightest, many.argmax(axis=1))
        rows = np.arange(len(free))
        of_target = (island == island[rows, target][:, None]) & (island > 0)
        of_target[rows, target] = True
        of_target &= open_
        taken = of_target & (np.cumsum(of_target, axis=1) <= left[:, None])
        chosen |= taken
        left = left - taken.sum(axis=1)
    return chosen
