"""What others wrote may be anything: commands print it without obeying it, and read it or say what is wrong with it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

import berthmaster.options
from berthmaster.autoscaler_object import autoscaler_of, autoscalers_of, seconds_of
from berthmaster.autoscaler_table import rows, table
from berthmaster.autoscaler_words import explained
from berthmaster.commands.explain.autoscaler import _print
from berthmaster.commands.replay import command as replay_command
from berthmaster.plain import PlainConsole, plain
from fleet.errors import BerthmasterError, DecodeError
from scaler.recorded import Recorded, from_json, to_json
from scaler.ring import DECISIONS, SECONDS, History
from tests.support.replicas import a_spec

NASTY = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b1m\u202egnp.exe\r\nall is well"
FORBIDDEN = ("\x1b", "\x07", "\x9b", "\u202e", "\r")


def nasty_autoscaler() -> dict[str, Any]:
    """Return an object of which every text is a terminal's command."""
    told = {"at": NASTY, "reason": NASTY, "message": NASTY, "numbers": {f"{NASTY}_rps": 1.0}}
    return {
        "metadata": {"name": NASTY, "namespace": NASTY},
        "spec": {
            "targetRef": {"kind": NASTY, "name": NASTY},
            "targetConcurrency": {"initial": NASTY},
            "minReplicas": NASTY,
            "behavior": {"mode": NASTY},
            "forecast": {"mode": NASTY},
            "mode": NASTY,
        },
        "status": {
            "lastDecision": told,
            "lastChange": {"at": NASTY, "reason": NASTY, "message": NASTY},
            "conditions": [{"type": NASTY, "status": NASTY, "reason": NASTY, "message": NASTY}],
            "target": told | {"canary": NASTY, "version": NASTY, "learnt": 1.0},
            "forecast": {"standing": NASTY, "message": NASTY, "report": NASTY},
            "nextReady": NASTY,
            "need": [{"replicas": 1, "by": NASTY}],
        },
    }


@pytest.mark.parametrize("has_target", [True, False])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_text_of_an_autoscaler_commands_the_terminal(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, has_target: bool
) -> None:
    obj = nasty_autoscaler()
    if not has_target:
        del obj["status"]["target"]
    found = autoscaler_of(msgspec.json.encode(obj))
    printed = io.StringIO()
    console = PlainConsole(file=printed, width=120, force_terminal=is_terminal, color_system=None)
    monkeypatch.setattr("berthmaster.commands.explain.autoscaler.output", lambda: console)
    _print(explained(found, 1e9))
    console.print(table(rows([found], 1e9), 10))
    assert "all is well" in printed.getvalue()
    assert not [mark for mark in FORBIDDEN if mark in printed.getvalue()]


def test_commands_print_on_such_a_console() -> None:
    assert isinstance(berthmaster.options.output(), PlainConsole)
    assert isinstance(berthmaster.options.output(is_error=True), PlainConsole)


@given(st.text())
def test_styles_stay_and_controls_go(text: str) -> None:
    printed = io.StringIO()
    grid = Table(text.replace("[", "("))
    PlainConsole(file=printed, width=80, force_terminal=True, color_system="truecolor").print(grid, style="bold")
    bare = io.StringIO()
    Console(file=bare, width=80, force_terminal=True, color_system="truecolor").print(Table("x"), style="bold")
    assert "\x1b[1m" in printed.getvalue(), "what rich itself writes is not touched"
    assert not set(plain(text)) & set(FORBIDDEN)
    assert "\n" not in plain(text)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"metadata":{"name":"a"},"spec":' + b'{"a":' * 100_000,
        b'{"items":[{"a":' + b"[" * 100_000,
        b'{"metadata":{"name":"a"},"status":{"desiredReplicas":1e999}}',
        b'{"metadata":{"name":"a"},"status":{"load":{"rate":' + b"9" * 400 + b"}}}",
        b'{"metadata":{"name":"\xff"}}',
        b"",
    ],
)
def test_an_object_that_cannot_be_read_is_said_to_be_one(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        autoscaler_of(raw)
    with pytest.raises(DecodeError):
        autoscalers_of(raw if raw.startswith(b'{"items"') else b'{"items": 3}')


@pytest.mark.parametrize("value", [10**400, -1, 1e308, True, None, [], "7", {}])
def test_a_spec_that_holds_anything_is_shown(value: Any) -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"targetConcurrency": {"initial": value}, "mode": "act"}}
    raw = b'{"metadata":{"name":"a"},"spec":{"targetConcurrency":{"initial":' + b"9" * 4000 + b"}}}"
    for body in (raw, msgspec.json.encode(obj) if not isinstance(value, int) or abs(value) < 2**63 else raw):
        found = autoscaler_of(body)
        assert explained(found, 1e9)
        assert table(rows([found], 1e9), 10).row_count == 1


@given(st.text(max_size=40))
def test_any_time_is_read_or_none(text: str) -> None:
    assert seconds_of(text) is None or isinstance(seconds_of(text), float)


def recorded(seconds: int = 600) -> dict[str, Any]:
    """Return a history as a controller serves it."""
    columns = {name: np.full(seconds, 5.0) for name in SECONDS} | {"queued": np.zeros(seconds)}
    made = {name: np.full(10, 5.0) for name in DECISIONS} | {"at_s": np.arange(10) * 60.0}
    history = History(from_s=0.0, seconds=columns, decisions=made, reasons=())
    told: dict[str, Any] = json.loads(
        to_json(Recorded(autoscaler="n/a", spec=a_spec(), history=history), 1_796_000_000.0)
    )
    return told | {"reasons": ["Fits"] * 10}


def replayed(document: dict[str, Any], folder: Path) -> str:
    """Replay a document; return what it says. Any error but one of ours is a bug."""
    path = folder / "history.json"
    path.write_text(json.dumps(document))
    answer = CliRunner().invoke(replay_command, ["--file", str(path), "--json"])
    assert answer.exception is None or isinstance(answer.exception, BerthmasterError), repr(answer.exception)
    return str(answer.exception or answer.output)


def test_an_honest_history_is_replayed(tmp_path: Path) -> None:
    assert "replica_s" in replayed(recorded(), tmp_path)


@pytest.mark.parametrize("value", [1e308, 1e9, -1.0, 0.0, None])
@pytest.mark.parametrize("name", SECONDS)
def test_a_history_of_seconds_that_cannot_be_is_refused_or_replayed(name: str, value: Any, tmp_path: Path) -> None:
    document = recorded()
    document["seconds"][name] = [value] * 600
    replayed(document, tmp_path)
    document["seconds"][name] = [5.0] * 300 + [value] + [5.0] * 299
    replayed(document, tmp_path)


@pytest.mark.parametrize("value", [1e308, 1e9, -1.0, 0.0, None])
@pytest.mark.parametrize("name", DECISIONS)
def test_a_history_of_decisions_that_cannot_be_is_refused_or_replayed(name: str, value: Any, tmp_path: Path) -> None:
    document = recorded()
    document["decisions"][name] = [value] * 10
    replayed(document, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"fromSeconds": 1e308},
        {"fromSeconds": -1e308},
        {"reasons": ["Fits"] * 9},
        {"reasons": [NASTY] * 10},
        {"spec": {}},
        {"spec": a_spec(maxReplicas=2**31 - 1)},
        {"seconds": {}},
        {"seconds": {name: [] for name in SECONDS}},
        {"autoscaler": NASTY},
    ],
    ids=range(9),
)
def test_a_document_of_another_shape_is_refused_or_replayed(changes: dict[str, Any], tmp_path: Path) -> None:
    replayed(recorded() | changes, tmp_path)


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"spec":' * 50_000, b"\xff\xfe", b'{"autoscaler": 3}'])
def test_a_file_that_is_no_history_is_said_to_be_none(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        from_json(raw)
