"""Reads pods' resources and engines from Prometheus: one query per reading for all pods, one deadline for all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from fleet.clock import Clock
from fleet.prom import Prometheus
from fleet.prom_answer import Answer
from scaler.seen import Signal
from scaler.signals.metrics_catalogue import CATALOGUE, Asked
from scaler.signals.metrics_join import Taken, join
from scaler.signals.metrics_values import PodKey, PodMetrics, Reading

# Two scrapes of 30 s, as the kubelet's cAdvisor is commonly scraped: one may be lost.
STALE_AFTER_S = 60.0
# These questions go over the pods of a whole cluster and are not urgent: the vertical axis turns every 30 s.
TIMEOUT_S = 10.0


class MetricsSource:
    """What Prometheus last said of pods; what it does not say any more ages, and a failing poll ages everything.

    Attributes:
        counts: By (what, reading): duplicates, foreign, nameless, impossible, rejected series; warnings; and queries
            without an answer under their outcome.
        problems: By reading, why the last query for it gave no answer; empty while all do.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        clock: Clock,
        *,
        stale_after_s: float = STALE_AFTER_S,
        timeout_s: float = TIMEOUT_S,
        catalogue: Sequence[Asked] = CATALOGUE,
    ) -> None:
        """Remember where to ask; nothing is asked yet.

        Args:
            prometheus: Where.
            clock: Of the receiver; ages are counted on it.
            stale_after_s: Age from which a reading no longer counts.
            timeout_s: For one poll.
            catalogue: What to ask.
        """
        self._prometheus = prometheus
        self._clock = clock
        self._stale_after_s = stale_after_s
        self._missing = Signal(value=None, age_s=math.inf, stale_after_s=stale_after_s)
        self._timeout_s = timeout_s
        self._catalogue = catalogue
        self._taken: dict[Reading, Mapping[PodKey, Taken]] = {asked.reading: {} for asked in catalogue}
        self._answered_s: dict[Reading, float] = {}
        self.counts: Counter[tuple[str, str]] = Counter()
        self.problems: dict[Reading, str] = {}

    async def poll(self, pods: Collection[PodKey]) -> Mapping[PodKey, PodMetrics]:
        """Ask once about these pods and return them, also those of which nothing is known.

        Args:
            pods: That exist now; all others are forgotten.

        Returns:
            A view: each look gives the ages of that moment, from what the newest poll found.
        """
        wanted = frozenset(pods)
        answers = await self._prometheus.instant_many(
            [asked.query for asked in self._catalogue], is_dated=True, timeout_s=self._timeout_s
        )
        received_s = self._clock.monotonic_s()
        for asked, answer in zip(self._catalogue, answers, strict=True):
            self._take(asked, answer, wanted, received_s)
            await self._clock.sleep(0)  # thousands of pods take milliseconds each time: let others have their turn
        return _View(self, wanted)

    def of(self, pod: PodKey) -> PodMetrics:
        """Return what is known of a pod now."""
        now_s = self._clock.monotonic_s()
        signals: dict[str, Signal] = {}
        for reading in Reading:
            taken = self._taken.get(reading, {}).get(pod)
            signals[reading] = self._missing if taken is None else taken.signal(now_s, self._stale_after_s)
        return PodMetrics(**signals)

    def _take(self, asked: Asked, answer: Answer, pods: frozenset[PodKey], received_s: float) -> None:
        reading = asked.reading
        if not answer.is_answered:
            self.counts[answer.outcome, reading] += 1
            self.problems[reading] = answer.text
            self._taken[reading] = {pod: taken for pod, taken in self._taken[reading].items() if pod in pods}
            return
        self.problems.pop(reading, None)
        joined = join(
            answer.series,
            pods,
            self._taken[reading],
            received_s=received_s,
            asked_before_s=self._answered_s.get(reading),
            most=asked.most,
        )
        self._taken[reading] = joined.taken
        self._answered_s[reading] = received_s
        for what, count in (
            ("duplicates", joined.duplicates),
            ("foreign", joined.foreign),
            ("nameless", joined.nameless),
            ("impossible", joined.impossible),
            ("rejected", answer.rejected),
            ("warnings", len(answer.warnings)),
        ):
            if count:
                self.counts[what, reading] += count


class _View(Mapping[PodKey, PodMetrics]):
    """The pods of one poll, each looked up when asked for: most are not looked at between two polls."""

    def __init__(self, source: MetricsSource, pods: frozenset[PodKey]) -> None:
        self._source = source
        self._pods = pods

    def __getitem__(self, pod: PodKey) -> PodMetrics:
        if pod not in self._pods:
            raise KeyError(pod)
        return self._source.of(pod)

    def __iter__(self) -> Iterator[PodKey]:
        return iter(self._pods)

    def __len__(self) -> int:
        return len(self._pods)
