"""A few downloads at once; their streams are bounded elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from warmpool.fetch.tasks import together

# Enough that small files do not wait for each other's round trips.
_AT_ONCE = 4

T = TypeVar("T")


async def at_once(works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return what each work returns, in their order; the first failure ends all and is raised."""
    results: dict[int, T] = {}
    waiting = iter(enumerate(works))

    async def worker() -> None:
        for index, work in waiting:
            results[index] = await work()

    if works:
        await together([worker() for _ in range(min(_AT_ONCE, len(works)))], beside=[])
    return [results[index] for index in range(len(works))]
