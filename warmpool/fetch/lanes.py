"""The streams that all files of one run share; their number may change while they run."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

from fleet.clock import Clock
from warmpool.fetch.meter import Meter
from warmpool.fetch.retry import AUTO_MOST, Pace

_LOOK_S = 2.0


class Lanes:
    """Lets `limit` holders in at a time.

    Attributes:
        limit: How many, now.
        most: How many it will ever be.
    """

    def __init__(self, streams: int | None) -> None:
        """Take a fixed number, or None to find one by trying (see `Pace`)."""
        self._pace = Pace()
        self.is_fixed = streams is not None
        self.limit = streams or self._pace.streams
        self.most = streams or AUTO_MOST
        self._held = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.was_throttled = False

    async def __aenter__(self) -> None:
        while self._held >= self.limit:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                # The turn may have come just before: then it is somebody else's.
                self._wake()
                raise
        self._held += 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held -= 1
        self._wake()

    def _wake(self) -> None:
        free = self.limit - self._held
        while self._waiting and free > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    async def steer(self, meter: Meter, clock: Clock) -> None:
        """Look at the rate every two seconds and set the number of streams; runs until it is cancelled."""
        before_bytes, before_s = meter.received_bytes, clock.monotonic_s()
        while True:
            await clock.sleep(_LOOK_S)
            now_bytes, now_s = meter.received_bytes, clock.monotonic_s()
            rate = (now_bytes - before_bytes) / max(1e-9, now_s - before_s)
            before_bytes, before_s = now_bytes, now_s
            self._pace = self._pace.after(rate, was_throttled=self.was_throttled)
            self.was_throttled = False
            self.limit = self._pace.streams
            self._wake()
