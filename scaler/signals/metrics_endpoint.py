"""Load of whole endpoints from people's own PromQL, for those whose balancer has no exporter of ours beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.clock import Clock
from fleet.prom import Prometheus
from fleet.prom_answer import Answer, Outcome
from scaler.seen import Sample, usable

# Two decisions of 5 s and a time-out of 2 s: one lost poll is bridged, two are a gap.
STALE_AFTER_S = 12.0
# One value is wanted: a query that gives a whole cluster's series must not cost the memory for them.
_LARGEST_ANSWER_BYTES = 64 * 2**10
_LOAD = ("arrivals", "completions", "in_flight", "queued", "errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointQueries:
    """PromQL of one endpoint; each has to give exactly one value, and None is not asked.

    Attributes:
        in_flight: Requests in progress on serving replicas.
        queued: Requests that wait for a replica.
        arrivals: Requests that come, per second.
        completions: Requests that end, per second.
        errors: Requests that fail, per second.
        extra: Further signals by name, summed over the serving replicas.
    """

    in_flight: str | None = None
    queued: str | None = None
    arrivals: str | None = None
    completions: str | None = None
    errors: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    def named(self) -> dict[str, str]:
        """Return the queries that are asked, by the name of what they give; further signals as extra.NAME."""
        load = {name: query for name in _LOAD if (query := getattr(self, name)) is not None}
        return load | {f"extra.{name}": query for name, query in self.extra.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What one query gave: a value, or why there is none."""

    value: float | None
    problem: str = ""
    received_s: float = 0.0


def read(answer: Answer, received_s: float) -> Read:
    """Return the one value of an answer.

    An empty answer is missing, not zero: the store may have lost its targets (kedacore/keda 3065). Not a number,
    infinite and negative are missing, too. Several series are refused rather than summed, because a series that is
    scraped twice would count twice (kubernetes-sigs/prometheus-adapter 24).
    """
    problem = answer.text
    if answer.is_answered:
        count = len(answer.series)
        if count == 1 and not answer.rejected and usable(answer.series[0].value):
            return Read(value=answer.series[0].value, received_s=received_s)
        if count == 1 and not answer.rejected:
            problem = f"{answer.series[0].value:g} cannot be a load"
        elif count + answer.rejected > 1:
            problem = f"{count + answer.rejected} series, wanted is one: aggregate them in the query"
        else:
            problem = "not a finite number" if answer.rejected else "no series: missing, which is not zero"
    return Read(value=None, problem=problem or "no answer", received_s=received_s)


class EndpointSource:
    """What one Prometheus last said of endpoints.

    Attributes:
        counts: Queries by outcome, and answers without a usable value as `unusable`.
    """

    def __init__(self, prometheus: Prometheus, clock: Clock, *, stale_after_s: float = STALE_AFTER_S) -> None:
        """Remember where to ask; nothing is asked yet.

        Args:
            prometheus: Where; with a `lookback_s` of a few scrapes, so that what ended does not live on for minutes.
            clock: Of the receiver.
            stale_after_s: Age from which a value counts as missing.
        """
        self._prometheus = prometheus
        self._clock = clock
        self._stale_after_s = stale_after_s
        self._endpoints: dict[str, EndpointQueries] = {}
        self._read: dict[str, Read] = {}  # by query: equal queries are asked once
        self._polls = 0
        self._asked: dict[str, int] = {}  # by query: the poll in which it was asked last
        self._slow: frozenset[str] = frozenset()  # asked and not answered in time
        self._answered: set[str] = set()  # at least once
        self.counts: Counter[str] = Counter()

    def watch(self, key: str, queries: EndpointQueries) -> None:
        """Ask for an endpoint from the next poll on, in place of what was asked for it before."""
        self._endpoints[key] = queries

    def forget(self, key: str) -> None:
        """Ask for an endpoint no more."""
        self._endpoints.pop(key, None)

    async def poll(self) -> None:
        """Ask for all endpoints; takes one time-out at most, and what came until then counts.

        Where they do not all fit into it: first those that have answered before, then new ones, last those that were
        not answered in time, so that one person's slow queries cost nobody else's; within each, who waited longest.
        """
        wanted = dict.fromkeys(query for asked in self._endpoints.values() for query in asked.named().values())
        queries = sorted(
            wanted,
            key=lambda query: (query in self._slow, query not in self._answered, self._asked.get(query, 0)),
        )
        answers = await self._prometheus.instant_many(queries, largest_bytes=_LARGEST_ANSWER_BYTES)
        now_s = self._clock.monotonic_s()
        self._polls += 1
        kept: dict[str, Read] = {}
        slow: set[str] = set()
        for query, answer in zip(queries, answers, strict=True):
            self.counts[answer.outcome] += 1
            new = read(answer, now_s)
            if answer.was_asked:
                self._asked[query] = self._polls
            if answer.outcome is Outcome.TIMED_OUT and (answer.was_asked or query in self._slow):
                slow.add(query)
            if answer.is_answered:
                self._answered.add(query)
                self.counts["unusable"] += new.value is None
            elif (last := self._read.get(query)) is not None:
                # No answer is no news: the last value stands until it is stale.
                new = Read(value=last.value, problem=new.problem, received_s=last.received_s)
            kept[query] = new
        self._asked = {query: poll for query, poll in self._asked.items() if query in wanted}
        self._answered &= wanted.keys()
        self._slow, self._read = frozenset(slow), kept

    def sample(self, key: str, now_s: float) -> Sample:
        """Return what is known of an endpoint now; None where nothing is.

        Args:
            key: As watched; one that is not gives an empty sample.
            now_s: On the receiver's monotonic clock.
        """
        queries = self._endpoints.get(key, EndpointQueries())
        values = {name: self._value(query, now_s) for name, query in queries.named().items()}
        return Sample(
            at_s=now_s,
            arrivals=values.get("arrivals"),
            completions=values.get("completions"),
            in_flight=values.get("in_flight"),
            queued=values.get("queued"),
            errors=values.get("errors"),
            extra={name: values[f"extra.{name}"] for name in queries.extra},
        )

    def problems(self, key: str) -> dict[str, str]:
        """Return why values of an endpoint are missing or old, by name; empty = all came."""
        queries = self._endpoints.get(key, EndpointQueries())
        found = {name: self._read[query].problem for name, query in queries.named().items() if query in self._read}
        return {name: problem for name, problem in found.items() if problem}

    def _value(self, query: str, now_s: float) -> float | None:
        last = self._read.get(query)
        if last is None or now_s - last.received_s > self._stale_after_s:
            return None
        return last.value
