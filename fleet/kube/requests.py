"""What a pod requests in effect, counted as Kubernetes counts it.

Per resource: the larger of all app containers with all sidecars, and of each init container with the sidecars started
before it; pod-level `resources` replace that sum for the resources they may name; overhead is added on top. A request
left out defaults to its limit. Source: k8s.io/component-helpers resource.PodRequests and the API's defaulting. Amounts
of a resize in progress are not read: a pod counts with its desired requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from fleet import labels, quantity
from fleet.errors import QuantityError
from fleet.kube.objects import ContainerObject, PodSpecObject, Quantities
from fleet.resources import UNLIMITED, Resources, extended_of

Amounts = tuple[tuple[str, str | int | float], ...]

_DEVICE_RESOURCES = frozenset({*labels.IGNORED_BY_SCHEDULER, labels.NVIDIA_GPU})
_NOT_EXTENDED = frozenset({"cpu", "memory", *labels.IGNORED_BY_SCHEDULER})


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Effective requests of one pod.

    Attributes:
        resources: What kube-scheduler counts, nvidia.com/gpu included.
        devices: (resource, amount) of everything that speaks of GPUs, sorted, without zeros.
        problems: Amounts that cannot be read, each with container, resource and value; they count as nothing here.
    """

    resources: Resources
    devices: tuple[tuple[str, int], ...] = ()
    problems: tuple[str, ...] = ()


class _Part(NamedTuple):
    name: str
    is_sidecar: bool
    amounts: Amounts


class _Shape(NamedTuple):
    """Everything the effective request depends on, hashable: replicas of one template are counted once."""

    containers: tuple[_Part, ...]
    inits: tuple[_Part, ...]
    overhead: Amounts
    pod_requests: Amounts
    pod_limits: Amounts


def requests_of(spec: PodSpecObject) -> Requests:
    """Return the effective requests of a pod; what cannot be read is in its problems."""
    level = spec.resources
    return _effective(
        _Shape(
            tuple([_part(c) for c in spec.containers or ()]),
            tuple([_part(c) for c in spec.init_containers or ()]),
            _items(spec.overhead),
            _items(level.requests) if level else (),
            _items(level.limits) if level else (),
        )
    )


def _part(container: ContainerObject) -> _Part:
    amounts: Amounts = ()
    resources = container.resources
    if resources is not None:
        requests, limits = resources.requests, resources.limits
        amounts = _items(requests if not limits else {**limits, **requests} if requests else limits)
    return _Part(container.name, container.restart_policy == "Always", amounts)


def _items(amounts: Quantities | None) -> Amounts:
    return tuple(amounts.items()) if amounts else ()


@lru_cache(maxsize=8192)
def _effective(shape: _Shape) -> Requests:
    problems: list[str] = []
    total = _by_phase(shape, problems)
    _apply_pod_level(total, shape, problems)
    _add(total, read_milli(shape.overhead, "overhead", problems))
    amounts = {name: milli if name == "cpu" else -(-milli // 1000) for name, milli in total.items()}
    for name, amount in amounts.items():
        if amount > UNLIMITED:
            problems.append(f"{name}: {amount} is beyond any machine")
            amounts[name] = UNLIMITED
    return Requests(
        resources=Resources(
            milli_cpu=amounts.get("cpu", 0),
            memory_bytes=amounts.get("memory", 0),
            pod_slots=1,
            extended=extended_of({name: n for name, n in amounts.items() if name not in _NOT_EXTENDED}),
        ),
        devices=extended_of({name: n for name, n in amounts.items() if name in _DEVICE_RESOURCES}),
        problems=tuple(problems),
    )


def _by_phase(shape: _Shape, problems: list[str]) -> dict[str, int]:
    """Return the peak over init and run phases in thousandths, before pod-level resources and overhead."""
    running: dict[str, int] = {}
    for part in shape.containers:
        _add(running, read_milli(part.amounts, f"container {part.name}", problems))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for part in shape.inits:
        amounts = read_milli(part.amounts, f"init container {part.name}", problems)
        if part.is_sidecar:
            _add(running, amounts)
            _add(sidecars, amounts)
            phase = sidecars
        else:
            _add(amounts, sidecars)
            phase = amounts
        _raise_to(peak, phase)
    _raise_to(running, peak)
    return running


def _apply_pod_level(total: dict[str, int], shape: _Shape, problems: list[str]) -> None:
    """Let pod-level requests replace the containers' sum, and pod-level limits stand in where there is no sum."""
    requests = _pod_level(read_milli(shape.pod_requests, "pod resources", problems))
    limits = _pod_level(read_milli(shape.pod_limits, "pod resources", problems))
    total.update(requests | {name: milli for name, milli in limits.items() if name not in total | requests})


def _pod_level(amounts: Mapping[str, int]) -> dict[str, int]:
    return {
        name: milli for name, milli in amounts.items() if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def read_milli(amounts: Iterable[tuple[str, str | int | float]], owner: str, problems: list[str]) -> dict[str, int]:
    """Return resource name -> thousandths, the precision the API server stores; unreadable ones go to `problems`."""
    readable: dict[str, int] = {}
    for name, value in amounts:
        read, scale = _reader(name)
        try:
            readable[name] = read(value if isinstance(value, str) else str(value)) * scale
        except QuantityError as error:
            problems.append(f"{owner}: {name}: {error}")
    return readable


def _reader(name: str) -> tuple[Callable[[str], int], int]:
    if name in _DEVICE_RESOURCES or name.startswith(labels.NVIDIA_MIG_PREFIX):
        return quantity.whole, 1000
    return quantity.milli, 1


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = max(total.get(name, 0), amount)
