"""The solver as a child process with a watchdog: a late, dead or mad solver costs an answer, never a batch."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from binpack.solver import wire
from binpack.solver.instance import Budget
from binpack.solver.question import Answer, Question
from fleet.clock import Clock, SystemClock
from fleet.plan import SolveStatus

COMMAND: Final = (sys.executable, "-m", "binpack.solver")
_START_S: Final = 30.0  # loading OR-Tools on a busy machine
_HANGS_AFTER_S: Final = 30.0
_LONGEST_PAUSE_S: Final = 60.0
_END_S: Final = 5.0


class SolverProcess:
    """One child process, started when first needed and kept; `solve` never raises and never blocks the event loop.

    Whoever asks waits no longer than the question's wall time, also for a child that is still starting or still at
    work on the question before: a slow machine makes answers late, and to kill the child would make it slower yet. A
    child that is at one question for half a minute hangs, and is replaced; after repeated failures with growing pauses.

    Attributes:
        starts: Children started.
        lates: Questions whose wall time ran out.
        deaths: Children that ended, hung, answered nonsense or never came up.
    """

    def __init__(self, clock: Clock | None = None, command: Sequence[str] = COMMAND) -> None:
        self.starts = 0
        self.lates = 0
        self.deaths = 0
        self._clock = clock or SystemClock()
        self._command = tuple(command)
        self._child: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._owed: asyncio.Future[Answer] | None = None
        self._asked_at_s = 0.0
        self._reaping: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self._failures = 0
        self._not_before_s = float("-inf")
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Return the process id of the child, None while there is none."""
        return None if self._child is None else self._child.pid

    async def solve(self, question: Question, budget: Budget) -> Answer:
        """Return the child's answer, or one with status LATE_OR_DEAD after at most `budget.wall_s`."""
        try:
            async with asyncio.timeout(budget.wall_s):
                async with self._turn:
                    return await self._ask(question, budget)
        except TimeoutError:
            self.lates += 1
            return _none(f"no answer within {budget.wall_s:g} s")

    async def start(self) -> None:
        """Start the child and wait until it takes questions; returns at once where it already does.

        A failure is counted and not raised: `solve` will say so.
        """
        if self._child is not None and self._child.returncode is not None:
            await self._fail("the solver died")
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="solver-start")
        await asyncio.shield(self._starting)

    async def close(self) -> None:
        """End the child; `solve` answers LATE_OR_DEAD from now on."""
        self._is_closed = True
        for task in (self._starting, self._reading):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await self._end("the solver is closed")
        if self._reaping:
            await asyncio.wait(self._reaping)

    async def _ask(self, question: Question, budget: Budget) -> Answer:
        if self._owed is not None:
            if self._clock.monotonic_s() - self._asked_at_s > _HANGS_AFTER_S:
                await self._fail("the solver hangs")
            else:
                await asyncio.shield(self._owed)
        if self._is_closed:
            return _none("the solver is closed")
        if self._child is None and self._clock.monotonic_s() < self._not_before_s:
            return _none("the solver failed repeatedly and is left alone for a while")
        await self.start()
        child = self._child
        if child is None or child.stdin is None:
            return _none("the solver did not start")
        owed = self._owed = asyncio.get_running_loop().create_future()
        self._asked_at_s = self._clock.monotonic_s()
        try:
            child.stdin.write(wire.framed(wire.Request(question=question, budget=budget)))
        except (OSError, RuntimeError):  # uvloop raises the latter where the child just died
            await self._fail("the solver died")
        return await asyncio.shield(owed)

    async def _start(self) -> None:
        self.starts += 1
        try:
            async with asyncio.timeout(_START_S):
                child = self._child = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
                assert child.stdout is not None
                await child.stdout.readexactly(wire.HEADER_BYTES)
        except (OSError, EOFError, TimeoutError) as error:
            await self._fail(f"the solver did not start: {type(error).__name__}")
        else:
            self._reading = asyncio.create_task(self._read(child.stdout), name="solver-replies")

    async def _read(self, replies: asyncio.StreamReader) -> None:
        """Hand out replies until the child ends, which also is seen while nobody asks."""
        try:
            while True:
                header = await replies.readexactly(wire.HEADER_BYTES)
                reply = wire.reply(await replies.readexactly(wire.body_bytes(header)))
                self._failures = 0
                self._settle(reply.answer or _none(reply.error))
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            self._reading = None
            await self._fail(f"the solver died: {type(error).__name__}")

    def _settle(self, answer: Answer) -> None:
        owed, self._owed = self._owed, None
        if owed is not None and not owed.done():
            owed.set_result(answer)

    async def _fail(self, why: str) -> None:
        self.deaths += 1
        self._failures += 1
        if self._failures > 1:
            pause_s = min(_LONGEST_PAUSE_S, 2.0 ** (self._failures - 2))
            self._not_before_s = self._clock.monotonic_s() + pause_s
        await self._end(why)

    async def _end(self, why: str) -> None:
        """Kill the child, and wait for its end even where whoever waits here is cancelled."""
        child, self._child, self._starting = self._child, None, None
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
        self._settle(_none(why))
        if child is not None:
            reaping = asyncio.create_task(_reap(child), name="solver-end")
            self._reaping.add(reaping)
            reaping.add_done_callback(self._reaping.discard)
            await asyncio.shield(reaping)


async def _reap(child: asyncio.subprocess.Process) -> None:
    """Kill and wait; a killed process is gone within moments."""
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    if child.stdin is not None:
        child.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            await child.wait()


def _none(detail: str) -> Answer:
    return Answer(status=SolveStatus.LATE_OR_DEAD, detail=detail)
