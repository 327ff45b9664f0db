"""KAI Scheduler's own programs: found in the cache, or built once from the module that go.mod here pins."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.scaler.rivals.kpa_program import RivalError, find_go
from berthmaster.local import locks
from berthmaster.local.children import ended, wait_for
from berthmaster.local.layout import cache_home
from berthmaster.local.progress import Report
from fleet.clock import SystemClock

SOURCE = Path(__file__).with_name("kai")
MODULE = "github.com/NVIDIA/KAI-scheduler"
PROGRAMS = ("scheduler", "binder", "podgrouper")
OBJECTS = "objects"  # folder of the definitions and queues, copied out of the module beside the programs
_DEFINITIONS = "deployments/kai-scheduler/crds"
_QUEUES = "docs/quickstart/default-queues.yaml"
_EXPECTED_S = {"scheduler": 300, "binder": 60, "podgrouper": 60}
_BUILD_S = 3600.0


def version() -> str:
    """Return the pinned version, `v0.12.0`."""
    match = re.search(rf"{re.escape(MODULE)} (v\S+)", (SOURCE / "go.mod").read_text())
    if match is None:
        raise RivalError(f"{SOURCE / 'go.mod'} pins no {MODULE}")
    return match[1]


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where programs and objects lie, built or not."""
    return cache_home(environ) / "bin" / f"kai-{version()}-{sys.platform}-{platform.machine()}"


def ensure(report: Report, clock: SystemClock, *, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the programs and objects, building what is missing: nine minutes of a processor, once.

    Raises:
        RivalError: There is no Go, or a build failed; the message names its log.
    """
    target = folder(environ)
    with locks.hold(target / ".lock", clock):
        missing = [name for name in PROGRAMS if not (target / name).exists()]
        if missing or not (target / OBJECTS).exists():
            go = find_go(environ)
            if go is None:
                raise RivalError(
                    "KAI Scheduler is built from its sources and there is no Go here: install Go 1.24 or newer"
                )
            for name in missing:
                _build(go, name, target, environ=environ, report=report, clock=clock)
            _copy_objects(go, target, environ)
    return target


def _build(
    go: Path, name: str, target: Path, *, environ: Mapping[str, str], report: Report, clock: SystemClock
) -> None:
    log, fresh = target / f"{name}.log", target / f".{name}.{os.getpid()}.new"
    command = [str(go), "build", "-p=2", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags=-s -w"]
    title = f"Building KAI Scheduler's {name} {version()}"
    try:
        with report.step(title, expected_s=_EXPECTED_S[name]), log.open("wb") as output:
            process = subprocess.Popen(
                ["nice", "-n", "10", *command, "-o", str(fresh), f"{MODULE}/cmd/{name}"],
                cwd=SOURCE,
                env={**environ, "CGO_ENABLED": "0", "GOWORK": "off"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with ended(process):
                wait_for(process, clock, most_s=_BUILD_S)
            if process.returncode != 0 or not fresh.exists():
                raise RivalError(f"KAI Scheduler's {name} {version()} could not be built with {go}: see {log}")
        fresh.replace(target / name)
    finally:
        fresh.unlink(missing_ok=True)


def _copy_objects(go: Path, target: Path, environ: Mapping[str, str]) -> None:
    """Copy definitions and queues out of the module, whole or not at all."""
    asked = subprocess.run(
        [str(go), "list", "-m", "-f", "{{.Dir}}", MODULE],
        cwd=SOURCE,
        env={**environ, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    module = Path(asked.stdout.strip())
    if asked.returncode != 0 or not (module / _QUEUES).is_file():
        raise RivalError(f"the sources of {MODULE} {version()} are not where {go} keeps modules: {asked.stderr[-300:]}")
    fresh = target / f".{OBJECTS}.{os.getpid()}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    (fresh / "definitions").mkdir(parents=True)
    for path in sorted((module / _DEFINITIONS).glob("*.yaml")):
        shutil.copyfile(path, fresh / "definitions" / path.name)
    shutil.copyfile(module / _QUEUES, fresh / "queues.yaml")
    shutil.rmtree(target / OBJECTS, ignore_errors=True)
    fresh.rename(target / OBJECTS)
