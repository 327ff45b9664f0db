"""The controller's side of the exporters beside the balancers: each is asked once a second, none waits for another."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.clock import Clock
from fleet.errors import DecodeError
from fleet.http import FetchError, Http, TokenFile
from scaler.balancer.values import BackendSecond, ServerSecond, ServerState
from scaler.balancer.wire import SAMPLES_PATH, samples_from
from scaler.signals.balancer_timeline import Counts, Timeline

__all__ = ["BackendSecond", "BalancerSource", "ExporterState", "ServerSecond", "ServerState"]

_log = logging.getLogger(__name__)

# A poll waits this long for its exporters; one that is slower goes on in the background until its own time-out.
_WAIT_S = 0.5
_KEPT = 120
_MOST_UNTAKEN = 50_000  # rows of backends and servers, 20 MB
# One second of 20,000 replicas; and from a quarter of a megabyte on, others on this loop have deadlines.
_LARGEST_ANSWER_BYTES = 4 * 2**20
_LARGE_BYTES = 256 * 2**10


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterState:
    """How one exporter does.

    Attributes:
        url: Its address.
        answered_at_s: Last answer, on the controller's monotonic clock; None = never.
        failures: Questions without a usable answer, since the start.
        failure: The last failure's text, "" while it answers.
    """

    url: str
    answered_at_s: float | None
    failures: int
    failure: str


class BalancerSource:
    """One named source: the exporters of all balancers that share the same replicas.

    Args:
        name: As `spec.signals.balancer.name` says it.
        urls: One base URL per exporter, http(s)://HOST:PORT.
        http: Session.
        clock: Its monotonic time ages the samples.
        token: Shown to each.
        timeout_s: For one exporter's answer.
    """

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        http: Http,
        clock: Clock,
        *,
        token: TokenFile | None = None,
        timeout_s: float = 2.0,
    ) -> None:
        self.name = name
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._http = http
        self._clock = clock
        self._token = token
        self._timeout_s = timeout_s
        self._line = Timeline(senders=len(self._urls))
        self._states = [ExporterState(url=url, answered_at_s=None, failures=0, failure="") for url in self._urls]
        self._asking: dict[int, asyncio.Task[None]] = {}
        # By backend that somebody takes; and of those that nobody ever took as many as there is room for.
        self._seconds: dict[str, deque[BackendSecond]] = {}
        self._untaken: dict[str, deque[BackendSecond]] = {}
        self._untaken_rows = 0
        self._newest_s: dict[str, float] = {}
        self._taken_at: dict[str, int] = {}
        self._polls = 0

    @property
    def counts(self) -> Counts:
        """Return what was met on the way, for metrics."""
        return self._line.counts

    def states(self) -> tuple[ExporterState, ...]:
        """Return how each exporter does."""
        return tuple(self._states)

    async def poll(self) -> None:
        """Ask every exporter that does not owe an answer, once; never raises, returns within 0.5 s."""
        for number in range(len(self._urls)):
            if number not in self._asking:
                self._asking[number] = asyncio.create_task(self._ask(number), name=f"ask {self._urls[number]}")
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=_WAIT_S)
        self._polls += 1
        for name in [name for name, poll in self._taken_at.items() if self._polls - poll > _KEPT]:
            del self._taken_at[name], self._seconds[name]
            self._newest_s.pop(name, None)
        for second in self._line.ready(self._clock.monotonic_s()):
            kept = self._seconds.get(second.name)
            if kept is None:
                self._keep(second)
            else:
                kept.append(second)
                self._newest_s[second.name] = second.at_s

    def take(self, backend: str) -> list[BackendSecond]:
        """Return the seconds of a backend since the last call, oldest first; empty = nothing came, which is not zero.

        `at_s` is on the clock's monotonic time. At most the last 120 are kept for a backend that nobody takes, and
        however many backends an exporter names, those that nobody ever took share a bounded memory.
        """
        kept = self._seconds.setdefault(backend, deque(maxlen=_KEPT))
        self._taken_at[backend] = self._polls
        if backend in self._untaken:
            kept.extend(self._forget(backend))
            self._newest_s[backend] = kept[-1].at_s
        taken = list(kept)
        kept.clear()
        return taken

    def _keep(self, second: BackendSecond) -> None:
        """Keep a second of a backend that nobody took yet; where there are too many, those known longest go."""
        kept = self._untaken.setdefault(second.name, deque(maxlen=_KEPT))
        if len(kept) == _KEPT:
            self._untaken_rows -= _rows(kept[0])
        kept.append(second)
        self._untaken_rows += _rows(second)
        while self._untaken_rows > _MOST_UNTAKEN:
            self._forget(next(iter(self._untaken)))

    def _forget(self, backend: str) -> deque[BackendSecond]:
        seconds = self._untaken.pop(backend)
        self._untaken_rows -= sum(map(_rows, seconds))
        return seconds

    def age_s(self, backend: str) -> float:
        """Return the age of a backend's newest second; inf = there never was one."""
        newest_s = self._newest_s.get(backend)
        return float("inf") if newest_s is None else max(0.0, self._clock.monotonic_s() - newest_s)

    async def close(self) -> None:
        """End the questions that are still open."""
        asking = tuple(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def _ask(self, number: int) -> None:
        url = self._urls[number]
        asked_at_s = self._clock.monotonic_s()
        try:
            body = await self._http.get(
                url + SAMPLES_PATH,
                params={"since": str(self._line.since(number))},
                token=self._token,
                timeout_s=self._timeout_s,
                largest_bytes=_LARGEST_ANSWER_BYTES,
            )
            is_large = len(body) > _LARGE_BYTES
            answer = await asyncio.to_thread(samples_from, body) if is_large else samples_from(body)
        except FetchError as error:
            self._failed(number, str(error))
        except DecodeError as error:
            self._failed(number, f"{url}: {error}")
        else:
            received_s = self._clock.monotonic_s()
            # The ages were written somewhere between question and answer.
            self._line.take(number, answer, (asked_at_s + received_s) / 2)
            if self._states[number].failure:
                _log.info("%s answers again", url)
            self._states[number] = ExporterState(
                url=url, answered_at_s=received_s, failures=self._states[number].failures, failure=""
            )
        finally:
            self._asking.pop(number, None)

    def _failed(self, number: int, text: str) -> None:
        before = self._states[number]
        if not before.failure:
            _log.warning("no samples from balancer %s: %s", self.name, text)
        self._states[number] = ExporterState(
            url=before.url, answered_at_s=before.answered_at_s, failures=before.failures + 1, failure=text
        )


def _rows(second: BackendSecond) -> int:
    return 1 + len(second.servers)
