"""A harbour for tests: the API's JSON objects, and the way of a pod through decode, ledger, index, pin and binding."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from binpack import fit
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet import labels
from fleet.kube.decode import node_from, pod_from
from fleet.kube.patches import pin_patch
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Pod
from tests.support.builders import node_object, pod_object


class Harbour:
    """The API as dictionaries, and one watching planner's ledger and index, fed through the real decoder.

    Whatever a test does, `check` compares the watching ledger with one of a fresh process and recounts every device
    from the JSON objects, sharing no line with the ledger.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.patches: dict[str, list[dict[str, Any]]] = {}
        self.is_watching = True
        self._start()

    def _start(self) -> None:
        self.ledger = Ledger()
        self.index = Index()

    # -- the API changes, and the watch tells of it while it is not lost ---------------------------------------

    def set_node(self, obj: Mapping[str, Any]) -> None:
        """Create or replace a node."""
        self.nodes[obj["metadata"]["name"]] = copy.deepcopy(dict(obj))
        if self.is_watching:
            self.ledger.set_node(node_from(node_object(obj), ()))

    def delete_node(self, name: str) -> None:
        """Delete a node; the objects of its pods stay."""
        del self.nodes[name]
        if self.is_watching:
            self.ledger.remove_node(name)

    def set_pod(self, obj: Mapping[str, Any]) -> None:
        """Create or replace a pod."""
        self.pods[obj["metadata"]["name"]] = copy.deepcopy(dict(obj))
        if self.is_watching:
            self.ledger.set_pod(pod_from(pod_object(obj)))

    def delete_pod(self, name: str) -> None:
        """Delete a pod's object."""
        obj = self.pods.pop(name)
        if self.is_watching:
            self.ledger.remove_pod(obj["metadata"]["uid"])

    def relist(self) -> None:
        """List again after the watch was lost, and drop what is no longer there, as the reflector does."""
        self.is_watching = True
        known = {uid for name in self.ledger.names() for uid in self.ledger.pods_on(name)}
        for uid in known - {obj["metadata"]["uid"] for obj in self.pods.values()}:
            self.ledger.remove_pod(uid)
        for name in set(self.ledger.names()) - set(self.nodes):
            self.ledger.remove_node(name)
        for node in self.nodes.values():
            self.ledger.set_node(node_from(node_object(node), ()))
        for pod in self.pods.values():
            self.ledger.set_pod(pod_from(pod_object(pod)))

    def restart(self) -> None:
        """Forget everything and list, as a new process does."""
        self._start()
        self.is_watching = True
        self.relist()

    # -- the way of a pod --------------------------------------------------------------------------------------

    def pod(self, name: str) -> Pod:
        """Return the pod as it is read now."""
        return pod_from(pod_object(self.pods[name]))

    def place(self, name: str) -> Placement | Unplaced:
        """Ask the index for a berth; `fit` must agree with the answer, whichever it is."""
        self.refresh()
        pod = self.pod(name)
        answer = self.index.place(pod)
        states = [state for node in self.ledger.names() if (state := self.ledger.state(node)) is not None]
        if isinstance(answer, Placement):
            state = self.ledger.state(answer.berth.node)
            assert state is not None
            assert fit.refusal(pod, answer.berth, state) == ""
        elif not pod.problems:
            assert not [s.node.name for s in states if _fits(pod, s)], "left out although it fits"
        return answer

    def berth(self, name: str) -> Placement | Unplaced:
        """Plan one pod; if it has a place: assume, patch, and let the scheduler bind it."""
        answer = self.place(name)
        if isinstance(answer, Placement):
            self.settle(name, answer.berth)
        return answer

    def berth_all(self, names: Iterable[str]) -> dict[str, Placement | Unplaced]:
        """Plan a batch on the index alone, then write and bind all of it."""
        self.refresh()
        answers: dict[str, Placement | Unplaced] = {}
        for name in names:
            pod = self.pod(name)
            answers[name] = answer = self.index.place(pod)
            if isinstance(answer, Placement):
                self.index.take(pod, answer.berth)
        for name, answer in answers.items():
            if isinstance(answer, Placement):
                self.settle(name, answer.berth)
        return answers

    def settle(self, name: str, berth: Berth) -> None:
        """Write the pin as the planner does and bind as kube-scheduler does; the ledger must agree at every step."""
        pod = self.pod(name)
        self.ledger.assume(pod, berth)
        assumed = self.ledger.picture()
        obj = copy.deepcopy(self.pods[name])
        self.patches[name] = msgspec.json.decode(pin_patch(pod, berth))
        apply_patch(obj, self.patches[name])
        self.set_pod(obj)
        assert self.ledger.picture() == assumed, "the pin shows what was assumed"
        assert self.pod(name).pinned_node == berth.node
        obj["spec"]["nodeName"] = berth.node
        obj["status"]["phase"] = "Running"
        self.set_pod(obj)

    def refresh(self) -> None:
        """Carry the ledger's changes into the index."""
        for name in sorted(self.ledger.take_changed()):
            state = self.ledger.state(name)
            if state is None:
                self.index.remove_node(name)
            else:
                self.index.set_node(state)

    # -- what holds at all times -------------------------------------------------------------------------------

    def check(self) -> None:
        """Compare with a fresh process, and recount the devices of the sharing nodes from the JSON objects."""
        fresh = Ledger()
        for node in self.nodes.values():
            fresh.set_node(node_from(node_object(node), ()))
        for pod in self.pods.values():
            fresh.set_pod(pod_from(pod_object(pod)))
        assert self.ledger.picture() == fresh.picture(), "a fresh process would see something else"

    def used(self, device: str) -> tuple[int, int]:
        """Return milli-GPU and MiB of "node/device" that the JSON objects say are in use: a plain recount."""
        node, _, wanted = device.partition("/")
        milli = mib = 0
        for obj in self.pods.values():
            given = obj["metadata"].get("annotations", {}).get(labels.DEVICES, "")
            is_ended = obj["status"]["phase"] in ("Succeeded", "Failed")
            if obj["spec"].get("nodeName") != node or is_ended or wanted not in given.split(","):
                continue
            milli += 1000 * (_peak(obj, labels.GPU) > 0) + _peak(obj, labels.GPU_MILLI)
            mib += _peak(obj, labels.GPU_MEMORY_MIB)
        return milli, mib


def _fits(pod: Pod, state: NodeState) -> bool:
    return fit.mismatch(pod, state.node) is None and fit.devices_for(pod, state) is not None


def _peak(obj: Mapping[str, Any], resource: str) -> int:
    def of(container: Mapping[str, Any]) -> int:
        return int(container.get("resources", {}).get("requests", {}).get(resource, 0))

    spec = obj["spec"]
    return max([sum(of(c) for c in spec["containers"])] + [of(c) for c in spec.get("initContainers", [])])


def apply_patch(obj: Any, operations: Iterable[Mapping[str, Any]]) -> None:
    """Apply the RFC 6902 operations that the planner writes; a test that does not hold is an AssertionError."""
    for operation in operations:
        *parents, last = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
        target = obj
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        key: Any = last
        if isinstance(target, list):
            key = len(target) if last == "-" else int(last)
        match operation["op"]:
            case "test":
                found = target.get(key) if isinstance(target, dict) else target[key]
                assert found == operation["value"], operation
            case "add" if isinstance(target, list):
                target.insert(key, operation["value"])
            case "add":
                target[key] = operation["value"]
            case "remove":
                del target[key]
            case other:
                raise AssertionError(f"operation {other} is not one the planner writes")
