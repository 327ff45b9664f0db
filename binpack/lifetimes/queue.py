"""Pods that wait, and which of them a node can take now.

Whenever something leaves a node, waiting pods are tried there, each that fits. That is enough to find whoever can be
placed: a pod waits only while no node can take it, so what has changed for it is that one node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from binpack.demand import in_turn
from fleet.device import WHOLE_MILLI, DeviceAsk
from fleet.node import Node
from fleet.pod import Berth, Pod
from fleet.resources import Resources

Shape = tuple[Resources, DeviceAsk | None]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that waits; `number` counts arrivals."""

    number: int
    at_s: float
    pod: Pod
    life_s: float


class Queue:
    """Waiting pods by shape, and books of what is free on each node."""

    def __init__(self, nodes: Sequence[Node], shapes: Sequence[Shape], *, is_in_turn: bool = False) -> None:
        """Start with empty nodes and nobody waiting.

        Args:
            nodes: All nodes.
            shapes: Every shape of pod that will come; constraints other than amounts and models are not known here.
            is_in_turn: Who is first of those that fit is decided as by the planner, those of one shape by arrival;
                else all are by arrival.
        """
        self._is_in_turn = is_in_turn
        self._number = {shape: number for number, shape in enumerate(shapes)}
        self._waiting: list[deque[Waiting]] = [deque() for _ in shapes]
        self._amounts = np.array([_amounts(requests) for requests, _ in shapes], np.int64).reshape(-1, 3)
        asks = [ask for _, ask in shapes]
        self._count = np.array([ask.count if ask else 0 for ask in asks], np.int64)
        self._milli = np.array([ask.milli_gpu if ask else 0 for ask in asks], np.int64)
        self._has_waiting = np.zeros(len(shapes), np.bool_)
        self._row = {node.name: row for row, node in enumerate(nodes)}
        self._position = {node.name: {device.id: p for p, device in enumerate(node.devices)} for node in nodes}
        self._free = np.array([_amounts(node.allocatable) for node in nodes], np.int64).reshape(-1, 3)
        width = max((len(node.devices) for node in nodes), default=0)
        self._residual = np.full((len(nodes), width), -1, np.int64)
        self._allowed = np.zeros((len(nodes), len(shapes), width), np.bool_)
        by_models: dict[tuple[str, ...], np.ndarray] = {}
        for row, node in enumerate(nodes):
            models = tuple(device.model for device in node.devices)
            self._residual[row, : len(models)] = WHOLE_MILLI
            if models not in by_models:
                by_models[models] = np.array(
                    [[ask is not None and (not ask.models or m in ask.models) for m in models] for ask in asks],
                    np.bool_,
                ).reshape(len(shapes), len(models))
            self._allowed[row, :, : len(models)] = by_models[models]

    def __len__(self) -> int:
        """Return how many pods wait."""
        return sum(map(len, self._waiting))

    def __iter__(self) -> Iterator[Pod]:
        """Iterate over the waiting pods."""
        return (waiting.pod for line in self._waiting for waiting in line)

    def kinds(self) -> list[tuple[Pod, int]]:
        """Return one waiting pod of each shape, and how many of it wait."""
        return [(line[0].pod, len(line)) for line in self._waiting if line]

    def is_waiting(self, pod: Pod) -> bool:
        """Return whether a pod of this shape waits already, so that no node can take it."""
        return bool(self._has_waiting[self._number[pod.requests, pod.ask]])

    def add(self, waiting: Waiting) -> None:
        """Let a pod wait that no node can take."""
        number = self._number[waiting.pod.requests, waiting.pod.ask]
        self._waiting[number].append(waiting)
        self._has_waiting[number] = True

    def pop_fitting(self, node: str, now_s: float) -> Waiting | None:
        """Return the first of the pods that the node can take now, and let it wait no more."""
        row = self._row[node]
        fits = self._has_waiting & (self._amounts <= self._free[row]).all(axis=1)
        if not fits.any():
            return None
        able = ((self._residual[row] >= self._milli[:, None]) & self._allowed[row]).sum(axis=1)
        found = np.flatnonzero(fits & (able >= self._count))
        if not len(found):
            return None
        firsts = [self._waiting[shape][0] for shape in found.tolist()]
        if self._is_in_turn:
            return self.pop(min(firsts, key=lambda one: in_turn(one.pod, now_s - one.at_s)).pod)
        return self.pop(min(firsts, key=lambda one: one.number).pod)

    def first(self, pod: Pod) -> Pod:
        """Return the pod of this shape that has waited longest; one waits."""
        return self._waiting[self._number[pod.requests, pod.ask]][0].pod

    def pop(self, pod: Pod) -> Waiting:
        """Return the pod of this shape that has waited longest, and let it wait no more; one waits."""
        number = self._number[pod.requests, pod.ask]
        first = self._waiting[number].popleft()
        self._has_waiting[number] = bool(self._waiting[number])
        return first

    def take(self, pod: Pod, berth: Berth) -> None:
        """Book the pod."""
        self._book(pod, berth, -1)

    def give_back(self, pod: Pod, berth: Berth) -> None:
        """Undo `take`."""
        self._book(pod, berth, 1)

    def _book(self, pod: Pod, berth: Berth, sign: int) -> None:
        row = self._row[berth.node]
        number = self._number[pod.requests, pod.ask]
        self._free[row] += sign * self._amounts[number]
        positions = self._position[berth.node]
        for device in berth.devices:
            self._residual[row, positions[device]] += sign * self._milli[number]


def shape_of(pod: Pod) -> Shape:
    """Return what pods must have in common to wait in one line."""
    return pod.requests, pod.ask


def _amounts(resources: Resources) -> tuple[int, int, int]:
    return resources.milli_cpu, resources.memory_bytes, resources.pod_slots
