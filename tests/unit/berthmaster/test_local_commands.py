"""The commands where there is no cluster, or a broken record of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from berthmaster.commands import down, status, up
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import Options
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
