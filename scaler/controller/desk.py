"""Work by key: a few at a time, the newest per key, never two of one key at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from fleet.clock import Clock

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
Job = Callable[[], Awaitable[None]]


class Desk(Generic[K]):
    """Does jobs until cancelled. A newer job of a key replaces one that was not begun yet."""

    def __init__(self, clock: Clock, *, at_once: int, rate_per_s: float, burst: float) -> None:
        """Prepare.

        Args:
            clock: For the rate.
            at_once: Jobs in progress at any time.
            rate_per_s: Jobs begun in the long run.
            burst: Jobs that may begin at once after a quiet time.
        """
        self._clock = clock
        self._at_once = at_once
        self._rate_per_s = rate_per_s
        self._burst = self._tokens = burst
        self._refilled_at_s = clock.monotonic_s()
        self._jobs: dict[K, Job] = {}
        self._busy: set[K] = set()
        self._something = asyncio.Event()

    def __len__(self) -> int:
        return len(self._jobs) + len(self._busy)

    def __contains__(self, key: object) -> bool:
        return key in self._jobs or key in self._busy

    def put(self, key: K, job: Job) -> None:
        """Do this as soon as it is its turn."""
        self._jobs[key] = job
        self._something.set()

    def drop(self, key: K) -> None:
        """Forget a job that was not begun."""
        self._jobs.pop(key, None)

    async def run(self) -> None:
        """Work until cancelled; a job that fails is logged and forgotten."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._at_once):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = next((key for key in self._jobs if key not in self._busy), None)
            if key is None:
                self._something.clear()
                await self._something.wait()
                continue
            wait_s = self._take_token()
            if wait_s > 0:
                await self._clock.sleep(wait_s)
                continue
            job = self._jobs.pop(key)
            self._busy.add(key)
            try:
                await job()
            except Exception:
                # Broad on purpose: what fails for one key must not end the work for all the others.
                log.exception("work on %s failed", key)
            finally:
                self._busy.discard(key)
                self._something.set()

    def _take_token(self) -> float:
        """Take a token and return 0, or return how long to wait for one."""
        now_s = self._clock.monotonic_s()
        self._tokens = min(self._burst, self._tokens + (now_s - self._refilled_at_s) * self._rate_per_s)
        self._refilled_at_s = now_s
        if self._tokens < 1.0:
            return (1.0 - self._tokens) / self._rate_per_s
        self._tokens -= 1.0
        return 0.0
