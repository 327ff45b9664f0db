"""What a person wrote in a WarmPool, as values: the last guard behind the API server's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet import labels, quantity
from fleet.errors import ConfigError, QuantityError
from fleet.fields import FieldReader, shown
from fleet.resources import Resources, extended_of
from warmpool.values import Costs, HitRate, Image, Mode, Objective, Offer, PoolSpec, ProviderKind, Shape, Static

LONGEST_NAME = 40
MOST_NODES = 1000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_DIGEST = re.compile(r"sha256:[a-f0-9]{64}", re.ASCII)
# What a registry's client and the kubelet take; nothing that could mean more than a name in a command or a path.
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}", re.ASCII)
_READERS = {"cpu": quantity.milli, "memory": quantity.units, "pods": quantity.units}
_NEEDED_SETTINGS = {
    ProviderKind.KARPENTER: ("nodeClassGroup", "nodeClassKind", "nodeClassName"),
    ProviderKind.MACHINE_DEPLOYMENT: ("namespace", "name"),
}
# These cannot say which node goes, so they cannot replace an old one.
_CANNOT_ROTATE = frozenset({ProviderKind.CAPACITY_BUFFER, ProviderKind.ADOPT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Serves:
    """Whose draws the pool serves: pods labelled berthmaster.dev/pool=NAME, and those that this names.

    Attributes:
        namespaces: Empty = nobody is named but by the label.
        match_labels: Labels that a pod must carry as well, sorted by name.
    """

    namespaces: tuple[str, ...] = ()
    match_labels: tuple[tuple[str, str], ...] = ()

    def names(self, namespace: str, pod_labels: Mapping[str, str]) -> bool:
        """Return True if a pod there with these labels is named."""
        return namespace in self.namespaces and all(pod_labels.get(name) == text for name, text in self.match_labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The whole spec.

    Attributes:
        pool: What nodes are wanted.
        pull_namespace: Where the pods run that pull its images: the pull secrets must be there.
        serves: Whose draws count.
        history_query: PromQL of the nodes drawn within a minute, for the time before the pool; "" = none.
    """

    pool: PoolSpec
    pull_namespace: str = labels.PULL_NAMESPACE
    serves: Serves = Serves()
    history_query: str = ""


def spec_of(name: str, spec: Mapping[str, Any]) -> Spec:
    """Return all that a spec says; defaults are those of the custom resource definition.

    Raises:
        ConfigError: With every field that cannot be read or that contradicts another.
    """
    reader = FieldReader()
    size = reader.part(spec, "size")
    provider = reader.part(spec, "provider")
    pull = reader.part(spec, "pull")
    serves = reader.part(spec, "serves")
    objective, idle_cost = _objective(reader, reader.part(spec, "objective"))
    pool = PoolSpec(
        name=name,
        shape=_shape(reader, reader.part(spec, "shape")),
        images=tuple(_image(reader, path, item) for path, item in reader.items(spec, "images")),
        pull_secrets=reader.texts(pull, "pull.secrets"),
        models=reader.texts(spec, "models"),
        min_nodes=reader.whole(size, "size.min", 0),
        max_nodes=reader.whole(size, "size.max"),
        objective=objective,
        provider=reader.word(provider, "provider.kind", ProviderKind),
        provider_settings=dict(reader.pairs(provider, "provider.settings")),
        mode=reader.word(spec, "mode", Mode, Mode.OBSERVE),
        expire_after_s=reader.duration_s(spec, "expireAfter"),
        surge_nodes=reader.whole(reader.part(spec, "rotation"), "rotation.surge", 1),
        warm_timeout_s=reader.duration_s(spec, "warmTimeout"),
        idle_hour_cost=reader.number(spec, "idleHourCost", idle_cost),
    )
    read = Spec(
        pool=pool,
        pull_namespace=reader.text(pull, "pull.namespace", labels.PULL_NAMESPACE),
        serves=Serves(
            namespaces=reader.texts(serves, "serves.namespaces"),
            match_labels=reader.pairs(serves, "serves.matchLabels"),
        ),
        history_query=reader.text(reader.part(spec, "history"), "history.query", ""),
    )
    if not reader.problems:
        # Where a field could not be read, what stands in for it would only add problems that are none.
        reader.problems.extend(problems(read))
    if reader.problems:
        raise ConfigError(reader.problems)
    return read


def problems(spec: Spec) -> list[str]:
    """Return what contradicts itself or cannot be done, naming fields and values."""
    pool, found = spec.pool, []
    if len(pool.name) > LONGEST_NAME or not _NAME.fullmatch(pool.name):
        found.append(f"name {shown(pool.name)}: at most {LONGEST_NAME} of a-z, 0-9 and - (it stands in names of nodes)")
    if not 0 <= pool.min_nodes <= pool.max_nodes:
        found.append(f"size.min {pool.min_nodes} is above size.max {pool.max_nodes}: 0 <= min <= max must hold")
    if not 1 <= pool.max_nodes <= MOST_NODES:
        found.append(f"size.max must be from 1 to {MOST_NODES}, got {pool.max_nodes}")
    found.extend(_objective_problems(pool))
    for image in pool.images:
        found.extend(_image_problems(image))
    if pool.surge_nodes < 1:
        found.append(f"rotation.surge must be at least 1, got {pool.surge_nodes}")
    for name, value in (("expireAfter", pool.expire_after_s), ("warmTimeout", pool.warm_timeout_s)):
        if value is not None and value <= 0:
            found.append(f"{name} must be above 0")
    found.extend(_provider_problems(pool))
    if pool.idle_hour_cost < 0:
        found.append(f"idleHourCost must be at least 0, got {pool.idle_hour_cost:g}")
    if not _NAME.fullmatch(spec.pull_namespace):
        found.append(f"pull.namespace cannot be {shown(spec.pull_namespace)}")
    if spec.serves.match_labels and not spec.serves.namespaces:
        found.append("serves.matchLabels without serves.namespaces names nobody")
    return found


def _provider_problems(pool: PoolSpec) -> list[str]:
    found = []
    missing = [name for name in _NEEDED_SETTINGS.get(pool.provider, ()) if not pool.provider_settings.get(name)]
    if missing:
        found.append(f"provider {pool.provider} needs the settings {', '.join(missing)}")
    if "selector" in pool.provider_settings:
        found.append(
            f"nodes are adopted by the label {labels.POOL} alone: label them instead of provider.settings.selector"
        )
    if pool.provider is ProviderKind.KWOK and pool.shape.allocatable == Resources():
        found.append("provider kwok makes the node itself: give shape.resources")
    if pool.expire_after_s is not None and pool.provider in _CANNOT_ROTATE:
        found.append(f"expireAfter cannot be kept: provider {pool.provider} cannot replace a node that is named")
    return found


def _image_problems(image: Image) -> list[str]:
    found = []
    if not _REFERENCE.fullmatch(image.reference):
        found.append(f"images[].reference cannot be {shown(image.reference)}")
    if image.digest and not _DIGEST.fullmatch(image.digest):
        found.append(f"images[].digest must be sha256: and 64 hexadecimal digits, got {shown(image.digest)}")
    if image.digest and "@" in image.reference:
        found.append(f"images[].reference {image.reference} holds a digest already: give it in digest alone")
    return found


def _objective_problems(pool: PoolSpec) -> list[str]:
    match pool.objective:
        case HitRate(goal_ratio=goal) if not 0.5 <= goal <= 0.9999:
            return [f"objective.hitRate must be from 0.5 to 0.9999, got {goal:g}"]
        case Costs(per_miss=miss, per_idle_hour=idle) if not (miss > 0 and idle > 0):
            return [f"objective.missCost {miss:g} and idleCost {idle:g} must be above 0"]
        case Static(count=count) if not pool.min_nodes <= count <= pool.max_nodes:
            return [f"objective.static {count} lies outside size.min {pool.min_nodes} to size.max {pool.max_nodes}"]
    return []


def _objective(reader: FieldReader, part: Mapping[str, Any]) -> tuple[Objective, float]:
    """Return what the size is chosen by, and the cost of an idle hour that it tells."""
    given = [
        name
        for name, keys in (("hitRate", ("hitRate",)), ("costs", ("missCost", "idleCost")), ("static", ("static",)))
        if any(part.get(key) is not None for key in keys)
    ]
    if len(given) > 1:
        reader.problems.append("objective is one of hitRate, missCost with idleCost, and static")
    if given == ["costs"]:
        costs = Costs(
            per_miss=reader.number(part, "objective.missCost"), per_idle_hour=reader.number(part, "objective.idleCost")
        )
        return costs, costs.per_idle_hour
    if given == ["static"]:
        return Static(count=reader.whole(part, "objective.static")), 0.0
    return HitRate(goal_ratio=reader.number(part, "objective.hitRate", 0.99)), 0.0


def _shape(reader: FieldReader, part: Mapping[str, Any]) -> Shape:
    devices = reader.part(part, "shape.devices")
    offers = tuple(
        Offer(zone=reader.text(item, f"{path}.zone", ""), capacity_type=reader.text(item, f"{path}.capacityType", ""))
        for path, item in reader.items(part, "shape.offers")
    )
    shape = Shape(
        instance_type=reader.text(part, "shape.instanceType", ""),
        allocatable=_resources(reader, reader.part(part, "shape.resources")),
        device_resource=reader.text(devices, "shape.devices.resource", labels.NVIDIA_GPU),
        devices=reader.whole(devices, "shape.devices.count", 0),
        device_model=reader.text(devices, "shape.devices.model", ""),
        labels=reader.pairs(part, "shape.labels"),
        offers=tuple(dict.fromkeys(offers)) or (Offer(),),
    )
    if shape.devices < 0:
        reader.problems.append(f"shape.devices.count must be at least 0, got {shape.devices}")
    if not shape.instance_type and shape.allocatable == Resources() and not shape.devices:
        reader.problems.append("shape says nothing: give instanceType, resources or devices")
    return shape


def _resources(reader: FieldReader, part: Mapping[str, Any]) -> Resources:
    amounts: dict[str, int] = {}
    for name, value in part.items():
        try:
            amounts[name] = _READERS.get(name, quantity.whole)(str(value))
        except QuantityError as error:
            reader.problems.append(f"shape.resources.{shown(name)}: {error}")
    rest = {name: amount for name, amount in amounts.items() if name not in ("cpu", "memory", "pods")}
    return Resources(
        milli_cpu=amounts.get("cpu", 0),
        memory_bytes=amounts.get("memory", 0),
        pod_slots=amounts.get("pods", 0),
        extended=extended_of(rest),
    )


def _image(reader: FieldReader, path: str, item: Mapping[str, Any]) -> Image:
    return Image(reference=reader.text(item, f"{path}.reference"), digest=reader.text(item, f"{path}.digest", ""))
