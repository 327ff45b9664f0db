"""Ctrl-C before anything is begun: quiet, status 130; a caller who has set it to be ignored is heeded."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from berthmaster.interrupted import leaving_quietly

# Sends itself the signal as a module is looked for: as if somebody pressed Ctrl-C just then.
PROGRAM = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv = ["berthmaster", "down", "--help"]
{before}
from berthmaster.cli import main
main()
"""


def run(module: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(module=module, before=before)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("module", ["click", "berthmaster.root", "fleet.errors", "berthmaster.commands.down"])
def test_an_interrupt_while_modules_are_imported_ends_quietly(module: str) -> None:
    done = run(module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_who_is_started_with_the_signal_ignored_goes_on() -> None:
    done = run("click", "signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_afterwards_the_command_hears_of_it_as_ever() -> None:
    before = signal.getsignal(signal.SIGINT)
    with leaving_quietly():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def look() -> None:
        with leaving_quietly():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
