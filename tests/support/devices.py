"""Devices, pools and claims as values, in short words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from binpack.dra.desk import Desk
from binpack.index import Index
from binpack.state import NodeState
from fleet import labels
from fleet.constraints import NodeTerm, Requirement
from fleet.dra import (
    Allocation,
    Capacity,
    DeviceClass,
    DeviceConstraint,
    DeviceDemand,
    DeviceOption,
    DeviceRequest,
    DeviceResult,
    DeviceSlice,
    PodClaim,
    PoolDevice,
    Reserver,
    ResourceClaim,
    Where,
)
from fleet.node import Node
from fleet.pod import Owner, Pod
from fleet.resources import Resources

DRIVER = "dev.example.com"
CLASS = "any"
NANO = 10**9


def a_device(
    name: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    capacity: Mapping[str, int | Capacity] | None = None,
    uses: Mapping[str, Mapping[str, int]] | None = None,
    **more: Any,
) -> PoolDevice:
    """Return a device; attributes are the driver's, amounts whole units."""
    return PoolDevice(
        name=name,
        attributes={f"{DRIVER}/{key}": value for key, value in (attributes or {}).items()},
        capacity={
            key: value if isinstance(value, Capacity) else Capacity(value=value * NANO)
            for key, value in (capacity or {}).items()
        },
        uses=tuple(
            (one, tuple((key, n * NANO) for key, n in amounts.items())) for one, amounts in (uses or {}).items()
        ),
        **more,
    )


def a_slice(
    node: str,
    devices: Iterable[PoolDevice] = (),
    *,
    counters: Mapping[str, Mapping[str, int]] | None = None,
    driver: str = DRIVER,
    **more: Any,
) -> DeviceSlice:
    """Return the only slice of a node's pool."""
    return DeviceSlice(
        **{
            "name": f"{node}-{driver}",
            "driver": driver,
            "pool": node,
            "where": Where(node=node),
            "devices": tuple(devices),
            "counter_sets": tuple(
                (one, tuple((key, n * NANO) for key, n in amounts.items())) for one, amounts in (counters or {}).items()
            ),
            **more,
        }
    )


def a_request(name: str = "dev", count: int = 1, **option: Any) -> DeviceRequest:
    """Return a request with one way; count 0 = all."""
    return DeviceRequest(name=name, options=(DeviceOption(class_name=CLASS, count=count, **option),))


def a_claim(
    name: str, *requests: DeviceRequest, constraints: Sequence[DeviceConstraint] = (), **more: Any
) -> ResourceClaim:
    """Return a claim, its uid like its name."""
    demand = DeviceDemand(requests=requests or (a_request(),), constraints=tuple(constraints))
    return ResourceClaim(**{"uid": name, "namespace": "default", "name": name, "demand": demand, **more})


def agree(attribute: str, *requests: str) -> DeviceConstraint:
    """Return the constraint that devices agree in an attribute of the driver."""
    return DeviceConstraint(attribute=f"{DRIVER}/{attribute}", requests=requests)


def given(
    node: str, *devices: str, pods: Sequence[str] = (), share_id: str = "", request: str = "dev"
) -> dict[str, Any]:
    """Return what an allocated claim has beside its demand."""
    only = NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=(node,)),))
    results = tuple(
        DeviceResult(request=request, driver=DRIVER, pool=node, device=one, share_id=share_id) for one in devices
    )
    return {
        "allocation": Allocation(results=results, terms=(only,)),
        "reserved_for": tuple(Reserver(uid=pod, name=pod) for pod in pods),
    }


def a_desk(*slices: DeviceSlice, claims: Iterable[ResourceClaim] = (), nodes: Iterable[str] = ()) -> Desk:
    """Return a desk that knows these and the class of all devices; nodes of slices are known."""
    desk = Desk()
    desk.is_synced = True
    desk.set_class(DeviceClass(name=CLASS))
    for one in slices:
        desk.set_slice(one)
    for name in (*nodes, *(one.where.node for one in slices if one.where is not None and one.where.node)):
        desk.set_node(name, {}, ())
    for claim in claims:
        desk.set_claim(claim)
    return desk


def a_claimant(name: str, *claims: str, cores: int = 1, **more: Any) -> Pod:
    """Return a gated pod with these claims."""
    return Pod(
        **{
            "uid": name,
            "name": name,
            "scheduler_name": labels.SCHEDULER_NAME,
            "gates": (labels.PLAN_GATE,),
            "owner": Owner(kind="ReplicaSet", name="o", uid="o"),
            "requests": Resources(milli_cpu=1000 * cores, pod_slots=1),
            "resource_claims": tuple(PodClaim(name=one, claim=one) for one in claims),
            **more,
        }
    )


def cores(name: str, count: int = 8, **more: Any) -> NodeState:
    """Return a node without devices of the index's own."""
    have = Resources(milli_cpu=1000 * count, memory_bytes=2**40, pod_slots=100)
    return NodeState(node=Node(name=name, allocatable=have, **more), free=have, devices=())


def an_index(desk: Desk, *states: NodeState) -> Index:
    """Return an index of these nodes that asks the desk."""
    index = Index()
    index.use_claims(desk)
    for state in states:
        index.set_node(state)
        desk.set_node(state.node.name, state.node.labels, ())
    return index
