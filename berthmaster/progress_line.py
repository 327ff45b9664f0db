"""How far a long run is, on stderr."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Final

import click

_QUIET_S: Final = 2.0
_LINE_EVERY_S: Final = 5.0


class ProgressLine:
    """Says on stderr how far a run is that takes more than two seconds: in place on a terminal, else now and then."""

    def __init__(self) -> None:
        self._started = self._shown = perf_counter()
        self._is_terminal = sys.stderr.isatty()
        self._has_shown = False

    def step(self, done: str) -> None:
        """Say what is done, if it is time to."""
        now = perf_counter()
        if now - self._started < _QUIET_S or now - self._shown < (0.2 if self._is_terminal else _LINE_EVERY_S):
            return
        self._shown, self._has_shown = now, True
        text = f"{done}, {now - self._started:.0f} s"
        click.echo(f"\r{text}" if self._is_terminal else text, err=True, nl=not self._is_terminal)

    def end(self) -> None:
        """Leave the line."""
        if self._has_shown and self._is_terminal:
            click.echo(err=True)
