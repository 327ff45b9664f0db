"""Moves of the last hour and those under way, for budgets: what an earlier process began counts as well. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from binpack.controller.moves import Open
from binpack.relocation.candidates import service_of
from binpack.repack.values import PastMove
from fleet.pod import Pod

_HOUR_S = 3600.0


class PastMoves:
    """By the uid of the pod that moves; times are those of the caller's clock."""

    def __init__(self, shown_within_s: float) -> None:
        """Begin with nothing.

        Args:
            shown_within_s: A move that was begun longer ago and is not open is over.
        """
        self._shown_within_s = shown_within_s
        self._moves: dict[str, PastMove] = {}

    def all(self) -> tuple[PastMove, ...]:
        """Return them."""
        return tuple(self._moves.values())

    def under_way(self) -> frozenset[str]:
        """Return the uids of the pods that move now."""
        return frozenset(uid for uid, one in self._moves.items() if not one.is_over)

    def count(self, service: str) -> int:
        """Return how many replicas of a service move now."""
        return sum(one.service == service and not one.is_over for one in self._moves.values())

    def began(self, pod: Pod, target: str, now_s: float) -> None:
        """Note that a move has begun."""
        self._moves[pod.uid] = PastMove(
            started_at_s=now_s, service=service_of(pod), source=pod.node_name, target=target, is_over=False
        )

    def look(self, opened: Iterable[Open], now_s: float) -> bool:
        """Take what is open now; return True if a move has ended since the last look."""
        has_ended = False
        there = {move.uid: move for move in opened}
        for uid, move in there.items():
            if (known := self._moves.get(uid)) is None or known.is_over:
                self._moves[uid] = _found(move, now_s)
        for uid, one in list(self._moves.items()):
            if not one.is_over and uid not in there and now_s - one.started_at_s > self._shown_within_s:
                self._moves[uid] = replace(one, is_over=True)
                has_ended = True
            elif one.is_over and now_s - one.started_at_s > _HOUR_S:
                del self._moves[uid]
        return has_ended


def _found(move: Open, now_s: float) -> PastMove:
    """Return a move that an earlier process began; when is not known, so it counts as if it were just now."""
    old, successor = move.old, move.successor
    target = successor.node_name or successor.pinned_node if successor is not None else ""
    if not target and old is not None and old.moving_to is not None:
        target = old.moving_to.node
    source = "" if old is None else old.node_name
    return PastMove(started_at_s=now_s, service=service_of(move.witness), source=source, target=target, is_over=False)
