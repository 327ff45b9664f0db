"""Asks Prometheus: instant queries, several under one deadline, or the past of one; what fails is a value, too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from fleet.errors import ConfigError
from fleet.http import FetchError, TokenFile
from fleet.prom_answer import Answer, Outcome, Past, decode, decode_past, failed

TIMEOUT_S = 2.0
LARGEST_ANSWER_BYTES = 32 * 2**20  # 100,000 series of 300 bytes
# Prometheus runs 20 queries at once by default (--query.max-concurrency); people's dashboards want theirs, too.
_AT_ONCE = 6
_LARGE_BYTES = 256 * 2**10

_OUTCOMES = {
    "timeout": Outcome.TIMED_OUT,
    "status": Outcome.REFUSED,
    "redirect": Outcome.REFUSED,
    "too-large": Outcome.TOO_LARGE,
}


class Post(Protocol):
    """What is needed of an HTTP client; `fleet.http.Http` is one."""

    async def post_form(
        self, url: str, form: dict[str, str], *, token: TokenFile | None, timeout_s: float, largest_bytes: int
    ) -> bytes:
        """Return the body of a 200 answer; everything else is a FetchError."""
        ...


class Prometheus:
    """One server that speaks Prometheus' HTTP API."""

    def __init__(
        self,
        base_url: str,
        http: Post,
        *,
        timeout_s: float = TIMEOUT_S,
        token_file: str | None = None,
        lookback_s: float | None = None,
    ) -> None:
        """Remember where and how to ask; nothing is asked yet.

        Args:
            base_url: http(s)://HOST[:PORT][/PREFIX], without /api/v1.
            http: Client to ask with.
            timeout_s: For a call of `instant` or `instant_many` as a whole.
            token_file: File with a bearer token, read anew when it changes.
            lookback_s: How old a sample may be to count as present; None = the server's own (5 minutes by default).

        Raises:
            ConfigError: The address is none.
        """
        if not base_url.startswith(("http://", "https://")):
            raise ConfigError([f"Prometheus address {base_url!r} must begin with http:// or https://"])
        self.url = base_url.rstrip("/")
        self.timeout_s = timeout_s
        self._http = http
        self._token = TokenFile(token_file) if token_file else None
        self._form = {} if lookback_s is None else {"lookback_delta": f"{lookback_s:g}s"}

    async def instant(self, query: str, *, is_dated: bool = False) -> Answer:
        """Return the answer to one query; `is_dated` as for `decode`."""
        return (await self.instant_many([query], is_dated=is_dated))[0]

    async def instant_many(
        self,
        queries: Sequence[str],
        *,
        is_dated: bool = False,
        timeout_s: float | None = None,
        largest_bytes: int = LARGEST_ANSWER_BYTES,
    ) -> tuple[Answer, ...]:
        """Return one answer per query, in their order.

        A server that is silent costs one time-out, not one per query: what has not been answered then has timed out.

        Args:
            queries: PromQL; a few are asked at once.
            is_dated: As for `decode`.
            timeout_s: For all of them together, instead of the usual one.
            largest_bytes: Of each answer; a few are held at once, and take several times as much while they are read.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        gate = asyncio.Semaphore(_AT_ONCE)
        answers: dict[int, Answer] = {}
        begun: set[int] = set()

        async def ask(index: int, query: str) -> None:
            async with gate:
                begun.add(index)
                answers[index] = await self._ask(query, is_dated, limit_s, largest_bytes)

        try:
            async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
                for index, query in enumerate(queries):
                    group.create_task(ask(index, query))
        except TimeoutError:
            pass
        late = failed(Outcome.TIMED_OUT, f"{self.url}: not answered within {limit_s:g} s")
        unasked = replace(late, was_asked=False)
        return tuple(answers.get(index, late if index in begun else unasked) for index in range(len(queries)))

    async def past(self, query: str, *, start_s: float, end_s: float, step_s: float, timeout_s: float) -> Past:
        """Return a query's values at every step of a time; servers refuse more than 11,000 of a series.

        Args:
            query: PromQL that gives an instant vector.
            start_s: First moment, in seconds since the epoch.
            end_s: Last moment.
            step_s: Between two.
            timeout_s: For the whole call.
        """
        form = {"query": query, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}"}
        body = await self._post("query_range", form, timeout_s, LARGEST_ANSWER_BYTES)
        if isinstance(body, Answer):
            return Past(outcome=body.outcome, text=body.text)
        return await asyncio.to_thread(decode_past, body)

    async def _ask(self, query: str, is_dated: bool, timeout_s: float, largest_bytes: int) -> Answer:
        body = await self._post("query", {"query": query, **self._form}, timeout_s, largest_bytes)
        if isinstance(body, Answer):
            return body
        if len(body) < _LARGE_BYTES:
            return decode(body, is_dated=is_dated)
        # A whole cluster's pods take tens of milliseconds to decode: others on this loop have deadlines.
        return await asyncio.to_thread(decode, body, is_dated=is_dated)

    async def _post(self, path: str, form: dict[str, str], timeout_s: float, largest_bytes: int) -> bytes | Answer:
        """Return the body, else the answer that is none."""
        try:
            return await self._http.post_form(
                f"{self.url}/api/v1/{path}",
                # The server is told when nobody waits any more, so that it does not go on.
                {**form, "timeout": f"{timeout_s:g}s"},
                token=self._token,
                timeout_s=timeout_s,
                largest_bytes=largest_bytes,
            )
        except FetchError as error:
            return failed(_OUTCOMES.get(error.kind, Outcome.UNREACHABLE), str(error))
