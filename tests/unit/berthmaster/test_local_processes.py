"""Processes are recognised beyond doubt, and only those are ended."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from berthmaster.local import processes
from berthmaster.local.processes import Identity
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError

SLEEP = shutil.which("sleep") or "/bin/sleep"
SHELL = shutil.which("sh") or "/bin/sh"
CLOCK = SystemClock()


def until(condition, most_s: float = 5.0) -> None:
    deadline_s = time.perf_counter() + most_s
    while not condition():
        assert time.perf_counter() < deadline_s, "did not come about"
        os.sched_yield()


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    processes.end(processes.marked(str(tmp_path)), CLOCK, grace_s=1.0)


def begin(mark: str, *argv: str) -> Identity:
    return processes.start(argv or (SLEEP, "60"), log=Path(mark, "out.log"), mark=mark, environ=os.environ)


def test_a_started_process_leads_a_session_of_its_own_and_is_alive(mark: str) -> None:
    identity = begin(mark)
    assert processes.is_alive(identity)
    assert processes.session_of(identity.pid) == identity.pid != os.getsid(0)
    assert processes.identify(identity.pid) == identity


def test_a_reused_pid_is_another_process_and_gets_no_signal(mark: str) -> None:
    real = begin(mark)
    for stranger in (
        replace(real, started_ticks=real.started_ticks - 1),
        replace(real, boot="another-boot"),
    ):
        assert not processes.is_alive(stranger)
        processes.send(stranger, signal.SIGKILL)
        processes.end([stranger], CLOCK, grace_s=0.1)
    assert processes.is_alive(real)


def test_an_ended_child_is_dead_at_once_though_a_zombie_until_collected(mark: str) -> None:
    identity = begin(mark, SHELL, "-c", "exit 3")
    until(lambda: not processes.is_alive(identity))
    assert processes.identify(identity.pid) is None
    with pytest.raises(ChildProcessError):
        os.waitpid(identity.pid, os.WNOHANG)  # collected already


def test_a_process_is_alive_until_its_last_thread_is_gone(mark: str) -> None:
    leader_leaves = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    identity = begin(mark, sys.executable, "-c", leader_leaves)
    until(lambda: ") Z " in Path(f"/proc/{identity.pid}/stat").read_text())
    assert processes.is_alive(identity)
    processes.end([identity], CLOCK, grace_s=1.0)
    assert not processes.is_alive(identity)


def test_a_program_that_ends_at_once_has_an_identity_too(mark: str) -> None:
    for _ in range(20):
        identity = begin(mark, SHELL, "-c", "exit 3")
        until(lambda identity=identity: not processes.is_alive(identity))


def test_the_mark_finds_children_too_and_nobody_else(mark: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    parent = begin(mark, SHELL, "-c", f"{SLEEP} 60 & wait")
    stranger = begin(str(other))
    until(lambda: len(processes.marked(mark)) == 2)
    found = processes.marked(mark)
    assert parent in found
    assert stranger not in found
    assert {processes.session_of(process.pid) for process in found} == {parent.pid}
    processes.end([stranger], CLOCK, grace_s=1.0)


def test_the_mark_is_found_from_the_first_moment(mark: str) -> None:
    for _ in range(20):
        identity = begin(mark)
        assert identity in processes.marked(mark)
        processes.end([identity], CLOCK, grace_s=1.0)


def test_end_waits_and_kills_who_ignores_the_polite_signal(mark: str) -> None:
    deaf = begin(mark, SHELL, "-c", f"trap '' TERM; echo ready; while true; do {SLEEP} 1; done")
    until(lambda: "ready" in Path(mark, "out.log").read_text())
    processes.end([deaf], CLOCK, grace_s=0.2)
    assert not processes.is_alive(deaf)


def test_output_is_appended_to_the_log(mark: str) -> None:
    for word in ("one", "two"):
        ended = begin(mark, SHELL, "-c", f"echo {word}; echo {word} >&2; exec {SLEEP} 60")
        until(lambda word=word: Path(mark, "out.log").read_text().count(word) == 2)
        processes.end([ended], CLOCK, grace_s=1.0)
    assert Path(mark, "out.log").read_text() == "one\none\ntwo\ntwo\n"


def test_a_program_that_is_not_there_is_named(mark: str) -> None:
    with pytest.raises(LocalClusterError, match="cannot start /no/such/program"):
        begin(mark, "/no/such/program")
