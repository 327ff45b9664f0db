"""Short builders for nodes with devices, pods and plans: what the planner's tests speak in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from binpack.state import DeviceState, NodeState
from fleet.constraints import NodeConstraints, Taint
from fleet.device import AskKind, Device, DeviceAsk
from fleet.node import Node
from fleet.plan import Placement, Plan, Reason, Unplaced
from fleet.pod import Berth, Pod
from fleet.resources import Resources, extended_of

GIB = 2**30


def card(
    name: str,
    free_milli: int = 1000,
    *,
    users: int | None = None,
    model: str = "G2",
    free_mib: int | None = None,
    memory_mib: int | None = None,
    is_healthy: bool = True,
) -> DeviceState:
    """Return one device; it is untouched unless something of it is taken or `users` says otherwise."""
    return DeviceState(
        device=Device(id=name, model=model, memory_mib=memory_mib, is_healthy=is_healthy),
        free_milli=free_milli,
        free_mib=memory_mib if free_mib is None else free_mib,
        users=users if users is not None else int(free_milli < 1000),
    )


def seat(
    name: str,
    free_milli: Sequence[int] = (),
    *,
    cpu: float = 64.0,
    gib: int = 256,
    slots: int = 110,
    extended: Mapping[str, int] | None = None,
    devices: Sequence[DeviceState] | None = None,
    is_sharing: bool = True,
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    is_cordoned: bool = False,
    blocked: tuple[str, ...] = (),
    capacity_cpu: float | None = None,
) -> NodeState:
    """Return a node with this much free; `free_milli` lists its devices unless `devices` does."""
    states = tuple(devices) if devices is not None else tuple(card(str(i), m) for i, m in enumerate(free_milli))
    free = Resources(
        milli_cpu=round(cpu * 1000), memory_bytes=gib * GIB, pod_slots=slots, extended=extended_of(extended or {})
    )
    allocatable = Resources(
        milli_cpu=round((cpu if capacity_cpu is None else capacity_cpu) * 1000),
        memory_bytes=gib * GIB,
        pod_slots=slots,
        extended=free.extended,
    )
    node = Node(
        name=name,
        labels=labels or {},
        taints=taints,
        is_cordoned=is_cordoned,
        allocatable=allocatable,
        devices=tuple(state.device for state in states),
        is_sharing=is_sharing,
    )
    return NodeState(node=node, free=free, devices=states, blocked=blocked)


def pod(
    name: str,
    *,
    cpu: float = 1.0,
    gib: float = 1.0,
    ask: DeviceAsk | None = None,
    extended: Mapping[str, int] | None = None,
    constraints: NodeConstraints | None = None,
    priority: int = 0,
    problems: tuple[str, ...] = (),
) -> Pod:
    """Return a pending pod whose uid is its name."""
    return Pod(
        uid=name,
        name=name,
        requests=Resources(
            milli_cpu=round(cpu * 1000),
            memory_bytes=round(gib * GIB),
            pod_slots=1,
            extended=extended_of(extended or {}),
        ),
        ask=ask,
        constraints=constraints or NodeConstraints(),
        priority=priority,
        problems=problems,
    )


def share(milli: int, *, count: int = 1, mib: int = 0, models: tuple[str, ...] = ()) -> DeviceAsk:
    """Return an ask for a part of each of `count` devices."""
    return DeviceAsk(kind=AskKind.SHARE, count=count, milli_gpu=milli, memory_mib=mib, models=models)


def chosen(count: int = 1, *, mib: int = 0, models: tuple[str, ...] = ()) -> DeviceAsk:
    """Return an ask for whole devices of our choosing."""
    return DeviceAsk(kind=AskKind.CHOSEN, count=count, memory_mib=mib, models=models)


def classic(count: int = 1, *, models: tuple[str, ...] = ()) -> DeviceAsk:
    """Return an ask for a count of whole devices on a classic node."""
    return DeviceAsk(kind=AskKind.CLASSIC, count=count, models=models)


def plan_of(berths: Mapping[str, Berth | None]) -> Plan:
    """Return a plan from pod uid to berth; None = unplaced."""
    return Plan(
        placements=tuple(Placement(pod_uid=uid, berth=berth) for uid, berth in berths.items() if berth is not None),
        unplaced=tuple(
            Unplaced(pod_uid=uid, reason=Reason.INSUFFICIENT) for uid, berth in berths.items() if berth is None
        ),
    )
