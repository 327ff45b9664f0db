"""One holder at a time, across threads and processes, and no file left."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest

from berthmaster.local import locks
from fleet.clock import SystemClock


class NoWaiting(SystemClock):
    """Counts instead of sleeping."""

    def __init__(self) -> None:
        self.waits = 0

    def sleep_blocking(self, seconds: float) -> None:
        self.waits += 1
        threading.Event().wait(0.001)


def test_the_file_is_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with locks.hold(path, SystemClock()):
        assert path.exists()
    assert not path.exists()


def test_a_second_holder_waits_and_says_so_once(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    clock = NoWaiting()
    told: list[str] = []
    entered = threading.Event()

    def second() -> None:
        with locks.hold(path, clock, waiting=lambda: told.append("waiting")):
            entered.set()

    with locks.hold(path, SystemClock()):
        thread = threading.Thread(target=second)
        thread.start()
        while clock.waits < 3:
            threading.Event().wait(0.001)
        assert not entered.is_set()
    thread.join()
    assert entered.is_set()
    assert told == ["waiting"]
    assert not path.exists()


def test_many_threads_never_meet_inside(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    inside = 0
    most = 0
    done = 0

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(20):
            with locks.hold(path, NoWaiting()):
                inside += 1
                most = max(most, inside)
                inside -= 1
                done += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (1, 80)


def test_a_lock_on_a_file_that_was_removed_meanwhile_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    real = fcntl.flock
    calls: list[int] = []

    def flock(descriptor: int, operation: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:  # the holder before leaves between our open and our lock, and a third one comes
            path.unlink()
            path.touch()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with locks.hold(path, SystemClock()), path.open() as third, pytest.raises(BlockingIOError):
        real(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert len(calls) == 2


def test_a_file_left_by_a_dead_holder_does_not_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with locks.hold(path, SystemClock(), waiting=lambda: (_ for _ in ()).throw(AssertionError)):
        pass
    assert not path.exists()
