"""What is free on one node of a gang's search, and what would be after one more member: exact, in plain values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice
from typing import Final

from binpack.fit import least_milli, mismatch, missing, serves, usable
from binpack.state import DeviceState, NodeState
from fleet.device import AskKind, DeviceAsk
from fleet.pod import Berth, Pod

# Ways to choose devices on one node that are looked at; a node of eight like devices has one.
_MOST_WAYS: Final = 64
_NOTHING: Final[Mapping[str, int]] = {}
KNOWN_KINDS: Final = frozenset({AskKind.CLASSIC, AskKind.CHOSEN, AskKind.SHARE})


@dataclass(frozen=True, eq=False, kw_only=True)
class Room:
    """One node as the search sees it.

    Attributes:
        state: What is free.
        allowed: By kind, whether names, labels and taints allow it; equal on nodes that constraints cannot tell apart.
        limits: By kind, an upper limit of how many fit; -1 = not worked out yet.
        claimable: What counts of its devices for resource claims.
    """

    state: NodeState
    allowed: tuple[bool, ...]
    limits: list[int]
    claimable: Hashable = None

    @cached_property
    def cards(self) -> tuple[tuple[object, ...], ...]:
        """Return everything that counts of each device."""
        return tuple((*_looks(device), device.users == 0) for device in self.state.devices)

    @cached_property
    def looks(self) -> tuple[object, ...]:
        """Return everything that counts of it: rooms that look alike are as good as each other."""
        state = self.state
        cards = tuple(sorted(self.cards))
        return (self.allowed, state.free, cards, state.node.is_sharing, bool(state.blocked), self.claimable)

    @cached_property
    def tightness(self) -> tuple[int, int, int]:
        """Return how much is left: whole devices, milli-GPU, milli-CPU; the least is the tightest."""
        devices = [device for device in self.state.devices if device.device.is_healthy]
        whole = sum(device.users == 0 for device in devices)
        milli = sum(max(0, device.free_milli) for device in devices)
        return whole, milli, self.state.free.milli_cpu


def room_of(state: NodeState, kinds: Sequence[Pod], claimable: Hashable = None) -> Room:
    """Return a node's room for pods of these kinds, with what counts of its devices for their resource claims."""
    allowed = tuple(mismatch(pod, state.node) is None for pod in kinds)
    return Room(state=state, allowed=allowed, limits=[-1] * len(kinds), claimable=claimable)


def ways(pod: Pod, state: NodeState, apart: Mapping[str, int] = _NOTHING) -> tuple[tuple[str, ...], ...]:
    """Return the choices of devices that differ in what they leave, tightest first; () where the pod does not fit.

    Args:
        pod: Who asks.
        state: What is free.
        apart: Numbers of devices, by id, that tell such apart as are alike otherwise.
    """
    if missing(pod, state):
        return ()
    ask = pod.ask
    if ask is None or ask.kind is AskKind.CLASSIC:
        return ((),)
    free = [device for device in state.devices if usable(ask, device)]
    free.sort(key=lambda device: (device.free_milli, device.device.model, device.free_mib or 0))
    found: dict[tuple[object, ...], tuple[str, ...]] = {}
    for chosen in islice(combinations(free, ask.count), 16 * _MOST_WAYS):
        looks = tuple((_looks(device), apart.get(device.device.id)) for device in chosen)
        found.setdefault(looks, tuple(device.device.id for device in chosen))
        if len(found) == _MOST_WAYS:
            break
    return tuple(found.values())


def has_few_ways(pod: Pod, state: NodeState, apart: Mapping[str, int] = _NOTHING) -> bool:
    """Return True if `ways` names all the choices there are."""
    if pod.ask is None or pod.ask.count == 1 or len(state.devices) <= (7 if apart else 8):
        return True
    return len({(_looks(device), apart.get(device.device.id)) for device in state.devices}) == 1


class Want:
    """What one kind of member asks, taken apart once: `most` is asked of it thousands of times."""

    def __init__(self, pod: Pod) -> None:
        """Take the request of a member apart."""
        wanted, ask = pod.requests, pod.ask
        self._milli_cpu = max(0, wanted.milli_cpu)
        self._memory_bytes = max(0, wanted.memory_bytes)
        self._pod_slots = max(0, wanted.pod_slots)
        self._extended = tuple((name, amount) for name, amount in wanted.extended if amount > 0)
        self._ask = ask
        self._is_share = ask is not None and not ask.is_whole
        self._usable: dict[tuple[object, ...], int] = {}

    def most(self, room: Room, enough: int) -> int:
        """Return an upper limit of how many such members fit in the room beside each other, `enough` at most.

        Names and labels are not looked at.
        """
        state = room.state
        free, limit = state.free, enough
        for wanted, have in (
            (self._milli_cpu, free.milli_cpu),
            (self._memory_bytes, free.memory_bytes),
            (self._pod_slots, free.pod_slots),
        ):
            if wanted * limit > have:
                if wanted > have:
                    return 0
                limit = have // wanted
        for name, amount in self._extended:
            limit = min(limit, max(0, free.of(name)) // amount)
        ask = self._ask
        if ask is None or not limit:
            return limit
        if state.blocked or not serves(ask, state.node):
            return 0
        times = 0
        for looks, device in zip(room.cards, state.devices, strict=True):
            found = self._usable.get(looks)
            if found is None:
                found = self._usable[looks] = _times(ask, device) if usable(ask, device) else 0
            times += found
            if times >= limit * ask.count:
                return limit
        return min(limit, times // ask.count)


def booked(pod: Pod, berth: Berth, state: NodeState) -> NodeState:
    """Return what is free once the pod holds the berth, in which it fits; no named devices = the first free ones."""
    ask = pod.ask
    if ask is None:
        return replace(state, free=state.free - pod.requests)
    taken = set(berth.devices)
    if ask.kind is AskKind.CLASSIC:
        taken = {device.device.id for device in [d for d in state.devices if usable(ask, d)][: ask.count]}
    devices = tuple([_held(ask, device) if device.device.id in taken else device for device in state.devices])
    return replace(state, free=state.free - pod.requests, devices=devices)


def _held(ask: DeviceAsk, device: DeviceState) -> DeviceState:
    if ask.is_whole:
        return replace(device, free_milli=0, free_mib=None if device.free_mib is None else 0, users=device.users + 1)
    free_mib = None if device.free_mib is None else device.free_mib - ask.memory_mib
    return replace(device, free_milli=device.free_milli - ask.milli_gpu, free_mib=free_mib, users=device.users + 1)


def _times(ask: DeviceAsk, device: DeviceState) -> int:
    if ask.is_whole:
        return 1
    least = least_milli(ask, device)
    times = 10**6 if not ask.milli_gpu else device.free_milli // max(1, least)
    return times if device.free_mib is None or not ask.memory_mib else min(times, device.free_mib // ask.memory_mib)


def _looks(device: DeviceState) -> tuple[object, ...]:
    card = device.device
    memory_mib = -1 if card.memory_mib is None else card.memory_mib
    free_mib = -1 if device.free_mib is None else device.free_mib
    return (card.model, memory_mib, device.free_milli, free_mib, card.is_healthy)
