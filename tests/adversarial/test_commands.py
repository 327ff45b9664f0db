"""Commands against outputs that take nothing, and inputs that are none: one line, status 1, no trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-c", "from berthmaster.cli import main; main()")
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def run(*words: str, out: int | None = None) -> tuple[int, str]:
    """Return status and what was said on stderr."""
    done = subprocess.run([*COMMAND, *words], stdout=out, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def test_a_full_disk_is_an_error_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        status, said = run("simulate", "--arrive", "0.001", out=full.fileno())
    assert status == 1
    assert said.splitlines()[-1] == "berthmaster: No space left on device"


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    program = "from berthmaster import root; root.root = lambda: open({!r}); root.run()"
    place = str(tmp_path / "file" / "below")
    done = subprocess.run(
        [sys.executable, "-c", program.format(place)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (1, f"berthmaster: {place}: Not a directory\n")


@pytest.mark.parametrize(
    "row",
    [
        "a,-5,1,1,500,",
        "a,nan,1,1,500,",
        "a,1,1,1,1e9,",
        "a,1,1,99999999999999999999,1000,",
        "a,1,1,1,1500,",
        "a,1,1",
        ",,,,,",
        "a,1,1,1,0,",
    ],
)
def test_a_trace_that_cannot_be_is_named_with_its_line(tmp_path: Path, row: str) -> None:
    (tmp_path / "p.csv").write_text(HEAD + row + "\n")
    status, said = run("simulate", "--pods", str(tmp_path / "p.csv"), "--arrive", "0.001")
    assert status == 1
    assert "p.csv line 2" in said


@pytest.mark.parametrize("number", ["nan", "inf", "-1", "1e9"])
@pytest.mark.parametrize("flag", ["--arrive", "--lifetimes", "--moves-ratio"])
def test_a_number_beyond_reason_is_refused_before_anything_is_done(flag: str, number: str) -> None:
    status, said = run("simulate", flag, number)
    assert status in (1, 2)
    assert number.rstrip("9").split("e")[0] in said
