"""What a waiting person sees."""

from __future__ import annotations

import asyncio
import io
import threading

import pytest
from rich.console import Console

from berthmaster.local import progress
from berthmaster.local.progress import Lines, Live, Silent, report_for
from fleet.clock import SystemClock


class Stepping(SystemClock):
    """Seven seconds pass between two looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic_s(self) -> float:
        self.now += 7.0
        return self.now


def test_lines_say_what_how_long_to_expect_and_how_long_it_took() -> None:
    out: list[str] = []
    report = Lines(out.append, Stepping())
    with report.step("Building etcd", expected_s=90):
        pass
    report.note("done")
    assert "".join(out) == "Building etcd (about 1:30 min) 7.0 s\ndone\n"


def test_a_failed_step_says_so_and_passes_the_error_on() -> None:
    out: list[str] = []
    with pytest.raises(ValueError, match="no"), Lines(out.append, Stepping()).step("Trying"):
        raise ValueError("no")
    assert "".join(out) == "Trying failed after 7.0 s\n"


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_step_that_was_interrupted_has_not_failed(leaving: type[BaseException]) -> None:
    out: list[str] = []
    with pytest.raises(leaving), Lines(out.append, Stepping()).step("Trying"):
        raise leaving
    assert "".join(out) == "Trying interrupted after 7.0 s\n"


def test_lines_are_never_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_DOT_S", 0.001)
    dotted = threading.Event()
    out: list[str] = []

    def write(text: str) -> None:
        out.append(text)
        if out.count(" .") >= 3:
            dotted.set()

    with Lines(write, Stepping()).step("Waiting"):
        assert dotted.wait(5)
    assert out[-1] == " 7.0 s\n"


def test_a_terminal_gets_the_live_display_and_a_pipe_gets_lines() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    assert isinstance(report_for(terminal, SystemClock()), Live)
    assert isinstance(report_for(Console(file=io.StringIO()), SystemClock()), Lines)


@pytest.mark.parametrize("expected_s", [0.0, 90.0])
def test_the_live_display_leaves_one_line_per_step(expected_s: float) -> None:
    out = io.StringIO()
    report = Live(Console(file=out, force_terminal=True, width=100))
    with report.step("Building etcd", expected_s=expected_s) as tell:
        tell(None, "12 packages")
        tell(0.5, "half")
    report.note("[not markup]")
    assert "Building etcd" in out.getvalue()
    assert "[not markup]" in out.getvalue()


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with Silent().step("x") as tell:
        tell(1.0, "y")
    Silent().note("z")
    assert capsys.readouterr() == ("", "")
