"""The small Go program around Knative's own autoscaler: found in the cache, or built once where Go is."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from berthmaster.local import locks
from berthmaster.local.children import ended
from berthmaster.local.layout import cache_home
from berthmaster.local.progress import Report
from fleet.clock import SystemClock
from fleet.errors import BerthmasterError

SOURCE = Path(__file__).with_name("kpa")
VERSION = "v0.48.0"
_SOURCES = ("go.mod", "go.sum", "main.go")
_INSTALLED = "/usr/local/go/bin"  # where Go's own instructions put it
_BUILD_S = 900.0
_POLL_S = 0.1


class RivalError(BerthmasterError):
    """A rival could not be built or broke off; the message says what to do."""


def cached(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where the program of exactly these sources lies, built or not."""
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((SOURCE / name).read_bytes())
    key = f"kpa-{digest.hexdigest()[:16]}-{sys.platform}-{platform.machine()}"
    return cache_home(environ) / "bin" / key / "kpa"


def find_go(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return a go command: on PATH, else at its usual place, else the one that the local control plane brought."""
    installed = cache_home(environ) / "go" / "bin"
    places = os.pathsep.join((environ.get("PATH", ""), _INSTALLED, str(installed)))
    found = shutil.which("go", path=places)
    return None if found is None else Path(found)


def ensure(report: Report, *, environ: Mapping[str, str] = os.environ, clock: SystemClock | None = None) -> Path | None:
    """Return the program, building it if need be; None where there is neither the program nor Go.

    Raises:
        RivalError: The build failed; the message names its log.
    """
    program = cached(environ)
    if program.exists():
        return program
    go = find_go(environ)
    if go is None:
        return None
    clock = clock or SystemClock()
    with locks.hold(program.parent / ".lock", clock):
        if not program.exists():  # another builder may have been first
            _build(go, program, environ=environ, report=report, clock=clock)
    return program


def _build(go: Path, program: Path, *, environ: Mapping[str, str], report: Report, clock: SystemClock) -> None:
    log, fresh = program.with_name("build.log"), program.with_name(f".kpa.{os.getpid()}.new")
    command = [str(go), "build", "-p=2", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags=-s -w"]
    try:
        with report.step(f"Building Knative's autoscaler {VERSION}", expected_s=60), log.open("wb") as output:
            process = subprocess.Popen(
                ["nice", "-n", "10", *command, "-o", str(fresh), "."],
                cwd=SOURCE,
                env={**environ, "CGO_ENABLED": "0", "GOWORK": "off"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with ended(process):
                deadline_s = clock.monotonic_s() + _BUILD_S
                while process.poll() is None and clock.monotonic_s() < deadline_s:
                    clock.sleep_blocking(_POLL_S)
            if process.returncode != 0 or not fresh.exists():
                raise RivalError(f"Knative's autoscaler {VERSION} could not be built with {go}: see {log}")
        fresh.replace(program)
    finally:
        fresh.unlink(missing_ok=True)
