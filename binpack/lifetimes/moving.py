"""Moves that make room for waiting pods, where pods come and go; few at any time.

Every half hour the kinds that wait are looked at, those that ask most GPU first. Within any hour no more pods are
moved than a part of the pods in place. A move takes no time here: what a pod costs while it is in two places is not
counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from binpack.index import Index
from binpack.repack.rescue import Rescue
from binpack.repack.room import Effort
from binpack.repack.trial import Shift
from fleet.plan import Placement
from fleet.pod import Berth, Pod

EVERY_S: Final = 1800.0
_HOUR_S: Final = 3600.0
_KINDS: Final = 2  # looked at each time: a search that finds nothing is the dear one
_EFFORT: Final = Effort(nodes=4, depth=0)  # pods that give way make nobody else give way: a tenth of the time


class Moving:
    """Makes room on the index, within the budget."""

    def __init__(self, index: Index, ratio: float) -> None:
        """Start with nobody in place.

        Args:
            index: Books what is decided.
            ratio: Moves within any hour over pods in place.
        """
        self._rescue = Rescue(index, effort=_EFFORT)
        self._ratio = ratio
        self._in_place = 0
        self._moved_s: deque[float] = deque()
        self._next_s = 0.0
        self.moves = 0

    def took(self, pod: Pod, berth: Berth) -> None:
        """Note that the index has booked a pod."""
        self._rescue.took(pod, berth)
        self._in_place += 1

    def gave_back(self, uid: str) -> None:
        """Note that a pod has left and the index has given back what it held."""
        self._rescue.gave_back(uid)
        self._in_place -= 1

    def berth_of(self, uid: str) -> Berth:
        """Return where a pod is now."""
        return self._rescue.berth_of(uid)

    def is_time(self, now_s: float) -> bool:
        """Return whether it is time to look again; it then is not for a while."""
        if now_s < self._next_s:
            return False
        self._next_s = now_s + EVERY_S
        return True

    def looked_at(self, kinds: Sequence[tuple[Pod, int]]) -> list[Pod]:
        """Return which of the waiting kinds to make room for: one pod each, those that ask most GPU first."""
        asking = [pod for pod, _ in kinds if pod.ask is not None]
        return sorted(asking, key=lambda pod: -pod.ask.total_milli_gpu if pod.ask else 0)[:_KINDS]

    def make_room(self, pod: Pod, now_s: float) -> tuple[Placement, tuple[Shift, ...]] | None:
        """Return the pod's berth and the moves before it, all booked on the index; None where nothing changed."""
        while self._moved_s and self._moved_s[0] <= now_s - _HOUR_S:
            self._moved_s.popleft()
        found = self._rescue.make_room(pod, int(self._ratio * self._in_place) - len(self._moved_s))
        if found is not None:
            self._in_place += 1
            self._moved_s.extend(now_s for _ in found[1])
            self.moves += len(found[1])
        return found
