"""Command lines and configuration: loopback only, and one list of what the scheduler must not count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from berthmaster.local import pki
from berthmaster.local.components import BALANCER, PORTS, Options, components, write_configuration
from berthmaster.local.layout import Layout
from fleet import labels
from scaler.config import sources_from

PORT = {name: 21_000 + index for index, name in enumerate(PORTS)}
PROGRAMS = {
    name: f"/bin/{name}" for name in ("etcd", "kwok", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
}
STOCK = Options(
    has_extender=False,
    has_planner=False,
    has_scaler=False,
    has_warmpool=False,
    has_policies=False,
    has_stock_scheduler=True,
)


def written(tmp_path: Path, options: Options) -> Layout:
    layout = Layout(home=tmp_path, name="a")
    layout.config.mkdir(parents=True)
    pki.write_all(layout.pki, now_s=1.8e9)
    write_configuration(layout, PORT, options, kubernetes="v1.37.2")
    return layout


def scheduler(tmp_path: Path, options: Options) -> dict:
    return yaml.safe_load((written(tmp_path, options).config / "scheduler.yaml").read_text())


def test_every_address_is_loopback(tmp_path: Path) -> None:
    for component in components(Layout(home=tmp_path, name="a"), PORT, Options(), PROGRAMS):
        line = " ".join(component.argv)
        assert not re.search(r"(?<![\d.])0\.0\.0\.0", line)
        assert "127.0.0.1" in line
        for address in re.findall(r"--(?:bind-address|advertise-address)=(\S+)", line):
            assert address == "127.0.0.1"


def test_options_say_which_processes_there_are(tmp_path: Path) -> None:
    layout = Layout(home=tmp_path, name="a")
    everything = [component.name for component in components(layout, PORT, Options(), PROGRAMS)]
    assert everything == [name for name in PORTS if name not in ("etcd-peer", "exporter")]
    assert [component.name for component in components(layout, PORT, STOCK, PROGRAMS)] == everything[:5]


def test_our_profile_sees_every_node_and_leaves_preemption_to_the_planner(tmp_path: Path) -> None:
    profiles = {profile["schedulerName"]: profile for profile in scheduler(tmp_path, Options())["profiles"]}
    assert set(profiles) == {"default-scheduler", labels.SCHEDULER_NAME}
    ours = profiles[labels.SCHEDULER_NAME]
    assert ours["percentageOfNodesToScore"] == 100
    assert ours["plugins"]["multiPoint"]["disabled"] == [{"name": "DefaultPreemption"}]


def test_the_extender_sees_every_pod_and_the_scheduler_ignores_exactly_our_resources(tmp_path: Path) -> None:
    verbs, marks = scheduler(tmp_path, Options())["extenders"]
    assert "managedResources" not in verbs
    assert verbs["urlPrefix"] == f"http://127.0.0.1:{PORT['extender']}"
    assert {verbs[name] for name in ("filterVerb", "prioritizeVerb", "preemptVerb")} == {
        "filter",
        "prioritize",
        "preempt",
    }
    assert "bindVerb" not in verbs
    assert not any(name.endswith("Verb") for name in marks)
    assert [entry["name"] for entry in marks["managedResources"]] == list(labels.IGNORED_BY_SCHEDULER)
    assert all(entry["ignoredByScheduler"] is True for entry in marks["managedResources"])


def test_without_our_extender_the_scheduler_asks_none(tmp_path: Path) -> None:
    found = scheduler(tmp_path, Options(has_extender=False))
    assert "extenders" not in found
    assert len(found["profiles"]) == 2


def test_a_stock_scheduler_is_stock(tmp_path: Path) -> None:
    assert {"profiles", "extenders"}.isdisjoint(scheduler(tmp_path, STOCK))


@pytest.mark.parametrize("client", ["planner", "extender", "kwok"])
def test_each_process_has_a_kubeconfig_of_its_own(tmp_path: Path, client: str) -> None:
    layout = written(tmp_path, Options())
    content = yaml.safe_load((layout.config / f"{client}.kubeconfig").read_text())
    assert content["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{PORT['kube-apiserver']}"
    assert content["users"][0]["name"] == client


def test_kwok_s_stages_are_yaml_with_templates_left_to_kwok(tmp_path: Path) -> None:
    layout = written(tmp_path, Options())
    stages = list(yaml.safe_load_all((layout.config / "kwok.yaml").read_text()))
    assert len({stage["metadata"]["name"] for stage in stages[1:]}) == len(stages) - 1 >= 5
    assert "{{ $now := Now }}" in stages[1]["spec"]["next"]["statusTemplate"]
    assert "kubeletVersion: v1.37.2" in stages[1]["spec"]["next"]["statusTemplate"]


def test_the_scaler_knows_the_local_balancer_and_keeps_its_history_to_its_owner(tmp_path: Path) -> None:
    config = written(tmp_path, Options()).config
    sources = sources_from(str(config / "sources.yaml"))
    assert sources.balancers[BALANCER].urls == (f"http://127.0.0.1:{PORT['exporter']}",)
    token = config / "history.token"
    assert len(token.read_text()) >= 32
    assert token.stat().st_mode & 0o077 == 0
