"""Chosen devices as the allocation of a claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid5

from binpack.dra.pools import Cell
from binpack.dra.wants import Want, Way, configs_of
from fleet.constraints import NodeTerm, Requirement
from fleet.dra import NODE_NAME_FIELD, Allocation, DeviceResult

_SHARES = UUID("5f0c1c2a-9f0b-5f55-9a4e-6f1d3b1f7a11")


@dataclass(slots=True)
class Pick:
    """One device given to a request.

    Attributes:
        more: What it uses of the device's capacities.
        began: Nobody had any of the device before.
        cost: What giving it costs, milli-GPU.
    """

    way: Way
    cell: Cell
    more: dict[str, int]
    began: bool
    cost: float


def allocation_of(node: str, want: Want, picks: Sequence[Pick], ways: Sequence[Way]) -> Allocation:
    """Return the allocation of one claim on a node."""
    of_classes, of_claim = configs_of(ways, want.demand)
    return Allocation(
        results=tuple(_result(want, pick, place) for place, pick in enumerate(picks)),
        terms=_terms(node, [pick.cell for pick in picks]),
        class_configs=of_classes,
        claim_configs=of_claim,
    )


def _result(want: Want, pick: Pick, place: int) -> DeviceResult:
    driver, pool, name = pick.cell.id
    device, option = pick.cell.device, pick.way.option
    is_shared = device.is_multiple
    return DeviceResult(
        request=pick.way.title,
        driver=driver,
        pool=pool,
        device=name,
        is_admin=option.is_admin,
        # One per claim and device, and the same whoever works it out: a repeated write changes nothing.
        share_id=str(uuid5(_SHARES, f"{want.uid} {driver} {pool} {name} {place}")) if is_shared else "",
        consumed=tuple(sorted(pick.more.items())) if is_shared else (),
        tolerations=option.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
    )


def _terms(node: str, cells: Sequence[Cell]) -> tuple[NodeTerm, ...] | None:
    """Return the nodes from which all of the devices are reached; None = all nodes."""
    if any(cell.where.node or cell.device.binds_to_node for cell in cells):
        only = Requirement(key=NODE_NAME_FIELD, operator="In", values=(node,))
        return (NodeTerm(fields=(only,)),)
    labels: dict[Requirement, None] = {}
    fields: dict[Requirement, None] = {}
    for cell in cells:
        for term in cell.where.terms or ():
            labels.update(dict.fromkeys(term.labels))
            fields.update(dict.fromkeys(term.fields))
    return (NodeTerm(labels=tuple(labels), fields=tuple(fields)),) if labels or fields else None
