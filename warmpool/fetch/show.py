"""What a waiting person sees: live bars on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from fleet.clock import Clock
from warmpool.fetch.meter import FileMeter, Meter
from warmpool.fetch.room import amount

_REDRAW_S = 0.25
_LINE_S = 5.0
# A screen's worth; the rest is counted below.
_ROWS = 12
# The rate shown is of the last so many seconds.
_RATE_S = 5.0


class Rate:
    """The rate over the last seconds, fed with a total that grows."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    def bytes_per_s(self, now_s: float, total_bytes: int) -> float:
        """Take the total of now and return the rate; 0 before there are two."""
        self._points.append((now_s, total_bytes))
        while len(self._points) > 2 and now_s - self._points[0][0] > _RATE_S:
            self._points.pop(0)
        (first_s, first), (last_s, last) = self._points[0], self._points[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


@asynccontextmanager
async def shown(meter: Meter, clock: Clock, console: Console, *, is_quiet: bool) -> AsyncIterator[None]:
    """Show the meter while the block runs."""
    if is_quiet:
        yield
        return
    showing = asyncio.ensure_future((_live if console.is_terminal else _lines)(meter, clock, console))
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.wait([showing])


async def _live(meter: Meter, clock: Clock, console: Console) -> None:
    rate = Rate()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(picture(meter, rate.bytes_per_s(clock.monotonic_s(), meter.received_bytes)), refresh=True)
            await clock.sleep(_REDRAW_S)


async def _lines(meter: Meter, clock: Clock, console: Console) -> None:
    rate = Rate()
    rate.bytes_per_s(clock.monotonic_s(), 0)
    while True:
        await clock.sleep(_LINE_S)
        text = line(meter, rate.bytes_per_s(clock.monotonic_s(), meter.received_bytes))
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def line(meter: Meter, bytes_per_s: float) -> str:
    """Return the state of a run in one line."""
    done = sum(file.state == "done" for file in meter.files)
    had = sum(file.done_bytes for file in meter.files)
    sizes = [file.size_bytes for file in meter.files if file.size_bytes is not None]
    parts = [
        f"{done} of {len(meter.files)} files",
        f"{amount(had)} of {amount(sum(sizes))}",
        f"{amount(bytes_per_s)}/s",
    ]
    retries = sum(file.retries for file in meter.files)
    if retries:
        parts.append(f"{retries} retries")
    left = sum(sizes) - had
    if bytes_per_s > 0 and left > 0:
        parts.append(f"about {left / bytes_per_s:.0f} s left")
    return ", ".join(parts)


def picture(meter: Meter, bytes_per_s: float) -> Group:
    """Return the state of a run as bars: files under way first."""
    table = Table.grid(padding=(0, 2))
    busy = [file for file in meter.files if file.state not in {"done", "waiting"}]
    for file in busy[:_ROWS]:
        bar = ProgressBar(total=file.size_bytes or 1, completed=_shown_bytes(file), width=24)
        size = "?" if file.size_bytes is None else amount(file.size_bytes)
        table.add_row(
            escape(file.name),
            bar,
            f"{amount(_shown_bytes(file))} of {size}",
            file.state,
            f"[dim]{escape(file.source)}[/]",
        )
    return Group(table, f"[bold]{escape(line(meter, bytes_per_s))}[/]")


def _shown_bytes(file: FileMeter) -> int:
    return file.checked_bytes if file.state == "checking" and file.checked_bytes else file.done_bytes
