"""Processes of our own: started detached, recognised without doubt, ended completely.

A pid alone is no identity, because the kernel gives it away again. Two things are: the pid with its start time and the
boot it belongs to, and a mark in the environment, which children inherit and strangers lack.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.clock import SystemClock
from fleet.errors import LocalClusterError

MARK = "BERTHMASTER_CLUSTER"
_PROC = Path("/proc")
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A process that can be told from every later one with the same pid.

    Attributes:
        started_ticks: Field 22 of /proc/PID/stat, clock ticks since boot (proc(5)).
        boot: /proc/sys/kernel/random/boot_id of the boot that those ticks count from.
    """

    pid: int
    started_ticks: int
    boot: str


def check_platform() -> None:
    """Raise LocalClusterError where there is no /proc to recognise processes by."""
    if not (_PROC / "self" / "stat").exists():
        raise LocalClusterError("the local control plane needs Linux: it recognises its processes by /proc")


def identify(pid: int) -> Identity | None:
    """Return the identity of a running process, None if there is none (a zombie runs no more)."""
    fields = _stat(pid)
    return None if fields is None or _has_ended(fields) else _identity(pid, fields)


def is_alive(identity: Identity) -> bool:
    """Return True while exactly this process runs; an ended child of this very process is collected on the way."""
    fields = _stat(identity.pid)
    if fields is None or int(fields[19]) != identity.started_ticks or _boot() != identity.boot:
        return False
    if _has_ended(fields):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)
        return False
    return True


def start(argv: Sequence[str], *, log: Path, mark: str, environ: Mapping[str, str]) -> Identity:
    """Start a program in a session of its own, with its output appended to `log`, and return its identity.

    Raises:
        LocalClusterError: It cannot be started, or was gone before it could be looked at.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    output = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        pid = os.posix_spawn(
            argv[0],
            list(argv),
            {**environ, MARK: mark},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), output, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    except OSError as error:
        raise LocalClusterError(f"cannot start {argv[0]}: {error.strerror}") from error
    fields = _stat(pid)  # even an ended child stays readable until it is collected
    if fields is None:
        raise LocalClusterError(f"{argv[0]} ended at once: see {log}")
    identity = _identity(pid, fields)
    # The kernel lets us go on a moment before the new program's environment can be read: whoever looks for the mark
    # from here on must find it.
    while identify(pid) == identity and not _environment(pid):
        os.sched_yield()
    return identity


def marked(mark: str) -> tuple[Identity, ...]:
    """Return every running process that carries the mark: what was started with it, and their children."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and wanted in _environment(int(entry.name)).split(b"\0"):
            identity = identify(int(entry.name))
            if identity is not None:
                found.append(identity)
    return tuple(found)


def session_of(pid: int) -> int | None:
    """Return the session id of a process, None once it is gone."""
    fields = _stat(pid)
    return int(fields[3]) if fields is not None else None


def send(identity: Identity, number: signal.Signals) -> None:
    """Send a signal to exactly this process; nothing happens if it has ended."""
    if is_alive(identity):
        with contextlib.suppress(ProcessLookupError):  # it may end between the look and the signal
            os.kill(identity.pid, number)


def end(identities: Iterable[Identity], clock: SystemClock, *, grace_s: float) -> None:
    """End processes and wait until each is gone: SIGTERM, and SIGKILL for those still there after `grace_s`."""
    left = [identity for identity in identities if is_alive(identity)]
    for identity in left:
        send(identity, signal.SIGTERM)
        send(identity, signal.SIGCONT)  # a stopped process could not even hear the first
    left = _wait(left, clock, grace_s)
    for identity in left:
        send(identity, signal.SIGKILL)
    left = _wait(left, clock, 10.0)
    if left:
        pids = ", ".join(str(identity.pid) for identity in left)
        raise LocalClusterError(f"processes {pids} do not end even on SIGKILL")


def _wait(identities: list[Identity], clock: SystemClock, most_s: float) -> list[Identity]:
    deadline_s = clock.monotonic_s() + most_s
    while True:
        left = [identity for identity in identities if is_alive(identity)]
        if not left or clock.monotonic_s() >= deadline_s:
            return left
        clock.sleep_blocking(_POLL_S)


def _environment(pid: int) -> bytes:
    """Return the environment a process was started with, b"" where it is gone or somebody else's."""
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


def _identity(pid: int, fields: list[str]) -> Identity:
    return Identity(pid=pid, started_ticks=int(fields[19]), boot=_boot())


def _has_ended(fields: list[str]) -> bool:
    """Return True for a zombie without threads: until the last thread is gone, files and ports stay open."""
    state, threads = fields[0], int(fields[17])
    return state == "X" or (state == "Z" and threads <= 1)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat after the name, which may itself hold blanks and parentheses."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _boot() -> str:
    return (_PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
