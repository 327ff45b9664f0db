"""Replicas beside the ones that are needed: the planner moves a replica by having a second one first.

Whoever moves replicas adds what it moves to the autoscaler's annotation `berthmaster.dev/surge`, and takes it out again
when the second one serves. The count that is set is what is decided plus that; what is decided never sees it, so that a
move neither looks like room to spare nor like a shrink to be held back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fleet import labels
from scaler.controller.census import Order

# A list that nobody tends any more must not buy a second fleet.
_MOST = 10


def surge_of(annotations: Mapping[str, str]) -> int:
    """Return how many replicas beside the needed ones are asked for."""
    return min(_MOST, len(labels.surge_tokens(annotations.get(labels.SURGE, ""))))


def without_surge(order: Order, surge: int) -> Order:
    """Return the order as decisions see it; pods beyond it are as good as gone."""
    if not surge or order.replicas is None:
        return order
    return replace(order, replicas=max(0, order.replicas - surge))
