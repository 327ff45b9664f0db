"""Shows progress: a live picture on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click
from rich.console import Console, RenderableType
from rich.live import Live

_LINE_EVERY_S = 5.0

T = TypeVar("T")


@contextmanager
def showing(
    picture: Callable[[T], RenderableType], line: Callable[[T], str], elapsed_s: Callable[[T], float]
) -> Iterator[Callable[[T], None]]:
    """Yield whom to tell what is seen.

    Args:
        picture: Of what is seen, for a terminal.
        line: The same in one line.
        elapsed_s: When it was seen, from the start.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        with Live(console=console, transient=True) as live:
            yield lambda seen: live.update(picture(seen))
        return
    said_s = 0.0

    def say(seen: T) -> None:
        nonlocal said_s
        if elapsed_s(seen) - said_s >= _LINE_EVERY_S:
            said_s = elapsed_s(seen)
            click.echo(line(seen), err=True)

    yield say
