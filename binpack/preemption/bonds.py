"""Who of a running gang may go by himself, and who goes with whom: half a gang holds its place and is of no use. Pure.

A gang that runs with more members than it needs can lose the surplus. Whoever goes beyond that takes all others along,
on whatever nodes they are; where one of these may not be made to go, nobody of them goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from binpack.gangs.roll import Key, key_of
from binpack.preemption.choice import Along, alone
from fleet.pod import Pod

MOST_AT_ONCE: Final = 256  # members made to go for one unit: each is an eviction, and everybody is weighed each time


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """What runs of a gang.

    Attributes:
        running: Members that have a berth and do not leave.
        spare: How many of them it can do without; below zero where it lacks some already.
        is_fixed: Some are on their way to their berth, or are part of their node: it cannot be made to go as a whole.
    """

    running: tuple[Pod, ...]
    spare: int
    is_fixed: bool = False


CrewOf = Callable[[Pod], Crew | None]


def no_crew(_: Pod) -> Crew | None:
    """Return that a pod is in no gang that is of use only together."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """For whom others are to go.

    Attributes:
        priority: Of whoever goes, all must be below it.
        sharers: Who uses a claim of his, and thus stays.
        gang: His own; nobody of it goes for him.
    """

    priority: int
    sharers: frozenset[str]
    gang: Key | None


class _Bond:
    """A crew as it is while victims are being chosen."""

    __slots__ = ("crew", "highest", "left", "spare")

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.left = {pod.uid: pod for pod in crew.running}
        self.highest = max((pod.priority for pod in crew.running), default=-(2**31))
        self.spare = crew.spare

    def may_go(self, asker: Asker) -> bool:
        """Return True if all of it may be made to go."""
        if self.crew.is_fixed or len(self.left) > MOST_AT_ONCE or self.highest >= asker.priority:
            return False
        return not asker.sharers or asker.sharers.isdisjoint(self.left)


class Bonds:
    """What gangs there are among the pods that may go, and how much of their surplus is used up so far.

    Args:
        crew_of: What runs of a pod's gang; None where the pod needs nobody else and nobody needs it.
    """

    def __init__(self, crew_of: CrewOf) -> None:
        self._crew_of = crew_of
        self._known: dict[Key, _Bond | None] = {}

    def along_with(self, candidates: Iterable[Pod], asker: Asker) -> Along:
        """Return `along` as a choice among these candidates needs it; where none has a gang, it costs nothing."""
        if not any(pod.gang for pod in candidates):
            return alone
        return lambda chosen: self.along(chosen, asker)

    def along(self, chosen: Sequence[Pod], asker: Asker) -> tuple[Pod, ...] | None:
        """Return the chosen and all who go with them; None where one of these may not be made to go."""
        many: Counter[Key] = Counter()
        for pod in chosen:
            if (key := key_of(pod)) is not None:
                many[key] += 1
                self._bond(key, pod)
        if not many:
            return tuple(chosen)
        found = {pod.uid: pod for pod in chosen}
        for key, count in many.items():
            bond = self._known[key]
            if key == asker.gang:
                return None
            if bond is None or count <= bond.spare:
                continue
            if not bond.may_go(asker):
                return None
            found |= bond.left
        return tuple(found.values())

    def may_go(self, pod: Pod, asker: Asker) -> bool:
        """Return True if the pod may be made to go, by itself or with its gang."""
        return not pod.gang or self.along([pod], asker) is not None

    def leave(self, victims: Iterable[Pod]) -> None:
        """Count these as gone; others of their gangs go on other terms from now on."""
        self._use(victims, is_gone=True)

    def spend(self, victims: Iterable[Pod]) -> None:
        """Count these as chosen: they use up the surplus of their gangs, and go with these again where all go."""
        self._use(victims, is_gone=False)

    def _use(self, victims: Iterable[Pod], *, is_gone: bool) -> None:
        for pod in victims:
            key = key_of(pod)
            if key is None:
                continue
            bond = self._bond(key, pod)
            if bond is not None:
                bond.spare -= 1
                if is_gone:
                    bond.left.pop(pod.uid, None)

    def _bond(self, key: Key, pod: Pod) -> _Bond | None:
        if key not in self._known:
            crew = self._crew_of(pod)
            self._known[key] = None if crew is None else _Bond(crew)
        return self._known[key]
