"""Plain books beside a simulation: is anything given twice, and could a refused pod have been placed after all?

Loops over integers and shares no line with the index or its peers, so that a fault there cannot hide itself here.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleet.device import DeviceAsk
from fleet.node import Node
from fleet.pod import Berth, Pod


class _Left:
    """What is left on one node."""

    __slots__ = ("memory_bytes", "milli_cpu", "milli_gpu", "models", "name", "pod_slots")

    def __init__(self, node: Node) -> None:
        self.name = node.name
        self.milli_cpu = node.allocatable.milli_cpu
        self.memory_bytes = node.allocatable.memory_bytes
        self.pod_slots = node.allocatable.pod_slots
        self.milli_gpu = {device.id: 1000 for device in node.devices}
        self.models = {device.id: device.model for device in node.devices}

    def lacks_amounts(self, pod: Pod) -> bool:
        wanted = pod.requests
        return (
            wanted.milli_cpu > self.milli_cpu
            or wanted.memory_bytes > self.memory_bytes
            or wanted.pod_slots > self.pod_slots
        )

    def able(self, ask: DeviceAsk) -> list[str]:
        return [
            name
            for name, left in self.milli_gpu.items()
            if left >= ask.milli_gpu and (not ask.models or self.models[name] in ask.models)
        ]


class Tally:
    """Books of a simulation over openb nodes and pods: CPU, memory, pod slots, milli-GPU per device, models."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        """Start from empty nodes."""
        self._left = {node.name: _Left(node) for node in nodes}
        self._berths: dict[str, Berth] = {}
        self.faults: list[str] = []
        self.allocated_milli_gpu = 0

    def book(self, pod: Pod, berth: Berth) -> None:
        """Book the pod; whatever the node or a device does not have is noted in `faults`."""
        left = self._left.get(berth.node)
        if left is None:
            self.faults.append(f"{pod.name}: no node {berth.node}")
            return
        self._berths[pod.uid] = berth
        if left.lacks_amounts(pod):
            self.faults.append(f"{pod.name}: {berth.node} has not enough CPU, memory or pod slots")
        left.milli_cpu -= pod.requests.milli_cpu
        left.memory_bytes -= pod.requests.memory_bytes
        left.pod_slots -= pod.requests.pod_slots
        ask = pod.ask
        if ask is None:
            return
        able = left.able(ask)
        is_as_asked = len(berth.devices) == len(set(berth.devices)) == ask.count
        if not is_as_asked or any(name not in able for name in berth.devices):
            self.faults.append(f"{pod.name}: {berth.node} cannot give devices {','.join(berth.devices)}")
        for name in berth.devices:
            left.milli_gpu[name] = left.milli_gpu.get(name, 0) - ask.milli_gpu
        self.allocated_milli_gpu += ask.milli_gpu * len(berth.devices)

    def unbook(self, pod: Pod, berth: Berth) -> None:
        """Undo `book`; a device that would have more than it is, is noted in `faults`."""
        left = self._left[berth.node]
        left.milli_cpu += pod.requests.milli_cpu
        left.memory_bytes += pod.requests.memory_bytes
        left.pod_slots += pod.requests.pod_slots
        ask = pod.ask
        if ask is None:
            return
        for name in berth.devices:
            left.milli_gpu[name] += ask.milli_gpu
            if left.milli_gpu[name] > 1000:
                self.faults.append(f"{pod.name}: device {name} of {berth.node} got more back than it gave")
        self.allocated_milli_gpu -= ask.milli_gpu * len(berth.devices)

    def move(self, pod: Pod, source: Berth, target: Berth) -> None:
        """Book a move: the new berth first, so that for a moment the pod holds both."""
        if self._berths.get(pod.uid) != source:
            self.faults.append(f"{pod.name}: moved from {source.node}, where it is not")
            return
        self.book(pod, target)
        left = self._left[source.node]
        left.milli_cpu += pod.requests.milli_cpu
        left.memory_bytes += pod.requests.memory_bytes
        left.pod_slots += pod.requests.pod_slots
        if pod.ask is not None:
            for name in source.devices:
                left.milli_gpu[name] += pod.ask.milli_gpu
            self.allocated_milli_gpu -= pod.ask.milli_gpu * len(source.devices)

    def where_it_fits(self, pod: Pod) -> str | None:
        """Return the first node that could hold the pod now, None if there is none."""
        for left in self._left.values():
            if left.lacks_amounts(pod):
                continue
            if pod.ask is None or len(left.able(pod.ask)) >= pod.ask.count:
                return left.name
        return None
