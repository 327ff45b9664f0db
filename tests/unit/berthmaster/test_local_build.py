"""Builds with a stand-in for Go: whole programs or none in the cache, whatever goes wrong."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from berthmaster.local import build, processes, toolchain
from berthmaster.local.pins import BINARIES, Pins, read_pins
from berthmaster.local.progress import Silent
from fleet.clock import SystemClock
from fleet.errors import LocalClusterError

ETCD = BINARIES[0]
# Prints a package line, then does what the test says; $out is the file after -o.
GO = """#!/bin/sh
if [ "$1" = env ]; then echo {version}; exit; fi
for argument; do if [ "$before" = -o ]; then out=$argument; fi; before=$argument; done
echo "$@" >> {calls}
echo package/one
{action}
"""

Write = Callable[..., Path]


class Interrupting(SystemClock):
    """Stands for Ctrl-C in the middle of a wait."""

    def sleep_blocking(self, seconds: float) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def pins(tmp_path: Path) -> Pins:
    (tmp_path / "tools" / "etcd").mkdir(parents=True)
    return Pins(tools=tmp_path / "tools", kubernetes="v1.37.2", etcd="v3.6.16", kwok="v0.8.0", go="1.26.0")


@pytest.fixture
def go(tmp_path: Path) -> Write:
    def write(action: str, *, version: str = "go1.26.8") -> dict[str, str]:
        folder = tmp_path / "go-bin"
        folder.mkdir(exist_ok=True)
        (folder / "go").write_text(GO.format(action=action, version=version, calls=tmp_path / "calls"))
        (folder / "go").chmod(0o755)
        return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}

    return write


def run(pins: Pins, tmp_path: Path, environ: dict[str, str], clock: SystemClock | None = None) -> dict[str, Path]:
    return build.build_all(
        [ETCD],
        pins,
        cache=tmp_path / "cache",
        home=tmp_path / "home",
        environ=environ,
        report=Silent(),
        clock=clock or SystemClock(),
    )


def cached(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "cache").iterdir()}


def compilers(tmp_path: Path) -> tuple[processes.Identity, ...]:
    """What still runs of a build; the kernel takes a moment to bury what was killed."""
    for _ in range(10_000):
        if not (left := processes.marked(str(tmp_path / "cache"))):
            break
        os.sched_yield()
    return left


def test_a_built_program_is_whole_and_executable(pins: Pins, tmp_path: Path, go: Write) -> None:
    built = run(pins, tmp_path, go('echo whole > "$out"'))
    assert built == {"etcd": tmp_path / "cache" / "etcd"}
    assert built["etcd"].read_text() == "whole\n"
    assert os.access(built["etcd"], os.X_OK)
    assert cached(tmp_path) == {"etcd", "etcd.log"}
    assert "package/one" in (tmp_path / "cache" / "etcd.log").read_text()


def test_a_failed_build_names_its_log_and_leaves_nothing(pins: Pins, tmp_path: Path, go: Write) -> None:
    with pytest.raises(LocalClusterError) as caught:
        run(pins, tmp_path, go('echo half > "$out"; echo "no space left"; exit 1'))
    assert str(tmp_path / "cache" / "etcd.log") in str(caught.value)
    assert "no space left" in str(caught.value)
    assert cached(tmp_path) == {"etcd.log"}


def test_a_build_that_says_it_worked_but_wrote_nothing_has_failed(pins: Pins, tmp_path: Path, go: Write) -> None:
    with pytest.raises(LocalClusterError, match="building etcd failed"):
        run(pins, tmp_path, go("exit 0"))
    assert cached(tmp_path) == {"etcd.log"}


def test_an_interrupted_build_leaves_no_file_and_no_compiler(pins: Pins, tmp_path: Path, go: Write) -> None:
    environ = go('echo half > "$out"; sleep 300 & sleep 300')
    with pytest.raises(KeyboardInterrupt):
        run(pins, tmp_path, environ, Interrupting())
    assert cached(tmp_path) <= {"etcd.log"}
    assert compilers(tmp_path) == ()


def test_what_a_killed_builder_left_is_swept_away(pins: Pins, tmp_path: Path, go: Write) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / ".etcd.1.new").write_text("half")
    orphan = processes.start(["/bin/sleep", "300"], log=tmp_path / "orphan.log", mark=str(cache), environ=os.environ)
    run(pins, tmp_path, go('echo whole > "$out"'))
    assert cached(tmp_path) == {"etcd", "etcd.log"}
    assert not processes.is_alive(orphan)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_builder_cleans_up_too(pins: Pins, tmp_path: Path, go: Write, number: signal.Signals) -> None:
    class Terminated(SystemClock):
        def sleep_blocking(self, seconds: float) -> None:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with pytest.raises(SystemExit):
        run(pins, tmp_path, go('echo half > "$out"; sleep 300'), Terminated())
    assert cached(tmp_path) <= {"etcd.log"}
    assert compilers(tmp_path) == ()
    assert signal.getsignal(number) is before


def test_two_builders_do_not_collide_and_the_second_takes_over(pins: Pins, tmp_path: Path, go: Write) -> None:
    environ = go('sleep 0.3; echo whole > "$out"')
    threads = [threading.Thread(target=run, args=(pins, tmp_path, environ)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert cached(tmp_path) == {"etcd", "etcd.log"}


def test_the_command_pins_versions_into_kubernetes_programs() -> None:
    pins = read_pins()
    for binary in BINARIES:
        line = build.command(binary, pins, go=Path("/go"), output=Path("/out"))
        assert line[-1] == binary.package
        assert ("gitVersion=" + pins.kubernetes in " ".join(line)) is (binary.folder == "kube")


def test_an_old_go_is_passed_over_with_a_word_for_the_installed_one(pins: Pins, tmp_path: Path, go: Write) -> None:
    environ = go("exit 1", version="go1.22.1")
    installed = tmp_path / "home" / "go" / "bin" / "go"
    installed.parent.mkdir(parents=True)
    installed.write_text("#!/bin/sh\necho go1.26.3\n")
    installed.chmod(0o755)
    notes: list[str] = []
    report = Silent()
    report.note = notes.append  # type: ignore[method-assign]
    found = toolchain.find_or_install(
        "1.26.0", home=tmp_path / "home", environ=environ, report=report, clock=SystemClock()
    )
    assert found == installed
    assert "go1.22.1" in notes[0]


def test_a_failed_installation_leaves_nothing_and_says_what_to_do(tmp_path: Path, go: Write) -> None:
    environ = go("exit 1", version="go1.22.1")
    environ |= {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0", "UV_INDEX_URL": "http://127.0.0.1:9/"}
    with pytest.raises(LocalClusterError, match=r"install Go 1\.26\.0 or newer"):
        toolchain.find_or_install(
            "1.26.0", home=tmp_path / "home", environ=environ, report=Silent(), clock=SystemClock()
        )
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["go-install.log"]
