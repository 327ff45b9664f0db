"""`berthmaster replay`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.parse import quote

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from berthmaster.moments import moment
from berthmaster.options import json_option, output, run
from berthmaster.replaying import Difference, Move, differences, highest, line, moves_in, moves_of, part
from berthmaster.settings import changed
from fleet.clock import SystemClock
from fleet.errors import BerthmasterError, ConfigError
from fleet.http import Http, TokenFile, tls_context
from scaler.recorded import Recorded, from_json
from scaler.replay import Outcome, Replay, replay
from scaler.resource import policy_of
from scaler.ring import History

_TIMEOUT_S = 20.0
_QUIET_S = 2.0
_MOST_LINES = 20
_WIDEST_PLOT = 100
_HEADINGS = {"was": "was", "same": "again, same settings", "would": "with the changes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The three runs of one part of the past.

    Attributes:
        same: Simulated under the settings of now: how far it is from what was shows how well the simulation tells.
        would: Simulated under the changed settings; None = nothing was changed.
    """

    autoscaler: str
    history: History
    changes: tuple[str, ...]
    same: Replay
    would: Replay | None


@click.command()
@click.argument("endpoint", required=False)
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the autoscaler.")
@click.option(
    "--from", "since", help="Where to begin: 09:30, -30m, or an ISO date and time. All that is kept by default."
)
@click.option("--to", "until", default="now", show_default=True, help="Where to end.")
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="Another setting, as in the spec; may be repeated."
)
@click.option(
    "--url",
    default="http://127.0.0.1:8614",
    show_default=True,
    help="The leading controller (kubectl -n berthmaster-system port-forward ...).",
)
@click.option("--token-file", type=click.Path(dir_okay=False), help="Bearer token to show.")
@click.option("--ca-file", type=click.Path(dir_okay=False), help="Whom to trust instead of the system's authorities.")
@click.option("--file", "path", type=click.Path(dir_okay=False), help="Read a saved history instead of asking.")
@click.option("--save", type=click.Path(dir_okay=False), help="Save the history as it came, for --file.")
@json_option
def command(
    endpoint: str | None,
    namespace: str,
    since: str | None,
    until: str,
    changes: tuple[str, ...],
    url: str,
    token_file: str | None,
    ca_file: str | None,
    path: str | None,
    save: str | None,
    as_json: bool,
) -> None:
    """Run a part of ENDPOINT's last hour again under other settings, and show what would have been.

    The same requests come, whatever happens to them; each takes the service time that was measured around its second.
    """
    if (endpoint is None) == (path is None):
        raise click.UsageError("give the autoscaler's name, or --file")
    now_s = SystemClock().now_s()
    zone = _zone(now_s)
    from_s = None if since is None else moment(since, now_s, zone)
    to_s = None if until == "now" else moment(until, now_s, zone)
    if from_s is not None and from_s >= (now_s if to_s is None else to_s):
        raise BerthmasterError(f"--from {since} is not before --to {until}")
    if path is not None:
        document = _read(path)
    else:
        namespace, _, name = (endpoint or "").rpartition("/") if "/" in (endpoint or "") else (namespace, "", endpoint)
        asked = {"to": 0.0 if to_s is None else max(0.0, now_s - to_s)}
        document = run(_ask(url, namespace, str(name), asked, token_file, ca_file))
    if save is not None:
        _write(save, document)
    answer = _replayed(from_json(document), from_s, to_s, changes)
    if as_json:
        click.echo(json.dumps(_document(answer), indent=2))
    else:
        _print(answer, zone)


async def _ask(
    url: str, namespace: str, name: str, asked: dict[str, float], token_file: str | None, ca_file: str | None
) -> bytes:
    async with Http(tls=tls_context(ca_file) if ca_file else None) as http:
        return await http.get(
            f"{url.rstrip('/')}/v1/history/{quote(namespace, safe='')}/{quote(name, safe='')}",
            params={key: f"{value:.0f}" for key, value in asked.items()},
            token=TokenFile(token_file) if token_file else None,
            timeout_s=_TIMEOUT_S,
        )


def _replayed(recorded: Recorded, from_s: float | None, to_s: float | None, changes: tuple[str, ...]) -> _Answer:
    # Settings first: a wrong name is told at once.
    now, other = policy_of(recorded.spec), policy_of(changed(recorded.spec, changes))
    history = part(recorded.history, from_s, to_s)
    told = Timer(
        _QUIET_S, lambda: click.echo(f"replaying {len(history.seconds['ready'])} seconds of traffic ...", err=True)
    )
    told.daemon = True
    told.start()
    try:
        same = replay(history, now, compare_from_s=from_s)
        # Both are compared from the same second on, whatever memory the other settings would want.
        would = replay(history, other, compare_from_s=float(same.at_s[0])) if changes else None
        return _Answer(autoscaler=recorded.autoscaler, history=history, changes=changes, same=same, would=would)
    finally:
        told.cancel()


def _runs(answer: _Answer) -> list[tuple[str, Outcome]]:
    runs = [("was", answer.same.was), ("same", answer.same.would)]
    return runs if answer.would is None else [*runs, ("would", answer.would.would)]


def _differing(answer: _Answer) -> tuple[Difference, ...]:
    shown = answer.would or answer.same
    return differences(moves_of(answer.history, float(shown.at_s[0])), moves_in(shown))


def _document(answer: _Answer) -> dict[str, Any]:
    shown = answer.would or answer.same
    return {
        "autoscaler": answer.autoscaler,
        "from_s": float(shown.at_s[0]),
        "to_s": float(shown.at_s[-1]),
        "changes": list(answer.changes),
        "requests": shown.requests,
        "service_s": round(shown.service_s, 4),
        "unknown_ratio": round(shown.unknown_ratio, 4),
        "outcomes": {name: asdict(outcome) for name, outcome in _runs(answer)},
        "replicas_was": shown.wanted_was.astype(int).tolist(),
        "replicas_would": shown.wanted_would.astype(int).tolist(),
        "differences": [asdict(difference) for difference in _differing(answer)],
    }


def _print(answer: _Answer, zone: tzinfo) -> None:
    console = output()
    shown = answer.would or answer.same
    begin_s, end_s = float(shown.at_s[0]), float(shown.at_s[-1])
    console.print(
        f"[bold]{escape(answer.autoscaler)}[/], {_clock(begin_s, zone)} to {_clock(end_s, zone)}: {shown.requests} "
        f"requests, {shown.service_s:.3g} s each"
    )
    if answer.changes:
        console.print(f"changed: {escape(', '.join(answer.changes))}")
    if shown.unknown_ratio >= 0.01:
        console.print(f"[yellow]{shown.unknown_ratio:.0%} of the seconds were not seen: their load is a guess[/]")
    console.print(_outcomes(answer))
    _plot(console, answer, shown)
    found = _differing(answer)
    if not found:
        console.print("every decision that moved the count was the same")
        return
    table = Table("time", "was", "would have been", box=None, header_style="bold")
    for difference in found[:_MOST_LINES]:
        table.add_row(_clock(difference.at_s, zone), _move(difference.was), _move(difference.would))
    console.print("decisions that differ:")
    console.print(table)
    if len(found) > _MOST_LINES:
        console.print(f"and {len(found) - _MOST_LINES} more")


def _outcomes(answer: _Answer) -> Table:
    runs = _runs(answer)
    table = Table("", box=None, header_style="bold")
    for name, _ in runs:
        table.add_column(_HEADINGS[name], justify="right")
    outcomes = [outcome for _, outcome in runs]
    table.add_row("late requests", *(f"{outcome.late_ratio:.2%}" for outcome in outcomes))
    table.add_row("replica-hours", *(f"{outcome.replica_s / 3600:.2f}" for outcome in outcomes))
    table.add_row("most replicas", *(str(outcome.peak_replicas) for outcome in outcomes))
    table.add_row("changes", *(str(outcome.changes) for outcome in outcomes))
    table.add_row("reversals", *(str(outcome.reversals) for outcome in outcomes))
    return table


def _plot(console: Console, answer: _Answer, shown: Replay) -> None:
    width = max(10, min(_WIDEST_PLOT, console.width - 40))
    arrivals = answer.history.seconds["arrivals"][-len(shown.at_s) :]
    most = highest(shown.wanted_was, shown.wanted_would)
    for name, values, top in (
        ("requests/s", arrivals, highest(arrivals)),
        ("replicas, was", shown.wanted_was, most),
        ("would have been", shown.wanted_would, most),
    ):
        known = values[np.isfinite(values)]
        span = f"{known.min():.0f} to {known.max():.0f}" if known.size else "unknown"
        console.print(f"{name:>16} {line(values, width, top)} {span}")


def _move(move: Move | None) -> str:
    return "-" if move is None else f"{move.replicas} ({move.reason.value})"


def _clock(at_s: float, zone: tzinfo) -> str:
    return datetime.fromtimestamp(at_s, zone).strftime("%H:%M:%S")


def _zone(now_s: float) -> tzinfo:
    """Return the zone of the machine: people type times of their own clock."""
    zone = datetime.fromtimestamp(now_s).astimezone().tzinfo
    assert zone is not None
    return zone


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError([f"cannot read {path}: {error.strerror}"]) from error


def _write(path: str, document: bytes) -> None:
    try:
        Path(path).write_bytes(document)
    except OSError as error:
        raise ConfigError([f"cannot write {path}: {error.strerror}"]) from error
