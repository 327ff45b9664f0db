"""Reports from the field, replayed through decode, ledger, index, pin patch and back. See cases/README.md.

Two reports of the same collection are tested elsewhere: what Filter answers to unusable node lists belongs to the
extender's tests, and a repeated bind call cannot happen, because no bind verb is offered: kube-scheduler binds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from binpack.check import check
from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet import labels
from fleet.plan import Placement, Plan, Unplaced
from fleet.pod import Berth
from fleet.resources import UNLIMITED
from tests.support.berthing import Harbour
from tests.support.builders import node_json, pod_json

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
_NEVER_LIMITS = {"cpu": str(UNLIMITED // 1000), "memory": str(UNLIMITED), "pods": "1000"}
_NODE_NOTES = {"dead": labels.UNHEALTHY_DEVICES, "mig": labels.MIG_DEVICES, "islands": labels.ISLANDS}
_POD_NOTES = {"devices": labels.DEVICES, "profile": labels.MIG_PROFILE}
_RESOURCES = {"whole": labels.GPU, "milli": labels.GPU_MILLI, "mib": labels.GPU_MEMORY_MIB}


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_field_case(path: Path) -> None:
    """Invariant after every step: the watching ledger equals a fresh one."""
    story = yaml.safe_load(path.read_text())
    case = _Case()
    for node in story["nodes"]:
        case.node(node)
    for step in story["steps"]:
        right = step.pop("right", {})
        ((verb, argument),) = step.items()
        getattr(case, verb)(argument)
        case.expect(right)
        if case.harbour.is_watching:
            case.harbour.check()


class _Case:
    """The verbs of the case files."""

    def __init__(self) -> None:
        self.harbour = Harbour()
        self.answers: dict[str, Placement | Unplaced] = {}
        self.planned: dict[str, Berth] = {}
        self.violations: list[Mapping[str, Any]] = []

    def node(self, words: Mapping[str, Any]) -> None:
        shared = {labels.DEVICE_SHARING: "true"}
        if "memory_mib" in words:
            shared[labels.GPU_MEMORY] = str(words["memory_mib"])
        if "model" in words:
            shared[labels.GPU_PRODUCT] = words["model"]
        amounts = _NEVER_LIMITS | {name: str(words[name]) for name in ("cpu", "memory") if name in words}
        self.harbour.set_node(
            node_json(
                words["name"],
                gpus=words["gpus"],
                allocatable_gpus=words.get("allocatable"),
                allocatable=amounts,
                labels=shared | words.get("labels", {}),
                annotations={name: words[key] for key, name in _NODE_NOTES.items() if key in words},
            )
        )

    def list(self, pods: list[Mapping[str, Any]]) -> None:
        for words in pods:
            self.bound(words)

    def bound(self, words: Mapping[str, Any]) -> None:
        self.harbour.set_pod(_pod(words))

    def create(self, words: Mapping[str, Any]) -> None:
        self.harbour.set_pod(_pod(words))
        self.retry([words["name"]])

    def retry(self, names: list[str]) -> None:
        for name in names:
            self.answers[name] = self.harbour.berth(name)

    def batch(self, pods: list[Mapping[str, Any]]) -> None:
        for words in pods:
            self.harbour.set_pod(_pod(words))
        self.answers |= self.harbour.berth_all([words["name"] for words in pods])

    def delete(self, name: str) -> None:
        self.harbour.delete_pod(name)
        self.answers.pop(name, None)

    def lost(self, _: object) -> None:
        self.harbour.is_watching = False

    def relist(self, _: object) -> None:
        self.harbour.relist()

    def restart(self, _: object) -> None:
        self.harbour.restart()

    def plan(self, words: Mapping[str, Any]) -> None:
        self.harbour.set_pod(_pod(words))
        node, _, devices = words["onto"].partition("/")
        self.planned[words["name"]] = Berth(node=node, devices=tuple(devices.split(",")))

    def check_plan(self, _: object) -> None:
        ledger = self.harbour.ledger
        pods = [self.harbour.pod(name) for name in self.planned]
        placements = tuple(Placement(pod_uid=pod.uid, berth=self.planned[pod.name]) for pod in pods)
        states = {name: _state(ledger, name) for name in ledger.names()}
        self.violations = [
            {"node": v.node, "rule": v.rule, "wanted": v.wanted, "free": v.free}
            for v in check(states, pods, Plan(placements=placements))
        ]

    def expect(self, right: Mapping[str, Any]) -> None:
        for what, answer in right.items():
            expectation: Callable[[Any], None] = getattr(self, f"_{what}")
            expectation(answer)

    def _placed(self, berths: Mapping[str, str]) -> None:
        for name, text in berths.items():
            answer = self.answers[name]
            assert isinstance(answer, Placement), f"{name}: {answer}"
            assert f"{answer.berth.node}/{','.join(answer.berth.devices)}" == text

    def _unplaced(self, names: list[str]) -> None:
        for name in names:
            answer = self.answers[name]
            assert isinstance(answer, Unplaced), f"{name}: {answer}"

    def _reason(self, reasons: Mapping[str, str]) -> None:
        for name, text in reasons.items():
            answer = self.answers[name]
            assert isinstance(answer, Unplaced), f"{name}: {answer}"
            reason, _, detail = text.partition(": ")
            assert answer.reason.value == reason
            assert detail in answer.detail

    def _islands_of(self, islands: Mapping[str, str]) -> None:
        """Compare the devices of several pods together, as a set."""
        for names, text in islands.items():
            answers = [self.answers[name] for name in names.split(" ")]
            given = {device for one in answers if isinstance(one, Placement) for device in one.berth.devices}
            assert any(given == set(island.split(",")) for island in text.split(";")), f"{names}: {given}"

    def _placed_count(self, count: int) -> None:
        assert sum(isinstance(answer, Placement) for answer in self.answers.values()) == count

    def _unplaced_count(self, count: int) -> None:
        assert sum(isinstance(answer, Unplaced) for answer in self.answers.values()) == count

    def _used_milli(self, amounts: Mapping[str, int]) -> None:
        assert {device: self.harbour.used(device)[0] for device in amounts} == amounts

    def _used_mib(self, amounts: Mapping[str, int]) -> None:
        assert {device: self.harbour.used(device)[1] for device in amounts} == amounts

    def _free_milli(self, amounts: Mapping[str, int]) -> None:
        assert {device: self._device(device).free_milli for device in amounts} == amounts

    def _free_mib(self, amounts: Mapping[str, int]) -> None:
        assert {device: self._device(device).free_mib for device in amounts} == amounts

    def _warns(self, words: list[str]) -> None:
        warnings = self.harbour.ledger.warnings()
        assert any(all(word in warning for word in words) for warning in warnings), warnings

    def _violation(self, wanted: Mapping[str, Any]) -> None:
        assert self.violations == [wanted]

    def _pinned_by_name(self, pins: Mapping[str, str]) -> None:
        for name, node in pins.items():
            required = self.harbour.pods[name]["spec"]["affinity"]["nodeAffinity"]
            terms = required["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
            assert labels.HOSTNAME not in str(self.harbour.patches[name])

    def _device(self, name: str) -> Any:
        node, _, device = name.partition("/")
        return next(d for d in _state(self.harbour.ledger, node).devices if d.device.id == device)


def _state(ledger: Ledger, name: str) -> NodeState:
    state = ledger.state(name)
    assert state is not None
    return state


def _pod(words: Mapping[str, Any]) -> dict[str, Any]:
    node = words.get("node")
    is_terminating = words.get("terminating", False)
    spec: dict[str, Any] = {} if node else {"schedulingGates": [{"name": labels.PLAN_GATE}]}
    if "init" in words:
        spec["initContainers"] = [_container(f"init-{i}", part) for i, part in enumerate(words["init"])]
    if "scheduler" in words:
        spec["schedulerName"] = words["scheduler"]
    return pod_json(
        words["name"],
        node=node,
        containers=[_container(f"c{i}", part) for i, part in enumerate(words.get("containers", [words]))],
        annotations={name: words[key] for key, name in _POD_NOTES.items() if key in words} or None,
        phase=words.get("phase", "Running" if node else "Pending"),
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_terminating else None,
        **spec,
    )


def _container(name: str, words: Mapping[str, Any]) -> dict[str, Any]:
    requests = {_RESOURCES[key]: str(words[key]) for key in _RESOURCES if key in words}
    requests |= {key: words[key] for key in ("cpu", "memory") if key in words}
    return {"name": name, "resources": {"requests": requests}}
