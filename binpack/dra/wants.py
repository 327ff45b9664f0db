"""What a claim asks, joined with its device classes: ready to be looked for on nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from binpack.dra.amounts import consumed
from binpack.dra.pools import Cell
from binpack.dra.selectors import Selectors, Trouble
from fleet.dra import Config, DeviceClass, DeviceConstraint, DeviceDemand, DeviceOption, DeviceRequest, DeviceTaint

_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Way:
    """One way to satisfy a request: all selectors it takes, and what it is called in an allocation."""

    title: str
    option: DeviceOption
    selectors: tuple[str, ...]
    device_class: DeviceClass


@dataclass(frozen=True, slots=True)
class Want:
    """One claim to be allocated."""

    uid: str
    ways: tuple[tuple[Way, ...], ...]
    demand: DeviceDemand

    @property
    def constraints(self) -> tuple[DeviceConstraint, ...]:
        """Return what must agree or differ between devices."""
        return self.demand.constraints


class NoSuchClassError(LookupError):
    """A request names a device class that does not exist."""


def want_of(uid: str, demand: DeviceDemand, classes: Mapping[str, DeviceClass]) -> Want:
    """Return the claim's wish.

    Raises:
        NoSuchClassError: With the name of the class.
    """
    return Want(uid, tuple(tuple(_ways(request, classes)) for request in demand.requests), demand)


def _ways(request: DeviceRequest, classes: Mapping[str, DeviceClass]) -> list[Way]:
    found: list[Way] = []
    for option in request.options:
        device_class = classes.get(option.class_name)
        if device_class is None:
            raise NoSuchClassError(option.class_name)
        selectors = device_class.selectors + option.selectors
        found.append(Way(request.title(option), option, selectors, device_class))
    return found


def covers(constraint: DeviceConstraint, title: str) -> bool:
    """Return True if the constraint is about devices of this request (`request` or `request/subrequest`)."""
    return not constraint.requests or title in constraint.requests or title.split("/")[0] in constraint.requests


def suitable(way: Way, cells: Sequence[Cell], selectors: Selectors, troubles: list[Trouble]) -> tuple[Cell, ...]:
    """Return the devices that the way allows, whoever has them now.

    Args:
        way: What is asked.
        cells: Devices that the node reaches.
        selectors: Judges expressions.
        troubles: Receives why some devices could not be judged; they count as unfit.
    """
    found: list[Cell] = []
    for cell in cells:
        if cell.device.unknown or not is_tolerated(way.option, cell.taints):
            continue
        if not _selected(way, cell, selectors, troubles):
            continue
        if consumed(cell.device, way.option.capacity) is not None:
            found.append(cell)
    return tuple(found)


def _selected(way: Way, cell: Cell, selectors: Selectors, troubles: list[Trouble]) -> bool:
    for expression in way.selectors:
        verdict = cell.matches(expression, selectors)
        if isinstance(verdict, Trouble):
            troubles.append(verdict)
            return False
        if not verdict:
            return False
    return True


def is_tolerated(option: DeviceOption, taints: Sequence[DeviceTaint]) -> bool:
    """Return True if no taint keeps the request away."""
    return all(
        taint.effect not in _KEEPS_AWAY or any(one.tolerates(taint) for one in option.tolerations) for taint in taints
    )


def configs_of(chosen: Sequence[Way], demand: DeviceDemand) -> tuple[tuple[Config, ...], tuple[Config, ...]]:
    """Return the parameters of classes and of the claim that go with the chosen ways.

    Parameters that concern every request name none (as kube-scheduler writes them).
    """
    titles: dict[str, list[str]] = {}
    for way in chosen:
        titles.setdefault(way.device_class.name, []).append(way.title)
    classes = {way.device_class.name: way.device_class for way in chosen}
    of_classes = tuple(
        Config(opaque=config.opaque, requests=_named(titles[name], chosen))
        for name, device_class in classes.items()
        for config in device_class.config
    )
    of_claim = tuple(
        Config(opaque=config.opaque, requests=_named(config.requests, chosen))
        for config in demand.configs
        if not config.requests or any(_names(config.requests, way) for way in chosen)
    )
    return of_classes, of_claim


def _names(requests: Sequence[str], way: Way) -> bool:
    return way.title in requests or way.title.split("/")[0] in requests


def _named(requests: Sequence[str], chosen: Sequence[Way]) -> tuple[str, ...]:
    return () if all(_names(requests, way) for way in chosen) else tuple(requests)
