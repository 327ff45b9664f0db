"""Options that several commands share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click
import uvloop
from rich.console import Console

from berthmaster.plain import PlainConsole
from fleet.clock import SystemClock
from fleet.errors import BerthmasterError
from fleet.kube.credentials import Connection, connection

_PIPE_COLUMNS = 240

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def kubeconfig_option(function: F) -> F:
    """Add --kubeconfig and --context."""
    function = click.option("--context", help="Context of the kubeconfig; its current one by default.")(function)
    return click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False),
        help="Kubeconfig file; $KUBECONFIG, ~/.kube/config or the pod's own account by default.",
    )(function)


def json_option(function: F) -> F:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")(function)


def output(*, is_error: bool = False) -> Console:
    """Return where a command prints for people; into a pipe it prints wide lines, so that names are found whole.

    What stands in objects is others' text: control characters in it are not printed.
    """
    console = PlainConsole(highlight=False, stderr=is_error)
    return console if console.is_terminal else PlainConsole(highlight=False, stderr=is_error, width=_PIPE_COLUMNS)


def connect(kubeconfig: str | None, context: str | None) -> Connection:
    """Return the connection these options name.

    Raises:
        BerthmasterError: There is no usable configuration.
    """
    return connection(kubeconfig, context, SystemClock())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine; Ctrl-C cancels it, so that it can clean up, and exits with status 130."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BaseExceptionGroup as group:
        expected = group.subgroup(BerthmasterError)
        if expected is not None and group.split(BerthmasterError)[1] is None:
            raise _first(expected) from None
        raise


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
