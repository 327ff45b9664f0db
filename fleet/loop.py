"""How a process turns: one control loop, and one way to start, to be stopped and to fail."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import uvloop

from fleet.clock import Clock
from fleet.errors import BerthmasterError

_log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_FAILED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """When a loop turns.

    Attributes:
        period_s: Pause between turns.
        jitter_ratio: Part of the pause by which it varies either way, so that replicas drift apart.
        longest_backoff_s: Most that a row of failing turns stretches the pause to.
    """

    period_s: float
    jitter_ratio: float = 0.1
    longest_backoff_s: float = 60.0

    def pause_s(self, failures: int, draw: float) -> float:
        """Return the pause after `failures` failing turns in a row; `draw` is uniform in 0..1."""
        stretched_s = min(self.period_s * 2.0 ** min(failures, 20), max(self.period_s, self.longest_backoff_s))
        return stretched_s * (1.0 + self.jitter_ratio * (2.0 * draw - 1.0))


async def every(
    rhythm: Rhythm,
    turn: Callable[[], Awaitable[None]],
    clock: Clock,
    *,
    name: str,
    failed: Callable[[Exception], None] = lambda error: None,
    seed: int | None = None,
) -> None:
    """Turn until cancelled. A failing turn is logged and told, stretches the pause, and never ends the loop.

    Args:
        rhythm: When.
        turn: What to do.
        clock: For the pauses.
        name: For the log.
        failed: Told of each failure, to count it.
        seed: Of the jitter.
    """
    draw = random.Random(seed).random
    failures = 0
    while True:
        try:
            await turn()
        except Exception as error:
            # Broad on purpose: the one place where a fault of a single turn is caught.
            failures += 1
            failed(error)
            _log.exception("a turn of %s failed, %d in a row", name, failures)
        else:
            failures = 0
        await clock.sleep(rhythm.pause_s(failures, draw()))


async def together(tasks: Mapping[str, Coroutine[Any, Any, None]]) -> None:
    """Run named tasks that are meant to run for ever; the end of one, for whatever reason, ends all.

    Raises:
        ExceptionGroup: What a task raised, or RuntimeError where one just returned.
    """

    async def watched(name: str, task: Coroutine[Any, Any, None]) -> None:
        try:
            await task
        except Exception:
            _log.exception("%s crashed", name)
            raise
        raise RuntimeError(f"{name} ended, which it never should")

    async with asyncio.TaskGroup() as group:
        for name, task in tasks.items():
            group.create_task(watched(name, task), name=name)


def run_process(main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run a process's main coroutine on uvloop and return its exit status.

    SIGTERM and SIGINT cancel it, so that it lets go of leases and sockets: status 0. An error is logged in one line if
    it is one of ours, with its trace if it is a bug: status 1.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_until_stopped(main))


async def _until_stopped(main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(main())
    is_stopped = False

    def stop(received: signal.Signals) -> None:
        nonlocal is_stopped
        _log.info("stopping: %s", received.name)
        is_stopped = True
        work.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        with suppress(asyncio.CancelledError):
            await work
    except BaseExceptionGroup as group:
        return _failed(group)
    except Exception as error:
        return _failed(error)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return EXIT_OK if is_stopped or (work.done() and not work.cancelled()) else EXIT_FAILED


def _failed(error: BaseException) -> int:
    first = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if isinstance(first, BerthmasterError):
        _log.error("ended: %s", first)
    else:
        _log.error("ended by a bug: %s", type(first).__name__, exc_info=error)
    return EXIT_FAILED
