"""Work in tasks and threads that is over when it is said to be over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *given: object) -> T:
    """Run a blocking call in a thread; when cancelled, end only after the call has ended.

    A write that goes on after its file was closed could meet another file of the same number.
    """
    task = asyncio.ensure_future(asyncio.to_thread(function, *given))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            task.exception()
        raise


async def together(works: Iterable[Coroutine[Any, Any, None]], *, beside: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all works to their end, and those beside them as long; the first failure ends all and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            helpers = [group.create_task(work) for work in beside]
            tasks = [group.create_task(work) for work in works]
            await asyncio.wait(tasks)
            for helper in helpers:
                helper.cancel()
    except BaseExceptionGroup as failed:
        raise _first(failed) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
