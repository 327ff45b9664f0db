"""What the pods that came say about those that will: when to make new tables, and of which mix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from binpack.index.drift import WINDOW_PODS, has_moved
from binpack.index.mix import Mix, Shape

FIRST_LESSON: Final = 50
_REMEMBERED: Final = 12_800  # pods; FIRST_LESSON doubled eight times
_LEAST_KEPT: Final = 0.2  # what a shape seen once weighs after two half-lives is kept, after three it is not
_SHAPES_KEPT: Final = 4096


class Lessons:
    """Counts shapes as they arrive and says when it is time for new tables: at 50, 100, 200, 400, ... pods.

    The past fades: whenever 12,800 pods are remembered, every count is halved, so that from then on new tables come
    every 6,400 pods, which are also the half-life of what was seen. When the latest 800 pods ask for something else
    than those before them, these weigh no more than they do, and new tables come at once. A pod that left was demand
    all the same and fades no faster. Of more than 4,096 different shapes the rare half goes.
    """

    def __init__(self) -> None:
        self._counts: dict[Shape, float] = {}
        self._remembered = 0.0
        self._next = FIRST_LESSON
        self._latest: Counter[Shape] = Counter()
        self._latest_pods = 0

    def learn(self, shapes: Iterable[Shape]) -> Mix | None:
        """Count the shapes; return the new mix whenever their number has passed the next mark or demand has moved."""
        is_time = False
        for shape in shapes:
            self._counts[shape] = self._counts.get(shape, 0.0) + 1.0
            self._remembered += 1.0
            self._latest[shape] += 1
            self._latest_pods += 1
            if self._latest_pods == WINDOW_PODS:
                is_time |= self._follow()
            if self._remembered >= self._next:
                is_time = True
                self._next = min(2 * self._next, _REMEMBERED)
                if self._remembered >= _REMEMBERED:
                    self._keep({shape: n / 2 for shape, n in self._counts.items() if n / 2 >= _LEAST_KEPT})
        if len(self._counts) > _SHAPES_KEPT:
            self._keep(dict(Counter(self._counts).most_common(_SHAPES_KEPT // 2)))
        return Mix.of({shape: max(1, round(n)) for shape, n in self._counts.items()}) if is_time else None

    def _follow(self) -> bool:
        """Look at the latest pods; where demand has moved, let the past weigh as much as they do and return True."""
        latest, self._latest, self._latest_pods = self._latest, Counter(), 0
        past = {shape: n - latest[shape] for shape, n in self._counts.items() if n > latest[shape]}
        weight = sum(past.values())
        if weight < WINDOW_PODS or not has_moved(latest, past):
            return False
        faded = {shape: n * WINDOW_PODS / weight for shape, n in past.items()}
        self._keep({shape: faded.get(shape, 0.0) + latest[shape] for shape in faded.keys() | latest.keys()})
        while self._next > FIRST_LESSON and self._next >= 2 * self._remembered:
            self._next //= 2
        return True

    def _keep(self, counts: dict[Shape, float]) -> None:
        self._counts = counts
        self._remembered = sum(counts.values())
