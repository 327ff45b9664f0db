"""What a waiting person sees: one live line per step on a terminal, plain lines with dots elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from fleet.clock import SystemClock

_DOT_S = 2.0
# How a step is left by Ctrl-C or a signal, which is no failure of the step.
_LEAVING = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)

# Called by the step itself: how much is done (0..1, None = unknown) and a few words on it.
Tell = Callable[[float | None, str], None]


class Report(Protocol):
    """Where steps are announced; a step that fails or is interrupted ends by its exception."""

    @contextmanager
    def step(self, title: str, *, expected_s: float = 0.0) -> Iterator[Tell]:
        """Show a step from its start to its end; expected_s is what people are told, 0 = a moment."""
        ...

    def note(self, text: str) -> None:
        """Say something that stays."""
        ...


class Silent:
    """Shows nothing: for programs that read the result only."""

    @contextmanager
    def step(self, title: str, *, expected_s: float = 0.0) -> Iterator[Tell]:
        """Do the step."""
        yield lambda ratio, words: None

    def note(self, text: str) -> None:
        """Say nothing."""


class Lines:
    """One line per step, with a dot every two seconds, for logs and pipes."""

    def __init__(self, write: Callable[[str], None], clock: SystemClock) -> None:
        self._write = write
        self._clock = clock

    @contextmanager
    def step(self, title: str, *, expected_s: float = 0.0) -> Iterator[Tell]:
        """Write the title, dots while it lasts, and the seconds it took."""
        started_s = self._clock.monotonic_s()
        self._write(title + (f" (about {_duration(expected_s)})" if expected_s >= _DOT_S else ""))
        over = threading.Event()
        dots = threading.Thread(target=self._dots, args=(over,), daemon=True)
        dots.start()
        outcome = " failed after"
        try:
            yield lambda ratio, words: None
            outcome = ""
        except _LEAVING:
            outcome = " interrupted after"
            raise
        finally:
            over.set()
            dots.join()
            self._write(f"{outcome} {self._clock.monotonic_s() - started_s:.1f} s\n")

    def note(self, text: str) -> None:
        """Write a line."""
        self._write(text + "\n")

    def _dots(self, over: threading.Event) -> None:
        while not over.wait(_DOT_S):
            self._write(" .")


class Live:
    """A spinner, a bar against the expected time, and the elapsed time, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, title: str, *, expected_s: float = 0.0) -> Iterator[Tell]:
        """Show the step live, and one line with its duration when it is done."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=12) if expected_s >= _DOT_S else TextColumn(""),
            _Elapsed(table_column=Column(no_wrap=True)),
            TextColumn("[dim]{task.fields[words]}", table_column=Column(no_wrap=True)),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(title, total=expected_s or None, words="", is_told=False)

            def tell(ratio: float | None, words: str) -> None:
                if ratio is None:
                    progress.update(task, words=words)
                else:
                    progress.update(task, words=words, is_told=True, total=1.0, completed=ratio)

            yield tell
            elapsed_s = progress.tasks[0].elapsed or 0.0
        self._console.print(f"[green]✓[/] {title} [dim]{elapsed_s:.1f} s[/]", highlight=False)

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class _Elapsed(ProgressColumn):
    """Seconds so far, and what is expected; it also moves the bar where the step itself tells nothing."""

    max_refresh = 0.2

    def render(self, task: Task) -> Text:
        elapsed_s = task.elapsed or 0.0
        if task.fields["is_told"] or not task.total:
            return Text(_duration(elapsed_s))
        task.completed = min(elapsed_s, 0.99 * task.total)
        return Text(f"{_duration(elapsed_s)} of about {_duration(task.total)}")


def report_for(console: Console, clock: SystemClock) -> Report:
    """Return the live display on a terminal, plain lines elsewhere; both on stderr, so that stdout stays the answer."""
    if console.is_terminal:
        return Live(console)
    return Lines(lambda text: click.echo(text, nl=False, err=True), clock)


def _duration(seconds: float) -> str:
    """Return whole seconds, from a minute on as minutes:seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes else f"{rest} s"
