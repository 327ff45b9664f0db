"""The commands where there is no cluster, or a broken record of one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from berthmaster.commands import down, status, up
from berthmaster.local.binaries import Binaries
from berthmaster.local.cluster import Cluster, ComponentStatus, Health, Outcome
from berthmaster.local.components import PORTS, Component, Options
from berthmaster.local.progress import Silent, Tell
from berthmaster.local.records import Record, promised_ports, write
from fleet.errors import LocalClusterError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "berthmaster"


def test_status_of_nothing_says_how_to_begin_and_exits_with_3(home: Path) -> None:
    result = CliRunner().invoke(status.command, ["--name", "none"])
    assert result.exit_code == 3
    assert "berthmaster up --name none" in result.output
    as_json = json.loads(CliRunner().invoke(status.command, ["--name", "none", "--json"]).output)
    assert (as_json["state"], as_json["components"]) == ("absent", [])
    assert (as_json["kubeconfig"], as_json["kubectl"]) == (None, None)


def test_down_of_nothing_is_no_error(home: Path) -> None:
    result = CliRunner().invoke(down.command, ["--name", "none"])
    assert result.exit_code == 0
    assert "nothing to do" in result.output
    assert not home.exists()


@pytest.mark.parametrize("command", [up.command, down.command, status.command])
def test_a_bad_name_is_refused_before_anything_happens(home: Path, command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "ensure", lambda *_, **__: pytest.fail("built programs for a cluster that cannot be"))
    result = CliRunner().invoke(command, ["--name", "../x"])
    assert isinstance(result.exception, LocalClusterError)
    assert not home.exists()


def test_nodes_and_cluster_exclude_each_other() -> None:
    result = CliRunner().invoke(up.command, ["--nodes", "3", "--cluster", "openb"])
    assert result.exit_code == 2
    assert "exclude each other" in result.output


def test_a_broken_record_is_named_and_down_removes_it(home: Path) -> None:
    record = home / "torn" / "cluster.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"ports": ')
    with pytest.raises(LocalClusterError, match="berthmaster down --name torn"):
        Cluster("torn").status()
    assert promised_ports(home) == set()
    assert Cluster("torn").down() is True
    assert not record.parent.exists()


def test_recorded_ports_are_promised_though_nothing_listens(home: Path) -> None:
    for number, name in enumerate(["a", "b"]):
        (home / name).mkdir(parents=True)
        record = Record(ports={"etcd": 20_000 + number}, options=Options(), binaries={}, kubernetes="v1.37.2")
        write(home / name / "cluster.json", record)
    assert promised_ports(home) == {20_000, 20_001}


class Steps(Silent):
    """Keeps the titles of steps."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    @contextmanager
    def step(self, title: str, *, expected_s: float = 0.0) -> Iterator[Tell]:
        self.titles.append(title)
        yield lambda ratio, words: None


class Hands:
    """A supervisor whose processes answer once they were started anew."""

    def __init__(self, silent: tuple[str, ...]) -> None:
        self.silent_names = silent
        self.ended: list[str] = []
        self.awaited: list[str] = []

    def spawn_missing(self, wanted: Sequence[Component]) -> None: ...

    def wait(self, wanted: Sequence[Component], trust: object, *, most_s: float) -> None:
        self.awaited += [component.name for component in wanted]

    def silent(self, wanted: Sequence[Component], trust: object, *, most_s: float) -> list[Component]:
        return [component for component in wanted if component.name in self.silent_names]

    def end(self, component: str) -> None:
        self.ended.append(component)


@pytest.mark.parametrize(
    ("dead", "hanging", "silent", "titles"),
    [
        pytest.param(("planner",), (), (), ["Starting planner"], id="one died"),
        pytest.param((), ("kwok",), (), [], id="one was slow"),
        pytest.param((), ("kwok",), ("kwok",), ["Starting kwok"], id="one hangs"),
        pytest.param(("planner",), ("kwok",), ("kwok",), ["Starting planner", "Starting kwok"], id="both"),
    ],
)
def test_what_is_healed_is_told_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, dead, hanging, silent, titles
) -> None:
    programs = ("etcd", "kwok", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    record = Record(
        ports={name: 21_000 + number for number, name in enumerate(PORTS)},
        options=Options(),
        binaries={name: f"/bin/{name}" for name in programs},
        kubernetes="v1.37.2",
        is_complete=True,
    )
    (home / "a").mkdir(parents=True)
    write(home / "a" / "cluster.json", record)
    cluster, hands, report = Cluster("a"), Hands(silent), Steps()

    def look(component: Component, trust: object) -> ComponentStatus:
        health = Health.NOT_ANSWERING if component.name in hanging else Health.RUNNING
        health = Health.DEAD if component.name in dead else health
        return ComponentStatus(name=component.name, health=health, pid=None, port=1, log=Path("none"))

    monkeypatch.setattr(cluster, "_supervisor", hands)
    monkeypatch.setattr(cluster, "_trust", lambda: None)
    monkeypatch.setattr(cluster, "_look", look)
    binaries = Binaries(kubernetes="v1.37.2", paths={})
    assert cluster.up(Options(), binaries, report=report) is Outcome.HEALED
    assert report.titles == titles
    assert hands.ended == list(silent)
    assert set(hands.awaited) >= {*dead, *silent}


@pytest.mark.parametrize(
    ("outcome", "created", "words"),
    [
        (Outcome.STARTED, 0, "Cluster a is up (3.0 s)."),
        (Outcome.STARTED, 8, "Cluster a is up, with 8 nodes created (3.0 s)."),
        (Outcome.HEALED, 1, "Cluster a is whole again, with 1 node created (3.0 s)."),
        (Outcome.ALREADY_RUNNING, 0, "Cluster a is already running: nothing to do (3.0 s)."),
        (Outcome.ALREADY_RUNNING, 4, "Cluster a is already running, with 4 nodes created (3.0 s)."),
    ],
)
def test_the_end_of_up_tells_what_was_done(outcome, created, words) -> None:
    assert up.closing("a", outcome, created, took_s=3.0) == f"{words} End it with: berthmaster down --name a"
