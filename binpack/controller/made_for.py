"""For which waiting pods room is being made by moves that are ordered or under way. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from binpack.books import account
from binpack.controller.moves import Open
from binpack.controller.sorting import wish
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet.plan import Placement
from fleet.pod import Pod


class MadeFor:
    """Remembers what moves were planned for; of those that an earlier process began it looks what they lead to."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pods: dict[str, frozenset[str]] = {}

    def planned(self, moved: Iterable[str], waiting: Iterable[str]) -> None:
        """Note a plan.

        Args:
            moved: Uids of the pods that it moves.
            waiting: Uids of the pods that fit afterwards.
        """
        self._pods |= dict.fromkeys(moved, frozenset(waiting))

    def awaited(self, going: Collection[str], opened: Sequence[Open], waiting: Sequence[Pod]) -> frozenset[str]:
        """Return the uids of the waiting pods that room is being made for.

        Args:
            going: Uids of the pods that move or are to.
            opened: The open moves.
            waiting: Pods that wait for room.
        """
        self._pods = {uid: pods for uid, pods in self._pods.items() if uid in going}
        found = set[str]().union(*self._pods.values())
        begun_before = [move.old for move in opened if move.old is not None and move.uid not in self._pods]
        if begun_before and waiting:
            index, fits = Index(self._left_by(begun_before)), dict[object, bool]()
            for pod in waiting:
                if (kind := wish(pod)) not in fits:
                    fits[kind] = isinstance(index.place(pod, with_shortfall=False), Placement)
                if fits[kind]:
                    found.add(pod.uid)
        return frozenset(found)

    def _left_by(self, pods: Sequence[Pod]) -> list[NodeState]:
        """Return the nodes of these pods as they are without them."""
        gone = {pod.uid for pod in pods}
        found: list[NodeState] = []
        for name in sorted({pod.node_name for pod in pods}):
            node = self._ledger.node(name)
            if node is not None:
                held = [one for uid, one in self._ledger.holdings_on(name).items() if uid not in gone]
                found.append(account(node, held).state)
        return found
