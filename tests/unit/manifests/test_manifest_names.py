"""The manifests say the same names as the code, and nothing in them is looser than it need be."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import binpack.__main__
import scaler.__main__
import warmpool.__main__
from binpack.controller.release import GATE_POLICIES, RECORD_POLICIES
from binpack.controller.service import LEASE
from binpack.extender_service import DEFAULT_LISTEN
from fleet import labels
from scaler.controller.service import LEASE as SCALER_LEASE
from warmpool.controller.service import LEASE as POOL_LEASE

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "manifests"
FILES = sorted(MANIFESTS.rglob("*.yaml"))
CONFIGS = [MANIFESTS / "base/scheduler/scheduler-config.yaml", MANIFESTS / "extender-config/scheduler-config.yaml"]
PACKAGES = {"binpack": binpack.__main__, "scaler": scaler.__main__, "warmpool": warmpool.__main__}
LOCAL_CONFIG = ROOT / "berthmaster/local/templates/scheduler.yaml"


def read(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


EXAMPLES = MANIFESTS / "examples"  # other people's namespaces: test_manifest_examples.py
OBJECTS = [(path, obj) for path in FILES if not path.is_relative_to(EXAMPLES) for obj in read(path)]


def of_kind(*kinds: str) -> list[Any]:
    found = [
        pytest.param(obj, id=f"{path.parent.name}/{obj['metadata']['name']}")
        for path, obj in OBJECTS
        if obj["kind"] in kinds and "metadata" in obj
    ]
    assert found
    return found


def test_every_name_of_ours_is_one_the_code_knows():
    names = {value for value in vars(labels).values() if isinstance(value, str)} | {LEASE}
    for path in FILES:
        for name in re.findall(rf"{re.escape(labels.DOMAIN)}/[\w-]+", path.read_text()):
            assert name in names, f"{path}: {name}"


def test_every_kustomization_lists_all_its_files():
    for path in MANIFESTS.rglob("kustomization.yaml"):
        content = read(path)[0]
        listed = {*content["resources"]}
        for generator in content.get("configMapGenerator", ()):
            listed |= {entry.partition("=")[2] for entry in generator["files"]}
        there = {entry.name for entry in path.parent.iterdir()} - {"kustomization.yaml"}
        if path.parent.name == "extender-config":
            there.remove("scheduler-config.yaml")  # merged by hand
        assert {entry for entry in listed if not entry.startswith("..")} == there, path


def test_the_only_resource_definitions_are_those_that_the_controllers_serve():
    names = [obj["metadata"]["name"] for _, obj in OBJECTS if obj["kind"] == "CustomResourceDefinition"]
    assert names == [f"{plural}.{labels.DOMAIN}" for plural in (labels.AUTOSCALER_PLURAL, labels.POOL_PLURAL)]


@pytest.mark.parametrize("obj", of_kind("ServiceAccount", "Deployment", "Role", "NetworkPolicy", "PodDisruptionBudget"))
def test_everything_of_ours_stands_in_our_namespace(obj):
    # The pods that pull images and what pools remember stand apart, and nodes' leases where Kubernetes has them.
    apart = {labels.PULL_NAMESPACE, "kube-node-lease"} if obj["kind"] == "Role" else set()
    assert obj["metadata"]["namespace"] in {labels.NAMESPACE} | apart


@pytest.mark.parametrize("obj", of_kind("ClusterRole", "Role"))
def test_no_right_is_a_wildcard_or_reads_secrets(obj):
    assert "rules" in obj or "aggregationRule" in obj
    for rule in obj.get("rules", ()):
        for part in ("apiGroups", "resources", "verbs"):
            assert "*" not in rule[part]
        own = {"configmaps"} if obj["metadata"].get("namespace") == labels.PULL_NAMESPACE else set()
        assert not ({"secrets", "configmaps", "pods/exec", "serviceaccounts/token"} - own) & set(rule["resources"])


@pytest.mark.parametrize("lease", [LEASE, SCALER_LEASE, POOL_LEASE])
def test_a_lease_is_the_one_its_holder_may_write(lease):
    (role,) = (o for _, o in OBJECTS if o["kind"] == "Role" and o["metadata"]["name"] == f"{lease}-lease")
    assert [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] == [[lease]]


def test_policies_have_the_names_that_uninstall_removes():
    def named(kind: str) -> set[str]:
        return {obj["metadata"]["name"] for _, obj in OBJECTS if obj["kind"] == kind}

    assert named("MutatingAdmissionPolicy") == named("MutatingAdmissionPolicyBinding") == set(GATE_POLICIES)
    # The latter go with the rest: each binds one controller of ours alone.
    guards = set(RECORD_POLICIES) | {
        "berthmaster-marks",
        "berthmaster-claims",
        "berthmaster-surge",
        "berthmaster-resource-claims",
    }
    guards |= {f"berthmaster-warmpool-{what}" for what in ("nodes", "pods", "pools")}
    assert named("ValidatingAdmissionPolicy") == named("ValidatingAdmissionPolicyBinding") == guards


@pytest.mark.parametrize("obj", of_kind("MutatingAdmissionPolicy"))
def test_gating_spares_what_it_depends_on(obj):
    excluded, *_ = obj["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert (excluded["key"], excluded["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
    assert set(excluded["values"]) == {"kube-system", labels.NAMESPACE}
    (rule,) = obj["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    # A JSON patch ran twice under reinvocation; an apply configuration merges.
    assert [mutation["patchType"] for mutation in obj["spec"]["mutations"]] == ["ApplyConfiguration"]


def test_each_namespace_is_selected_by_exactly_one_gating_policy():
    managed, others = (
        next(
            obj for obj in (one.values[0] for one in of_kind("MutatingAdmissionPolicy")) if obj["metadata"]["name"] == n
        )
        for n in ("berthmaster-gate-namespace", "berthmaster-gate")
    )
    selected = managed["spec"]["matchConstraints"]["namespaceSelector"]["matchLabels"]
    *_, declined = others["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert selected == {labels.MANAGED_LABEL: "true"}
    assert declined == {"key": labels.MANAGED_LABEL, "operator": "NotIn", "values": ["true"]}


@pytest.mark.parametrize("obj", of_kind("Deployment"))
def test_pods_are_locked_down_probed_and_bounded(obj):
    pod = obj["spec"]["template"]["spec"]
    assert obj["spec"]["replicas"] == 2
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("obj", of_kind("Deployment"))
def test_our_containers_are_started_as_the_command_understands(obj):
    for container in obj["spec"]["template"]["spec"]["containers"]:
        if not container["image"].startswith("berthmaster:"):
            continue
        name, *arguments = container["args"]
        package = PACKAGES[container.get("command", ["binpack"])[-1]]
        command = package.main.commands[name]
        context = command.make_context(name, list(arguments))
        assert isinstance(context, click.Context)
        ports = {port["containerPort"] for port in container["ports"]}
        listened = {
            int(value.rpartition(":")[2])
            for key, value in context.params.items()
            if key.endswith("listen") and not value.startswith("127.")
        }
        assert listened == ports


def test_all_images_of_ours_have_the_version_of_the_project():
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    images = {image for path in FILES for image in re.findall(r"image: (berthmaster\S+)", path.read_text())}
    assert images == {f"berthmaster:{version[1]}"}


@pytest.mark.parametrize("path", [*CONFIGS, LOCAL_CONFIG], ids=lambda path: path.parent.name)
def test_the_scheduler_ignores_exactly_the_resources_we_keep_the_books_of(path):
    config = yaml.safe_load(path.read_text())
    managed = [resource for entry in config["extenders"] for resource in entry.get("managedResources", ())]
    assert {r["name"] for r in managed if r.get("ignoredByScheduler")} == set(labels.IGNORED_BY_SCHEDULER)
    assert {r["name"] for r in managed if not r.get("ignoredByScheduler")} <= {labels.NVIDIA_GPU}
    assert all("bindVerb" not in entry for entry in config["extenders"])
    assert all(entry["nodeCacheCapable"] for entry in config["extenders"] if "filterVerb" in entry)
    (profile,) = (p for p in config["profiles"] if p["schedulerName"] == labels.SCHEDULER_NAME)
    disabled = [entry for point in profile["plugins"].values() for entry in point["disabled"]]
    assert disabled == [{"name": "DefaultPreemption"}]
    assert 100 in (profile.get("percentageOfNodesToScore"), config.get("percentageOfNodesToScore"))


def test_the_scheduler_asks_the_extender_where_it_listens():
    config = read(CONFIGS[0])[0]
    assert {entry["urlPrefix"] for entry in config["extenders"]} == {f"http://{DEFAULT_LISTEN}"}
