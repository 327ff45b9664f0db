"""The programs of the control plane: found where they already are, else built once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from berthmaster.local import build
from berthmaster.local.layout import cache_home
from berthmaster.local.pins import BINARIES, Binary, Pins, read_pins, release
from berthmaster.local.progress import Report
from fleet.clock import SystemClock

_ASSETS = "KUBEBUILDER_ASSETS"
_VERSION_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Every program's path, and the Kubernetes version they are pinned to."""

    paths: Mapping[str, Path]
    kubernetes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What was found, what must be built, and a word on everything that was passed over."""

    found: Mapping[str, Path]
    missing: tuple[Binary, ...]
    remarks: tuple[str, ...]


def ensure(report: Report, *, environ: Mapping[str, str] = os.environ, clock: SystemClock | None = None) -> Binaries:
    """Return all programs, building those that are nowhere to be found.

    Raises:
        LocalClusterError: A build failed (the message names its log), or the checkout is not there.
    """
    pins = read_pins()
    home = cache_home(environ)
    cache = home / "bin" / pins.key
    search = look_up(pins, environ=environ, cache=cache)
    for remark in search.remarks:
        report.note(remark)
    paths = dict(search.found)
    if search.missing:
        built = build.build_all(
            search.missing, pins, cache=cache, home=home, environ=environ, report=report, clock=clock or SystemClock()
        )
        paths.update(built)
    return Binaries(paths=paths, kubernetes=pins.kubernetes)


def version_of(path: Path) -> str:
    """Return what a program says of its version, "" if it cannot be asked."""
    arguments = ["version", "--client"] if path.name == "kubectl" else ["--version"]
    try:
        done = subprocess.run(
            [str(path), *arguments], capture_output=True, text=True, timeout=_VERSION_S, check=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def look_up(pins: Pins, *, environ: Mapping[str, str], cache: Path, ask: Callable[[Path], str] = version_of) -> Search:
    """Search $KUBEBUILDER_ASSETS, then PATH, then the cache.

    The cache is trusted, because only whole builds get there; the other two are asked for their version, and a program
    of another minor release than the pinned one is passed over (kubectl may be one minor release off, as its version
    skew policy allows).
    """
    found: dict[str, Path] = {}
    missing: list[Binary] = []
    remarks: list[str] = []
    for binary in BINARIES:
        for source, path in _places(binary, environ):
            answer = ask(path)
            if _suits(binary, answer, pins.version(binary)):
                found[binary.name] = path
                break
            says = f"is {_first_line(answer)}" if answer else "does not tell its version"
            remarks.append(f"{binary.name} from {source} passed over: {path} {says}, wanted {pins.version(binary)}")
        else:
            cached = cache / binary.name
            if os.access(cached, os.X_OK):
                found[binary.name] = cached
            else:
                missing.append(binary)
    return Search(found=found, missing=tuple(missing), remarks=tuple(remarks))


def _places(binary: Binary, environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    places = []
    assets = environ.get(_ASSETS, "")
    if assets and (Path(assets) / binary.name).exists():
        places.append((f"${_ASSETS}", Path(assets).absolute() / binary.name))
    on_path = shutil.which(binary.name, path=environ.get("PATH", ""))
    if on_path is not None:
        places.append(("PATH", Path(on_path).absolute()))
    return places


def _suits(binary: Binary, answer: str, pinned: str) -> bool:
    have, want = release(answer)[:2], release(pinned)[:2]
    if len(have) < len(want):
        return False
    if binary.name == "kubectl":
        return have[0] == want[0] and abs(have[1] - want[1]) <= 1
    return have == want


def _first_line(answer: str) -> str:
    return answer.strip().splitlines()[0][:80]
