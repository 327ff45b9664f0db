"""What a pod's resource claims cost on every node of an index, kept up to date node by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from binpack.dra.choose import Chosen, Obstacle, Refused
from binpack.dra.desk import Desk
from binpack.dra.wishes import Pending, Wish
from fleet.dra import ClaimChoice
from fleet.plan import Reason, Unplaced
from fleet.pod import Pod

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_MOST_COLUMNS = 64
_ENOUGH = 64  # nodes that can satisfy a wish: among so many the cheapest is cheap
_MORE = 16  # others that are looked at with every question, so that at last all are known
# A wish whose search was given up on so many nodes is looked for on no others until so much has changed: each such
# search takes longer than placing a hundred other pods.
_MOST_GIVEN_UP = 4
_CHANGES_UNTIL_NEW_HOPE = 64


@dataclass(slots=True)
class _Column:
    """Costs of one wish by slot, true as of the desk's clock `at` where `is_known`.

    Attributes:
        moved: Names of nodes that were known and changed since.
        given_up: On how many nodes the search was, since the desk's clock `hoped_at`.
    """

    cost: Floats
    is_known: Bools
    at: int
    moved: set[str]
    given_up: int = 0
    hoped_at: int = 0

    @property
    def is_hopeless(self) -> bool:
        return self.given_up >= _MOST_GIVEN_UP


class ClaimsBySlot:
    """The claims' part of an index: a cost for each slot, inf where they cannot be satisfied.

    A pod without claims never gets here. Nodes are looked at for a kind of claims as they are needed: those that
    changed at every question, others the cheapest first until there is choice enough, and all where there is none.
    """

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._columns: dict[tuple[object, ...], _Column] = {}

    def node_moved(self, name: str) -> None:
        """Note that the node has another slot, or has come."""
        for column in self._columns.values():
            column.moved.add(name)

    def charge(self, pod: Pod, cost: Floats, slots: Mapping[str, int], name_of: Callable[[int], str]) -> None:
        """Add what the pod's claims cost to the cost by slot, in place; inf where they cannot be satisfied.

        Args:
            pod: It has claims.
            cost: By slot.
            slots: Of all nodes of the index, by name.
            name_of: The other way round.
        """
        wish = self.desk.wish(pod)
        if isinstance(wish, Pending):
            cost[:] = np.inf
            return
        column = self._column(wish, len(cost))
        self._renew(column, slots)
        is_open = cost < np.inf
        for slot in [slots[name] for name in column.moved if name in slots]:
            if is_open[slot] and not column.is_hopeless:
                self._look(column, slot, name_of(slot), wish)
        column.moved.clear()
        new = np.flatnonzero(is_open & ~column.is_known[: len(cost)])
        enough = max(_ENOUGH - int((is_open & (column.cost[: len(cost)] < np.inf)).sum()), 0)
        for number, slot in enumerate(new[np.argsort(cost[new], kind="stable")].tolist()):
            if column.is_hopeless or (enough <= 0 and number >= _MORE):
                break
            enough -= self._look(column, slot, name_of(slot), wish)
        cost += column.cost[: len(cost)]

    def _look(self, column: _Column, slot: int, name: str, wish: Wish) -> bool:
        """Find out what the wish costs on a node; return True if it can be satisfied there."""
        answer = self.desk.offer(name, wish)
        is_possible = isinstance(answer, Chosen)
        column.cost[slot] = answer.cost if isinstance(answer, Chosen) else np.inf
        column.given_up += isinstance(answer, Refused) and answer.obstacle is Obstacle.TOO_LONG
        column.is_known[slot] = True
        return is_possible

    def choices(self, pod: Pod, node: str) -> tuple[ClaimChoice, ...]:
        """Return the devices for the pod's claims on a node on which they cost less than inf."""
        wish = self.desk.wish(pod)
        answer = self.desk.offer(node, wish) if isinstance(wish, Wish) else None
        return answer.choices if isinstance(answer, Chosen) else ()

    def why_not(self, pod: Pod, names: Iterable[str]) -> Unplaced | None:
        """Return why claims keep the pod from these nodes, which have all else; None = they do not."""
        wish = self.desk.wish(pod)
        if isinstance(wish, Pending):
            return Unplaced(pod_uid=pod.uid, reason=wish.reason, detail=wish.detail)
        column = self._columns.get(wish.key)
        if column is not None and column.is_hopeless:
            text = f"the search for devices was given up on {column.given_up} nodes, so others are not searched"
            many = sum(1 for _ in names)
            return Unplaced(pod_uid=pod.uid, reason=Reason.CLAIM_UNSATISFIED, detail=text, allowed_nodes=many)
        refusals = {name: answer for name in names if isinstance(answer := self.desk.offer(name, wish), Refused)}
        if not refusals:
            return None
        trouble = next((one for name in refusals for one in self.desk.troubles(name, wish)), None)
        if trouble is not None and trouble.is_unmodelled:
            return Unplaced(
                pod_uid=pod.uid, reason=Reason.LEFT_TO_SCHEDULER, detail=trouble.text, allowed_nodes=len(refusals)
            )
        nearest = min(refusals, key=lambda name: (_ORDER[refusals[name].obstacle], _lacks(refusals[name]), name))
        text = _words(refusals, nearest)
        if trouble is not None:
            text += f"; {trouble.text}"
        return Unplaced(pod_uid=pod.uid, reason=Reason.CLAIM_UNSATISFIED, detail=text, allowed_nodes=len(refusals))

    def _column(self, wish: Wish, count: int) -> _Column:
        column = self._columns.get(wish.key)
        if column is None:
            if len(self._columns) >= _MOST_COLUMNS:
                del self._columns[next(iter(self._columns))]
            column = self._columns[wish.key] = _Column(
                np.zeros(0), np.zeros(0, np.bool_), self.desk.changes.clock, set()
            )
        more = count - len(column.cost)
        if more > 0:
            column.cost = np.concatenate([column.cost, np.full(more, np.inf)])
            column.is_known = np.concatenate([column.is_known, np.zeros(more, np.bool_)])
        return column

    def _renew(self, column: _Column, slots: Mapping[str, int]) -> None:
        """Forget what changed since the column was asked last."""
        desk = self.desk
        if desk.changes.clock - column.hoped_at >= _CHANGES_UNTIL_NEW_HOPE or column.at < desk.changes.everywhere_at:
            column.given_up, column.hoped_at = 0, desk.changes.clock
        if column.at < desk.changes.everywhere_at:
            column.is_known[:] = False
            column.cost[:] = np.inf
            column.moved.clear()
        elif column.at < desk.changes.clock:
            column.moved.update(desk.changes.since(column.at))
        for name in column.moved:
            slot = slots.get(name)
            if slot is not None:
                column.is_known[slot] = False
                column.cost[slot] = np.inf
        column.at = desk.changes.clock


_ORDER = {
    Obstacle.CONSTRAINT: 0,
    Obstacle.TOO_LONG: 1,
    Obstacle.IN_USE: 2,
    Obstacle.POOL_CLOSED: 3,
    Obstacle.NONE_MATCH: 4,
    Obstacle.HELD_ELSEWHERE: 5,
}


def _lacks(refused: Refused) -> int:
    return max(0, refused.wanted - refused.free)


def _words(refusals: Mapping[str, Refused], nearest: str) -> str:
    """Return how many nodes fail by what, and how near the nearest one is."""
    counts = Counter(refused.obstacle for refused in refusals.values())
    refused = refusals[nearest]
    wanted = f"{refused.wanted} device(s) for {refused.request}"
    match refused.obstacle:
        case Obstacle.IN_USE:
            text = f"best node {nearest} has {refused.free} free of {wanted}"
        case Obstacle.CONSTRAINT:
            text = (
                f"best node {nearest} has {refused.free} free of {wanted}, and no choice meets the claim's constraints"
            )
        case Obstacle.TOO_LONG:
            text = f"the search for devices on {nearest} was given up"
        case Obstacle.POOL_CLOSED:
            text = f"best node {nearest} may give none: {refused.detail}"
        case Obstacle.HELD_ELSEWHERE:
            text = "a claim is allocated on a node without room for the pod"
        case _:
            text = f"no node with room for the pod has {wanted}"
    others = ", ".join(f"{count} {obstacle.value}" for obstacle, count in sorted(counts.items(), key=str))
    return f"{text} ({len(refusals)} nodes: {others})" if len(refusals) > 1 else text
