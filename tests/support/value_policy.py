"""The class-value policy written down once more in plain loops: slow, obvious, and sharing no line with the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import floor

from binpack.index import Mix, Weights
from binpack.state import NodeState
from fleet.device import AskKind, DeviceAsk
from fleet.pod import Pod

SMALLEST_CPU = 1
TIE = 1e-3 / 8000


@dataclass(frozen=True, slots=True)
class Kind:
    """A typical single-GPU shape with its weights."""

    milli_cpu: int
    milli: int
    models: tuple[str, ...]
    by_demand: float
    by_smallness: float


def kinds(mix: Mix) -> list[Kind]:
    """Return the typical single-GPU shapes with both weights."""
    shapes = [(shape, n) for shape, n in mix.typical() if shape.count == 1 and shape.milli_gpu > 0]
    demand = sum(n * shape.milli_gpu for shape, n in shapes)
    small = sum(n * (max(shape.milli_gpu, 100) / 1000) ** -3 for shape, n in shapes)
    return [
        Kind(
            milli_cpu=max(SMALLEST_CPU, shape.milli_cpu),
            milli=shape.milli_gpu,
            models=shape.models,
            by_demand=n * shape.milli_gpu / demand,
            by_smallness=n * (max(shape.milli_gpu, 100) / 1000) ** -3 / small,
        )
        for shape, n in shapes
    ]


def phi(
    typical: Sequence[Kind],
    values: Sequence[float],
    model: str,
    milli_cpu: int,
    residuals: Sequence[int],
    plenty: float = 1.0,
) -> float:
    """Return Phi of one node by its definition, term by term; `plenty` is 1 where CPU is not scarce, else 0."""
    weights = Weights()
    welcome = [kind for kind in typical if not kind.models or model in kind.models]
    share = sum(kind.by_demand for kind in welcome)
    cpu_of_all = sum(kind.by_demand * kind.milli_cpu / kind.milli for kind in welcome)
    total, value = sum(residuals), sum(values[r] for r in residuals)
    found = -weights.device_value * value
    many = plenty * max(0.0, 1 - 1000 / value) if value else 0.0
    if welcome:
        found += weights.stranded_cpu * many * max(0.0, value * share - milli_cpu * share**2 / cpu_of_all)
    for kind in typical:
        excluded = bool(kind.models) and model not in kind.models
        fits = milli_cpu >= kind.milli_cpu and any(r >= kind.milli for r in residuals) and not excluded
        waste = sum(r for r in residuals if r < kind.milli) if fits else total
        found += weights.fragment * kind.by_smallness * waste
        if excluded:
            continue
        stranded = max(0.0, value - milli_cpu * kind.milli / kind.milli_cpu)
        found += weights.stranded_cpu * (1 - many) * kind.by_demand * stranded
        fit = min(floor(milli_cpu / kind.milli_cpu), sum(floor(r / kind.milli) for r in residuals))
        found += weights.left_over * kind.by_demand * (total - kind.milli * fit)
    return found


def residuals_of(state: NodeState) -> list[int]:
    """Return what the potential may count on, device by device."""
    found = []
    for device in state.devices:
        left = max(0, min(1000, device.free_milli)) if device.device.is_healthy and not state.blocked else 0
        if device.device.memory_mib is not None and device.free_mib is not None:
            left = min(left, floor(1000 * max(0, device.free_mib) / device.device.memory_mib))
        found.append(left)
    return found


def options(pod: Pod, state: NodeState) -> list[tuple[tuple[int, ...], list[int]]]:
    """Return (device positions, residuals after) for every choice of devices that the node allows, in openb's terms."""
    wanted, ask = pod.requests, pod.ask
    free = state.free
    if wanted.milli_cpu > free.milli_cpu or wanted.memory_bytes > free.memory_bytes or free.pod_slots < 1:
        return []
    before = residuals_of(state)
    if ask is None:
        return [((), before)]
    if ask.kind is AskKind.CLASSIC or not state.node.is_sharing:
        return []
    able = [p for p, d in enumerate(state.devices) if _gives(ask, d.device.model, before[p], d.users)]
    return [
        (chosen, [left - ask.milli_gpu if p in chosen else left for p, left in enumerate(before)])
        for chosen in combinations(able, ask.count)
    ]


def _gives(ask: DeviceAsk, model: str, left: int, users: int) -> bool:
    return (not ask.models or model in ask.models) and left >= ask.milli_gpu and not (ask.is_whole and users)


def plenty_of_cpu(mix: Mix, states: Sequence[NodeState]) -> float:
    """Return 1 where CPU is not scarce: less, by quarters, as the mix wants from 90 % of the CPU on, 0 from all."""
    with_devices = [state.node for state in states if state.devices]
    cpu = sum(node.allocatable.milli_cpu for node in with_devices)
    asked = sum(n * shape.total_milli_gpu for shape, n in mix.shapes)
    if not cpu or not asked:
        return 1.0
    scale = 1000 * sum(len(node.devices) for node in with_devices) / asked
    elsewhere = sum(state.node.allocatable.milli_cpu for state in states if not state.devices)
    wanted = scale * sum(n * shape.milli_cpu for shape, n in mix.shapes if shape.count)
    wanted += max(0.0, scale * sum(n * shape.milli_cpu for shape, n in mix.shapes if not shape.count) - elsewhere)
    quarters = round(40 * min(0.1, max(0.0, wanted / cpu - 0.9)))
    return 1 - quarters / 4


def least_costs(
    pod: Pod,
    states: Sequence[NodeState],
    mix: Mix,
    values: Sequence[float],
    levels: Mapping[str, float],
    reserved: Sequence[str] = (),
) -> dict[str, float]:
    """Return the least cost of the pod on every node that can hold it.

    Args:
        levels: Contention u by model.
        reserved: Nodes kept from this pod.
    """
    typical = kinds(mix)
    weights, plenty = Weights(), plenty_of_cpu(mix, states)
    idle = weights.idle_node_milli * plenty
    found: dict[str, float] = {}
    for state in states:
        model = state.devices[0].device.model if state.devices else ""
        before = phi(typical, values, model, state.free.milli_cpu, residuals_of(state), plenty)
        for _, after in options(pod, state):
            cost = phi(typical, values, model, state.free.milli_cpu - pod.requests.milli_cpu, after, plenty) - before
            cost += TIE * sum(after)
            if pod.ask is not None and not any(device.users for device in state.devices if device.device.is_healthy):
                cost += idle
            if pod.ask is not None:
                cost += weights.contention * max(pod.ask.total_milli_gpu, 300) * levels.get(model, 0.0)
            if state.node.name in reserved:
                cost += weights.reserved_milli
            found[state.node.name] = min(cost, found.get(state.node.name, float("inf")))
    return found
