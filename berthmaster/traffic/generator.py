"""An open-loop load: requests go out at their times whether or not earlier ones were answered.

A closed loop waits when the system is slow and so hides that it is; users do not wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp

from berthmaster.traffic.tally import Tally
from fleet.clock import Clock

_BODY = b'{"inputs": [1]}'


async def run_load(
    url: str,
    schedule_s: Sequence[float],
    clock: Clock,
    *,
    tally: Tally | None = None,
    timeout_s: float = 60.0,
    most_open: int = 2000,
) -> Tally:
    """Send one POST at each time, wait for all ends, and return what became of them.

    Args:
        url: Whole URL.
        schedule_s: Times from now, ascending.
        clock: Time.
        tally: Where to count, for whoever looks while it runs.
        timeout_s: After which this client gives a request up.
        most_open: At the same time; a further one is counted as not sent.
    """
    tally = Tally() if tally is None else tally
    limits = aiohttp.ClientTimeout(total=timeout_s)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15)
    start_s = clock.monotonic_s()
    async with aiohttp.ClientSession(connector=connector, timeout=limits) as session, asyncio.TaskGroup() as group:
        for due_s in schedule_s:
            ahead_s = start_s + due_s - clock.monotonic_s()
            if ahead_s > 0:
                await clock.sleep(ahead_s)
            tally.due += 1
            if tally.open >= most_open:
                tally.unsent += 1
                continue
            tally.sent(clock.monotonic_s() - start_s - due_s)
            group.create_task(_send(session, url, start_s + due_s, clock, tally))
    return tally


async def _send(session: aiohttp.ClientSession, url: str, due_at_s: float, clock: Clock, tally: Tally) -> None:
    try:
        # POST: a client may repeat a GET on its own, which would count one request as two.
        async with session.post(url, data=_BODY) as answer:
            await answer.read()
            tally.ended(answer.status, clock.monotonic_s() - due_at_s)
    except TimeoutError:
        tally.failed("timeout", by_timeout=True)
    except (aiohttp.ClientError, OSError) as error:
        tally.failed(type(error).__name__, by_timeout=False)
