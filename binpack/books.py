"""What the pods of one node hold, added up: the arithmetic of the ledger, for one node at a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from binpack import mig
from binpack.state import DeviceState, NodeState
from fleet import labels
from fleet.berths import locate
from fleet.company import NOBODY, Guest
from fleet.device import WHOLE_MILLI, AskKind, Device, DeviceAsk, Partition
from fleet.node import Node
from fleet.pod import Berth, Pod
from fleet.resources import Resources, extended_of

_AGENTS_OWNERS = frozenset({"DaemonSet", "Node"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one pod holds, or is about to.

    Attributes:
        key: namespace/name, for people.
        node: Where; the node need not exist.
        requests: What it uses of everything but devices.
        ask: How much it uses of each device; None with devices = all of it, for a request nobody can read.
        devices: Its record; None = no record.
        lacks_record: Whether it runs there and uses devices that a record should name, and none does.
        problem: Why nobody can tell which devices it uses, or how much of them; "" = fine.
        is_ours: Our scheduler's pod, no agent's of the node.
        is_agent: Part of the node itself: a DaemonSet's, a static pod, or a warm pool's that pulls images.
        guest: The pod as rules between pods see it.
        is_seat: Kept for a gated pod that is not there yet; those who leave for it may still be.
    """

    key: str
    node: str
    requests: Resources
    ask: DeviceAsk | None
    devices: tuple[str, ...] | None
    lacks_record: bool
    problem: str
    is_ours: bool = False
    is_agent: bool = False
    guest: Guest = NOBODY
    is_seat: bool = False

    @property
    def berth(self) -> Berth:
        """Return node and recorded devices."""
        return Berth(node=self.node, devices=self.devices or ())


def holding_at(pod: Pod, node: str, devices: tuple[str, ...] | None) -> Holding:
    """Return what the pod holds with this record on this node.

    Equal where the pod holds the same: whether it was planned, pinned or bound there makes no other value, so that the
    ledger need not add the node up again.
    """
    problem = pod.record_problem
    if not problem and pod.ask is None and pod.problems:
        problem = pod.problems[0]
    is_recorded = pod.ask is not None and pod.ask.kind is not AskKind.CLASSIC
    if not is_recorded and not devices:
        devices = None
    return Holding(
        key=pod.key,
        node=node,
        requests=pod.requests,
        ask=pod.ask,
        devices=devices,
        lacks_record=is_recorded and devices is None and bool(pod.node_name),
        problem=problem,
        is_ours=pod.scheduler_name == labels.SCHEDULER_NAME,
        is_agent=is_agent(pod),
        guest=pod.guest,
    )


def seat_holding(pod: Pod) -> Holding | None:
    """Return what is kept for a gated pod: its seat; None = it has none."""
    if pod.seat is None:
        return None
    return replace(holding_at(pod, pod.seat.node, pod.seat.devices or None), is_seat=True)


def is_agent(pod: Pod) -> bool:
    """Return True for a pod that is part of its node: it comes and goes with it, and nobody moves it."""
    return (pod.owner is not None and pod.owner.kind in _AGENTS_OWNERS) or labels.PULLER in pod.labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One node's state and what people should know of it, sorted."""

    state: NodeState
    warnings: tuple[str, ...]


def account(node: Node, holdings: Collection[Holding]) -> Account:
    """Return what is free on the node beside these holdings; their order does not matter."""
    blocked = [f"node {node.name}: {problem}" for problem in node.device_problems]
    warnings: list[str] = []
    devices = _shared(node, holdings, blocked, warnings) if node.is_sharing else _counted(node, holdings, blocked)
    blocked.sort()
    guests = [holding.guest for holding in holdings if holding.guest is not NOBODY]
    state = NodeState(
        node=node,
        free=_free(node, holdings),
        devices=devices,
        blocked=tuple(blocked),
        guests=tuple(sorted(guests, key=hash)),
    )
    return Account(state=state, warnings=tuple(sorted(blocked + warnings)))


def _free(node: Node, holdings: Collection[Holding]) -> Resources:
    have = node.allocatable
    milli_cpu, memory_bytes, pod_slots = have.milli_cpu, have.memory_bytes, have.pod_slots
    extended = dict(have.extended)
    for holding in holdings:
        used = holding.requests
        milli_cpu -= used.milli_cpu
        memory_bytes -= used.memory_bytes
        pod_slots -= used.pod_slots
        for name, amount in used.extended:
            extended[name] = extended.get(name, 0) - amount
    return Resources(
        milli_cpu=milli_cpu, memory_bytes=memory_bytes, pod_slots=pod_slots, extended=extended_of(extended)
    )


class _Card:
    """Running books of one device."""

    __slots__ = ("device", "mib", "milli", "partitions", "users", "wholes")

    def __init__(self, device: Device) -> None:
        self.device = device
        self.milli = self.mib = self.users = self.wholes = 0
        self.partitions: list[Partition] = []

    def book(self, ask: DeviceAsk | None, partition: Partition | None) -> None:
        """Add one user; without a readable ask, or in another mode than the record says, it uses everything."""
        self.users += 1
        if partition is not None and self.device.partitions is not None:
            self.partitions.append(partition)
        elif ask is None or ask.kind is not AskKind.SHARE or partition is not None:
            self.wholes += 1
            self.milli += WHOLE_MILLI
        else:
            self.milli += ask.milli_gpu
            self.mib += ask.memory_mib

    def state(self) -> DeviceState:
        """Return what is left."""
        if self.device.partitions is not None:
            return _in_mig_mode(self.device, self.users, tuple(sorted(self.partitions)))
        memory_mib = self.device.memory_mib
        free_mib = None if memory_mib is None else memory_mib * (1 - self.wholes) - self.mib
        return DeviceState(device=self.device, free_milli=WHOLE_MILLI - self.milli, free_mib=free_mib, users=self.users)

    @property
    def is_overdrawn(self) -> bool:
        """Return True if more is held of it than there is."""
        if self.device.partitions is not None:
            geometry = mig.geometry_of(self.device)
            is_lawful = geometry is None or mig.occupied(geometry, self.partitions) is not None
            return self.users > 0 and not (is_lawful and self.users == len(self.partitions))
        have_mib = self.device.memory_mib
        return (
            self.milli > WHOLE_MILLI
            or (self.wholes > 0 and self.users > 1)
            or (have_mib is not None and self.mib > have_mib * (1 - self.wholes))
        )


def _shared(
    node: Node, holdings: Collection[Holding], blocked: list[str], warnings: list[str]
) -> tuple[DeviceState, ...]:
    """Book every record on its cards; what cannot be booked closes the node.

    A seat may be kept on what others still hold until they have left: that is no broken promise.
    """
    cards = {device.id: _Card(device) for device in node.devices}
    seats = [holding for holding in holdings if holding.is_seat]
    for holding in holdings:
        if holding.is_seat:
            continue
        doubt = _doubt(holding)
        if doubt:
            blocked.append(f"pod {holding.key} on node {node.name}: {doubt}")
        for name in holding.devices or ():
            device, partition = locate(name, node.devices)
            card = cards.get(device)
            if card is None:
                warnings.append(f"pod {holding.key} holds device {node.name}/{name}, which is not there")
            else:
                card.book(holding.ask, partition)
    warnings += [
        f"device {node.name}/{name} is promised beyond what it has" for name, card in cards.items() if card.is_overdrawn
    ]
    for seat in seats:
        for name in seat.devices or ():
            device, partition = locate(name, node.devices)
            if device in cards:
                cards[device].book(seat.ask, partition)
    warnings += [
        _without_geometry(node, device)
        for device in node.devices
        if device.partitions is not None and mig.geometry_of(device) is None
    ]
    return tuple([card.state() for card in cards.values()])


def _without_geometry(node: Node, device: Device) -> str:
    where = f"device {node.name}/{device.id} is in MIG mode, and "
    if device.partitions:
        return f"{where}the instances that {labels.MIG_DEVICES} lists cannot be there together: none is given"
    return f"{where}no geometry of {device.model or 'its card'} is known: list its instances in {labels.MIG_DEVICES}"


def _in_mig_mode(device: Device, users: int, held: tuple[Partition, ...]) -> DeviceState:
    """Return a device of which instances are held: what is free of it counts by its memory slices, for sums."""
    geometry = mig.geometry_of(device)
    busy = None if geometry is None or users != len(held) else mig.occupied(geometry, held)
    free, slices = (0, 1) if geometry is None or busy is None else mig.free_slices(geometry, busy)
    memory_mib = device.memory_mib
    return DeviceState(
        device=device,
        free_milli=WHOLE_MILLI * free // slices,
        free_mib=None if memory_mib is None else memory_mib * free // slices,
        users=users,
        partitions=held,
    )


def _doubt(holding: Holding) -> str:
    """Return why it is unknown what the pod uses of which device; "" where it is known."""
    if holding.problem:
        return holding.problem
    ask = holding.ask
    if ask is None:
        return ""
    if ask.kind is AskKind.CLASSIC:
        return f"it uses {labels.NVIDIA_GPU} here, and the kubelet chose cards that nobody recorded"
    if holding.devices is None:
        return "it uses devices and has no record of which" if holding.lacks_record else ""
    if all(len(holding.devices) != one.count for one in ask.variants()):
        return f"it asks for {ask.count} device(s), and its record names {len(holding.devices)}"
    return ""


def _counted(node: Node, holdings: Collection[Holding], blocked: list[str]) -> tuple[DeviceState, ...]:
    """Return a classic node's devices: the first ones stand for those held, whichever the kubelet gave."""
    held = 0
    for holding in holdings:
        held += holding.requests.of(labels.NVIDIA_GPU)
        ask = holding.ask
        if holding.devices and ask is not None and ask.kind is not AskKind.CLASSIC:
            blocked.append(f"pod {holding.key} on node {node.name}: it uses recorded devices that the kubelet may give")
    states: list[DeviceState] = []
    for device in node.devices:
        is_held = device.is_healthy and held > 0
        held -= is_held
        states.append(
            DeviceState(device=device, free_milli=0, free_mib=0, users=1)
            if is_held
            else DeviceState(device=device, free_milli=WHOLE_MILLI, free_mib=device.memory_mib, users=0)
        )
    return tuple(states)
