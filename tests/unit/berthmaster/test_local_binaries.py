"""Where programs are looked for, and what is passed over with a word."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from berthmaster.local import binaries, pins
from berthmaster.local.pins import BINARIES, Pins
from fleet.errors import LocalClusterError

PINS = Pins(tools=Path("/tools"), kubernetes="v1.37.2", etcd="v3.6.16", kwok="v0.8.0", go="1.26.0")
GOOD = {"etcd": "etcd Version: 3.6.16\nGit SHA: x\n", "kwok": "kwok version v0.8.0 go1.26.8 (linux/amd64)"}
NAMES = [binary.name for binary in BINARIES]

Fake = Callable[..., Path]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Write a program that prints a version into a folder of the given name, and return the folder."""

    def write(folder: str, *names: str, says: str | None = None) -> Path:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        for name in names:
            text = GOOD.get(name, "Kubernetes v1.37.2") if says is None else says
            (path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
            (path / name).chmod(0o755)
        return path

    return write


def search(cache: Path, **environ: str) -> binaries.Search:
    return binaries.look_up(PINS, environ={"PATH": "", **environ}, cache=cache)


def test_assets_come_before_path_and_path_before_the_cache(fake: Fake) -> None:
    assets = fake("assets", "etcd")
    path = fake("path", "etcd", "kwok")
    cache = fake("cache", *NAMES)
    found = search(cache, KUBEBUILDER_ASSETS=str(assets), PATH=str(path) + os.pathsep + os.environ["PATH"]).found
    assert found["etcd"] == assets / "etcd"
    assert found["kwok"] == path / "kwok"
    assert found["kube-apiserver"] == cache / "kube-apiserver"


def test_what_is_nowhere_is_missing_in_build_order(fake: Fake) -> None:
    result = search(fake("cache", "etcd", "kubectl"))
    assert [binary.name for binary in result.missing] == NAMES[1:-1]
    assert not result.remarks


@pytest.mark.parametrize(
    ("name", "says", "suits"),
    [
        ("kube-apiserver", "Kubernetes v1.37.0", True),
        ("kube-apiserver", "Kubernetes v1.36.3", False),
        ("kube-apiserver", "Kubernetes v2.37.2", False),
        ("kube-apiserver", "no version here", False),
        ("etcd", "etcd Version: 3.6.2", True),
        ("etcd", "etcd Version: 3.5.21", False),
        ("kwok", "kwok version v0.8.1 go1.27.0 (linux/amd64)", True),
        ("kwok", "kwok version v0.7.0 go1.24.0 (linux/amd64)", False),
        ("kubectl", "Client Version: v1.36.9", True),
        ("kubectl", "Client Version: v1.38.0", True),
        ("kubectl", "Client Version: v1.35.0", False),
    ],
)
def test_a_wrong_version_is_passed_over_with_a_word(fake: Fake, name: str, says: str, suits: bool) -> None:
    folder = fake("path", name, says=says)
    result = search(fake("cache", *NAMES), PATH=str(folder) + os.pathsep + os.environ["PATH"])
    assert (result.found[name].parent == folder) is suits
    remarks = [remark for remark in result.remarks if str(folder) in remark]
    assert len(remarks) == (0 if suits else 1)
    assert suits or says in remarks[0]


def test_a_program_that_cannot_run_is_passed_over(fake: Fake) -> None:
    folder = fake("assets")
    (folder / "etcd").write_bytes(b"\x7fELF not really")
    (folder / "etcd").chmod(0o755)
    (folder / "kwok").write_text("not executable")
    cache = fake("cache", *NAMES)
    result = search(cache, KUBEBUILDER_ASSETS=str(folder))
    assert result.found["etcd"] == cache / "etcd"
    assert result.found["kwok"] == cache / "kwok"
    assert len(result.remarks) == 2
    assert all("does not tell its version" in remark for remark in result.remarks)


def test_the_pins_are_those_of_the_checkout() -> None:
    found = pins.read_pins()
    text = (pins.TOOLS / "kube" / "go.mod").read_text()
    assert f"k8s.io/kubernetes {found.kubernetes}" in text
    assert pins.release(found.go) >= (1, 24)
    for binary in BINARIES:
        assert binary.package in (pins.TOOLS / binary.folder / "go.mod").read_text()
        assert found.version(binary) in found.key


def test_without_the_checkout_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterError, match="from a checkout"):
        pins.read_pins(tmp_path)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("v1.37.2", (1, 37, 2)), ("go1.26.8", (1, 26, 8)), ("v1.37.2-rc.1", (1, 37, 2)), ("", ()), ("devel", ())],
)
def test_releases_are_read_from_any_spelling(text: str, numbers: tuple[int, ...]) -> None:
    assert pins.release(text) == numbers
