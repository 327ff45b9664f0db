"""Builds the programs that are nowhere to be found, one by one, from the pinned Go modules."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from berthmaster.local import locks, processes, toolchain
from berthmaster.local.children import ended, interruptible
from berthmaster.local.pins import Binary, Pins, release
from berthmaster.local.progress import Report, Tell
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError

_POLL_S = 0.2
_VERSION_PACKAGE = "k8s.io/component-base/version"


def build_all(
    missing: Sequence[Binary],
    pins: Pins,
    *,
    cache: Path,
    home: Path,
    environ: Mapping[str, str],
    report: Report,
    clock: SystemClock,
) -> dict[str, Path]:
    """Build programs into the cache and return their paths; a second builder waits for the first and takes over.

    Args:
        missing: What to build, in order.
        pins: Where the go.mod files are and what they pin.
        cache: Folder of the finished programs.
        home: Folder for a Go toolchain, should there be none.
        environ: Environment of the builds.
        report: Where the progress is shown.
        clock: To wait on.

    Raises:
        LocalClusterError: A build failed; nothing half-built is left, and the message names the log.
    """
    total_s = sum(binary.expected_s for binary in missing)
    names = ", ".join(binary.name for binary in missing)
    report.note(
        f"Building {names} once, into {cache}: about {max(1, round(total_s / 60))} min on two cores. "
        "Release binaries on PATH or in $KUBEBUILDER_ASSETS would be used instead."
    )
    built: dict[str, Path] = {}
    busy = "Somebody else is building into this cache: waiting for it"
    with interruptible(), locks.hold(cache / ".lock", clock, waiting=lambda: report.note(busy)):
        _sweep(cache, clock)
        go = None
        for number, binary in enumerate(missing, start=1):
            target = cache / binary.name
            if not target.exists():  # the builder before may have made it
                go = go or toolchain.find_or_install(pins.go, home=home, environ=environ, report=report, clock=clock)
                title = f"Building {binary.name} {pins.version(binary)} ({number} of {len(missing)})"
                _build(binary, pins, target, title=title, go=go, environ=environ, report=report, clock=clock)
            built[binary.name] = target
    return built


def command(binary: Binary, pins: Pins, *, go: Path, output: Path) -> list[str]:
    """Return the command line that builds one program."""
    return [
        str(go),
        "build",
        "-p=2",  # more at a time needs more memory than small machines have: the API server alone peaks at 2.3 GB
        "-v",
        "-mod=readonly",
        "-buildvcs=false",
        "-trimpath",
        f"-ldflags={_link_flags(binary, pins)}",
        "-o",
        str(output),
        binary.package,
    ]


def _build(
    binary: Binary,
    pins: Pins,
    target: Path,
    *,
    title: str,
    go: Path,
    environ: Mapping[str, str],
    report: Report,
    clock: SystemClock,
) -> None:
    log = target.with_name(f"{binary.name}.log")
    temporary = target.with_name(f".{binary.name}.{os.getpid()}.new")
    try:
        with report.step(title, expected_s=binary.expected_s) as tell, log.open("wb") as output:
            process = subprocess.Popen(
                command(binary, pins, go=go, output=temporary),
                cwd=pins.tools / binary.folder,
                env={**environ, "CGO_ENABLED": "0", "GOWORK": "off", processes.MARK: str(target.parent)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that its compilers end with it
            )
            with ended(process):
                _watch(process, log, tell, clock)
            if process.returncode != 0 or not temporary.exists():
                raise LocalClusterError(f"building {binary.name} failed: see {log}\n{_tail(log)}")
        temporary.chmod(0o755)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _sweep(cache: Path, clock: SystemClock) -> None:
    """Remove what a builder left that was killed outright; whoever holds the lock is the only builder."""
    processes.end(processes.marked(str(cache)), clock, grace_s=0.0)
    for temporary in cache.glob(".*.new"):
        temporary.unlink()


def _watch(process: subprocess.Popen[bytes], log: Path, tell: Tell, clock: SystemClock) -> None:
    while process.poll() is None:
        packages = log.read_bytes().count(b"\n")
        tell(None, f"{packages} packages")
        clock.sleep_blocking(_POLL_S)


def _link_flags(binary: Binary, pins: Pins) -> str:
    if binary.folder != "kube":
        return "-s -w"
    major, minor = release(pins.kubernetes)[:2]
    # Without these /version says v0.0.0, and clients that read it object.
    values = {"gitVersion": pins.kubernetes, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s", "-w", *(f"-X {_VERSION_PACKAGE}.{name}={value}" for name, value in values.items())])


def _tail(log: Path) -> str:
    return "\n".join(f"  {line}" for line in log.read_text(errors="replace").strip().splitlines()[-5:])
