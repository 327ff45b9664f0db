"""How many pods of several whole devices there usually are: what to keep nodes for before any of them waits.

Running and waiting pods of a kind are counted whenever somebody looks, and averaged over time with a half-life of
6 hours: the share of the GPU time that the kind asks, times the devices there are. Where fewer than usual are running,
the difference is expected back. While a cluster only fills, there are never fewer than usual, so nothing is expected;
and of a kind that came once little is left after a day.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fleet.pod import Pod

HALF_LIFE_S: Final = 6 * 3600.0
_FORGOTTEN: Final = 0.05  # pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """Pods of one kind that are there: any one of them, how many run and how many wait."""

    pod: Pod
    running: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Pods of one kind to keep nodes for: any one of them, how many wait, and how many fewer run than usual.

    `missing` is negative where more run than usual; `leaves` says that some of them have left.
    """

    pod: Pod
    waiting: int
    missing: float = 0.0
    leaves: bool = False


def kind_of(pod: Pod) -> Hashable:
    """Return what pods have in common that the same nodes could hold."""
    return (pod.requests, pod.ask, pod.constraints)


class Ahead:
    """Usual numbers of pods by kind; they live as long as the process and are right again after some hours."""

    def __init__(self, usual: Iterable[tuple[Pod, float]] = ()) -> None:
        """Start with what is known to be usual; with nothing, what is there at the first look counts as usual."""
        self._usual: dict[Hashable, tuple[Pod, float]] = {}
        for pod, number in usual:
            self._usual[kind_of(pod)] = (pod, number + self._usual.get(kind_of(pod), (pod, 0.0))[1])
        self._ran: dict[Hashable, int] = {}
        self._leaves: set[Hashable] = set()
        self._looked_s: float | None = None if not self._usual else float("inf")

    def expected(self, present: Mapping[Hashable, Present], now_s: float) -> list[Expected]:
        """Count what is there now and return what to keep nodes for.

        Args:
            present: Every kind of which a pod that asks for several whole devices runs or waits.
            now_s: On any clock that does not go back.
        """
        old = 0.0 if self._looked_s is None else 0.5 ** (max(0.0, now_s - self._looked_s) / HALF_LIFE_S)
        self._looked_s = now_s
        for kind, (pod, usual) in list(self._usual.items()):
            self._usual[kind] = (pod, usual * old)
        for kind, one in present.items():
            pod, usual = self._usual.get(kind, (one.pod, 0.0))
            self._usual[kind] = (pod, usual + (1.0 - old) * (one.running + one.waiting))
        self._usual = {kind: entry for kind, entry in self._usual.items() if kind in present or entry[1] > _FORGOTTEN}
        running = {kind: one.running for kind, one in present.items()}
        self._leaves.update(kind for kind, ran in self._ran.items() if running.get(kind, 0) < ran)
        self._leaves &= self._usual.keys()
        self._ran = running
        return [
            Expected(
                pod=pod,
                waiting=present[kind].waiting if kind in present else 0,
                missing=usual - running.get(kind, 0),
                leaves=kind in self._leaves,
            )
            for kind, (pod, usual) in self._usual.items()
        ]
