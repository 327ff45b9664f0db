"""Gangs that are being made to go as a whole: whoever of them is not let go at once is asked again. No I/O.

Evictions cannot be asked for all or none, and the seat may be free before the last member of a gang went. Remembered
only by who leads: a successor asks the rest of a gang as long as the seat itself needs some of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from binpack.gangs.roll import Key, Roll, key_of
from fleet.pod import Pod


class Begun:
    """Members that were asked to go with their gang, and for whom, until they leave."""

    def __init__(self) -> None:
        self._for: dict[str, tuple[Pod, str]] = {}

    def note(self, pairs: Iterable[tuple[Pod, Pod]], roll: Roll) -> None:
        """Note those of (victim, for whom) whose gang goes as a whole; one that loses its surplus can choose.

        Args:
            pairs: Who is asked to go now.
            roll: The gangs.
        """
        mine: dict[Key, list[tuple[Pod, Pod]]] = {}
        for victim, pod in pairs:
            if (key := key_of(victim)) is not None:
                mine.setdefault(key, []).append((victim, pod))
        for key, asked in mine.items():
            size = roll.size(key)
            if size is None or roll.standing(key).placed - len(asked) < size:
                self._for.update({victim.uid: (victim, pod.uid) for victim, pod in asked})

    def rest(self, pods: Iterable[Pod], going: Collection[str]) -> Iterator[tuple[Pod, Pod]]:
        """Yield (victim, for whom) of those who are still there and were asked to go for these pods."""
        if not self._for:
            return
        by_uid = {pod.uid: pod for pod in pods}
        for uid, (victim, for_uid) in tuple(self._for.items()):
            if for_uid in by_uid and uid not in going:
                yield victim, by_uid[for_uid]

    def left(self, uid: str) -> None:
        """Forget a victim: it leaves, or is let be."""
        self._for.pop(uid, None)

    def called_off(self, uid: str) -> None:
        """Forget whoever was to go for a pod that keeps no seat any more."""
        if self._for:
            self._for = {victim: one for victim, one in self._for.items() if one[1] != uid}
