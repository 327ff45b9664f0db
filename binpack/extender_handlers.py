"""The extender's HTTP handlers: read the body, ask the extender, count, answer. Own no socket and no watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from binpack import extender_wire as wire
from binpack.extender import Extender, Outcome, Verdict
from binpack.extender_metrics import ExtenderMetrics, Sizes
from binpack.ledger import Ledger
from binpack.server import TEXT, Post, Reply
from fleet import labels
from fleet.clock import Clock
from fleet.errors import DecodeError
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject
from fleet.pod import Pod

# A watch is milliseconds behind another one; the scheduler gives a call 5 s and is held up by one pod at a time.
CATCH_UP_S = 0.25
_RETRY_WAIT_S = 0.1
_MOST_VETOED = 4096

_log = logging.getLogger(__name__)
_MAY_BE_PREMATURE = (Outcome.VETOED, Outcome.NO_CANDIDATE, Outcome.BEHIND)
_REFUSALS = (Outcome.VETOED, Outcome.NO_CANDIDATE, Outcome.UNPLANNED)


class ExtenderHandlers:
    """Answers kube-scheduler, and counts.

    Args:
        extender: What decides.
        ledger: What it decides from, for the gauges.
        clock: For the age of promises and the time a call takes.
        is_synced: Whether the ledger holds the whole cluster.
        seen_at_s: Monotonic time when the quietest watch last heard anything.
        catch_up_s: How long a refusal may wait for the watch.
    """

    def __init__(
        self,
        extender: Extender,
        ledger: Ledger,
        clock: Clock,
        *,
        is_synced: Callable[[], bool],
        seen_at_s: Callable[[], float],
        catch_up_s: float = CATCH_UP_S,
    ) -> None:
        self._extender = extender
        self._ledger = ledger
        self._clock = clock
        self._is_synced = is_synced
        self._seen_at_s = seen_at_s
        self._catch_up_s = catch_up_s
        self._waiters: set[asyncio.Future[None]] = set()
        self._vetoed: dict[str, None] = {}
        self.metrics = ExtenderMetrics(self._sizes)

    @property
    def posts(self) -> dict[str, Post]:
        """Return the scheduler's verbs by path."""
        return {
            "/filter": self._timed("filter", self.filter),
            "/prioritize": self._timed("prioritize", self.prioritize),
            "/preempt": self._timed("preempt", self.preempt),
        }

    @property
    def waiting(self) -> int:
        """Return how many calls wait for the watch now."""
        return len(self._waiters)

    def changed(self) -> None:
        """Wake whoever waits for the watch: the ledger has just taken something in."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def filter(self, body: bytes) -> Reply:
        """Answer Filter."""
        try:
            args = wire.read_arguments(body)
        except wire.NotARequest as error:
            return self._not_a_request("filter", error)
        except DecodeError as error:
            return self._unusable(str(error))
        if _is_foreign(args.pod):
            self._count(Outcome.FOREIGN)
            return Reply(body=args.answer(args.names, {}))
        why_not = self.not_ready()
        if why_not:
            self._count(Outcome.NOT_SYNCED)
            return Reply(body=wire.error_answer(why_not))
        meta = args.pod.metadata
        pod = self._extender.recall(meta.uid, meta.resource_version) or pod_from(args.pod)
        verdict = self._extender.filter(pod, args.names, self._clock.monotonic_s())
        if verdict.outcome in _MAY_BE_PREMATURE and self._extender.is_behind(pod):
            if not await self._catch_up(pod):
                self._count(Outcome.BEHIND)
                return Reply(body=wire.error_answer("the extender has not seen this pod or its node yet"))
            verdict = self._extender.filter(pod, args.names, self._clock.monotonic_s())
        if verdict.outcome is Outcome.VETOED:
            verdict = await self._veto_again(pod, args.names, verdict)
        else:
            self._vetoed.pop(pod.uid, None)
        self._count(verdict.outcome)
        if verdict.outcome in _REFUSALS:
            _report(pod, verdict)
        return Reply(body=args.answer(verdict.passed, verdict.failed))

    async def prioritize(self, body: bytes) -> Reply:
        """Answer Prioritize. The protocol has no field for an error here."""
        try:
            args = wire.read_arguments(body)
        except DecodeError as error:
            return self._not_a_request("prioritize", error)
        return Reply(body=wire.priorities_answer(self._extender.scores(pod_from(args.pod), args.names)))

    async def preempt(self, body: bytes) -> Reply:
        """Answer Preempt: others' victims are none of our business, and for our pods the planner evicts."""
        try:
            args = wire.read_preemption(body)
        except DecodeError as error:
            return self._not_a_request("preempt", error)
        return Reply(body=args.same() if _is_foreign(args.pod) else wire.no_preemption_answer())

    def not_ready(self) -> str:
        """Return why the scheduler should not be sent here yet; "" = it may."""
        return "" if self._is_synced() else "the ledger is not synced with the cluster yet"

    async def _veto_again(self, pod: Pod, names: Sequence[str], verdict: Verdict) -> Verdict:
        """Judge a pod that was vetoed before once more with what the watch brings in the next moment.

        The scheduler tries again because something happened, and it may have seen what freed the devices before our
        watch did. Nothing wakes it a second time for the same event.
        """
        if pod.uid not in self._vetoed:
            self._vetoed[pod.uid] = None
            if len(self._vetoed) > _MOST_VETOED:
                del self._vetoed[next(iter(self._vetoed))]
            return verdict
        try:
            async with asyncio.timeout(min(_RETRY_WAIT_S, self._catch_up_s)):
                while verdict.outcome is Outcome.VETOED:
                    await self._next_change()
                    verdict = self._extender.filter(pod, names, self._clock.monotonic_s())
        except TimeoutError:
            return verdict
        del self._vetoed[pod.uid]
        return verdict

    async def _next_change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    async def _catch_up(self, pod: Pod) -> bool:
        """Wait for the watch; return whether the ledger now holds the pod as the scheduler sees it."""
        try:
            async with asyncio.timeout(self._catch_up_s):
                while self._extender.is_behind(pod):
                    await self._next_change()
        except TimeoutError:
            self.metrics.waits.labels(caught_up="no").inc()
            return False
        self.metrics.waits.labels(caught_up="yes").inc()
        return True

    def _timed(self, verb: str, post: Post) -> Post:
        observe = self.metrics.seconds.labels(verb=verb).observe

        async def timed(body: bytes) -> Reply:
            started_s = self._clock.monotonic_s()
            try:
                return await post(body)
            finally:
                observe(self._clock.monotonic_s() - started_s)

        return timed

    def _count(self, outcome: Outcome) -> None:
        self.metrics.filtered[outcome].inc()

    def _unusable(self, why: str) -> Reply:
        self._count(Outcome.UNUSABLE)
        self.metrics.refused.labels(verb="filter", status="200").inc()
        _log.warning("filter: unusable request: %s", why)
        return Reply(body=wire.error_answer(f"unusable request: {why}"))

    def _not_a_request(self, verb: str, error: DecodeError) -> Reply:
        self.metrics.refused.labels(verb=verb, status="400").inc()
        _log.warning("%s: unusable request: %s", verb, error)
        return Reply(body=f"{error}\n".encode(), status=400, content_type=TEXT)

    def _sizes(self) -> Sizes:
        return Sizes(
            is_synced=self._is_synced(),
            silence_s=self._clock.monotonic_s() - self._seen_at_s(),
            nodes=len(self._ledger.known()),
            contested_nodes=self._extender.contested,
            promises=self._extender.promises,
            warnings=len(self._ledger.warnings()),
        )


def _is_foreign(pod: PodObject) -> bool:
    return pod.spec.scheduler_name != labels.SCHEDULER_NAME


def _report(pod: Pod, verdict: Verdict) -> None:
    node, reason = next(iter(verdict.failed.items()), ("", "no node was given"))
    _log.info(
        "filter: %s",
        verdict.outcome.value,
        extra={"pod": pod.key, "uid": pod.uid, "node": node, "reason": reason, "nodes": len(verdict.failed)},
    )
