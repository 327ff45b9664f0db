"""May this pod go on this node, and if not, what is missing: the definition of feasible."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from binpack import islands, mig
from binpack.state import DeviceState, NodeState
from fleet import labels
from fleet.berths import locate, partition_name
from fleet.constraints import Mismatch
from fleet.device import AskKind, DeviceAsk
from fleet.node import Node
from fleet.pod import Berth, Pod


def mismatch(pod: Pod, node: Node) -> Mismatch | None:
    """Return why the node may not take the pod whatever is free on it; None if names, labels and taints allow it."""
    return pod.constraints.mismatch(node.name, node.labels, node.taints, node.is_cordoned)


@lru_cache(maxsize=8192)
def model_matches(wanted: str, model: str) -> bool:
    """Return True if the product name is the wanted one, or holds it as whole words: H100 in NVIDIA-H100-80GB-HBM3.

    Case does not matter, and neither does whether the words are joined by '-' or by spaces. A MIG slice that a device
    plugin advertises as a GPU (NVIDIA-H100-80GB-HBM3-MIG-1g.10gb) is an H100 to those alone who say MIG themselves.
    """
    have, wish = f"-{_words(model)}-", f"-{_words(wanted)}-"
    return bool(wanted) and wish in have and ("-mig-" in wish or "-mig-" not in have)


def _words(text: str) -> str:
    return "-".join(text.lower().replace("-", " ").split())


def model_rank(ask: DeviceAsk, model: str) -> int | None:
    """Return the place of a device's model among those asked for, 0 where any will do; None = not acceptable."""
    if not ask.models:
        return 0
    return next((rank for rank, wanted in enumerate(ask.models) if model_matches(wanted, model)), None)


def serves(ask: DeviceAsk, node: Node) -> bool:
    """Return True if the node keeps the books in which the ask is written."""
    return node.is_sharing is (ask.kind is not AskKind.CLASSIC)


def usable(ask: DeviceAsk, state: DeviceState) -> bool:
    """Return True if this device can be given for the ask now."""
    if not state.device.is_healthy or model_rank(ask, state.device.model) is None:
        return False
    if ask.kind is AskKind.PARTITION:
        return bool(_starts(ask, state))
    if state.device.partitions is not None:
        return False
    if ask.is_whole:
        memory_mib = state.device.memory_mib
        return state.users == 0 and (memory_mib is None or memory_mib >= ask.memory_mib)
    return state.free_milli >= least_milli(ask, state) and (state.free_mib is None or state.free_mib >= ask.memory_mib)


def _starts(ask: DeviceAsk, state: DeviceState) -> tuple[mig.Start, ...]:
    """Return where on this device an instance may start now."""
    geometry = mig.geometry_of(state.device)
    if geometry is None or state.users != len(state.partitions):
        return ()
    return mig.fits(geometry, state.partitions, ask.profile)


def least_milli(ask: DeviceAsk, state: DeviceState) -> int:
    """Return the milli-GPU that must be left of a device for a share.

    Where nobody knows the card's memory, only its milli-GPU tell that it is full: a share of memory alone then needs
    that at least one is left, though it takes none.
    """
    return ask.milli_gpu if state.free_mib is not None else max(1, ask.milli_gpu)


def missing(pod: Pod, state: NodeState) -> tuple[tuple[str, int], ...]:
    """Return (what, how much) the node lacks for the pod; empty = it fits. Names and labels are `mismatch`'s business.

    "devices" counts devices that are not there or not free; "milli_gpu" and "gpu_memory_mib" say what the nearest
    device lacks for a share; every other entry is a resource as `Resources.lacks` names it.
    """
    lacks = state.free.lacks(pod.requests)
    ask = pod.ask
    if ask is None:
        return lacks
    if ask.kind is AskKind.CLASSIC:
        counted = dict(lacks).get(labels.NVIDIA_GPU, 0)
        short = max(counted, min(one.count - len(_given(one, state)) for one in ask.variants()))
        lacks = tuple((name, amount) for name, amount in lacks if name != labels.NVIDIA_GPU)
        return (("devices", short), *lacks) if short > 0 else lacks
    return (*min((_missing_devices(one, state) for one in ask.variants()), key=_most), *lacks)


def _most(lacks: tuple[tuple[str, int], ...]) -> int:
    return max((amount for _, amount in lacks), default=0)


def _given(ask: DeviceAsk, state: NodeState) -> list[DeviceState]:
    """Return the devices that could be given, the wanted models first, else in inventory order."""
    if state.blocked or not serves(ask, state.node):
        return []
    devices = [device for device in state.devices if usable(ask, device)]
    if ask.is_one_island:
        devices = [device for island in islands.holding(devices, ask.count) for device in island]
    if ask.is_ordered:
        devices.sort(key=lambda device: model_rank(ask, device.device.model) or 0)
    return devices


def _missing_devices(ask: DeviceAsk, state: NodeState) -> tuple[tuple[str, int], ...]:
    short = ask.count - len(_given(ask, state))
    if short <= 0:
        return ()
    if ask.kind is AskKind.PARTITION:
        return ((f"start for {ask.profile}", 1),)
    if ask.is_whole or state.blocked or not serves(ask, state.node):
        return (("devices", short),)
    able = [
        d
        for d in state.devices
        if d.device.is_healthy and d.device.partitions is None and model_rank(ask, d.device.model) is not None
    ]
    if len(able) < ask.count:
        return (("devices", ask.count - len(able)),)
    return _nearest(ask, able)


def _nearest(ask: DeviceAsk, able: Iterable[DeviceState]) -> tuple[tuple[str, int], ...]:
    """Return what the last of the `count` nearest devices lacks for its share."""
    lacks = sorted(
        (max(0, least_milli(ask, d) - d.free_milli), 0 if d.free_mib is None else max(0, ask.memory_mib - d.free_mib))
        for d in able
    )
    milli, mib = lacks[ask.count - 1]
    return tuple((name, amount) for name, amount in (("milli_gpu", milli), ("gpu_memory_mib", mib)) if amount > 0)


def devices_for(pod: Pod, state: NodeState) -> tuple[str, ...] | None:
    """Return the first devices that will do, wanted models first; () where none are named; None if it does not fit."""
    if missing(pod, state):
        return None
    ask = pod.ask
    if ask is None or ask.kind is AskKind.CLASSIC:
        return ()
    one = next(one for one in ask.variants() if not _missing_devices(one, state))
    given = _given(one, state)
    if one.kind is AskKind.PARTITION:
        return (partition_name(given[0].device, _starts(one, given[0])[0].partition),)
    if one.is_one_island:
        given = islands.holding(given, one.count)[0]
    return tuple(device.device.id for device in given[: one.count])


def refusal(pod: Pod, berth: Berth, state: NodeState) -> str:
    """Return why the pod may not have exactly this berth, in words; "" = it may.

    Args:
        pod: A pod that holds nothing in `state` (see `Ledger.state_without`).
        berth: Node and devices to check.
        state: That node's state.
    """
    if berth.node != state.node.name:
        return f"the berth is on node {berth.node}"
    unlike = mismatch(pod, state.node)
    if unlike is not None:
        return f"the node is excluded: {unlike.value}"
    lacks = missing(pod, state)
    if lacks:
        return "the node lacks " + ", ".join(f"{amount} {name}" for name, amount in lacks)
    return "" if pod.ask is None or pod.ask.kind is AskKind.CLASSIC else _refused_devices(pod.ask, berth, state)


def _refused_devices(ask: DeviceAsk, berth: Berth, state: NodeState) -> str:
    """Return why none of the ask's variants is served by these devices; of the reasons, that of the likeliest."""
    likeliest = sorted(ask.variants(), key=lambda one: one.count != len(berth.devices))
    refusals = [_refused_variant(one, berth, state) for one in likeliest]
    return "" if "" in refusals else refusals[0]


def _refused_variant(ask: DeviceAsk, berth: Berth, state: NodeState) -> str:
    if len(set(berth.devices)) != ask.count or len(berth.devices) != ask.count:
        return f"{ask.count} different devices are asked for, not {', '.join(berth.devices) or 'none'}"
    given = {device.device.id: device for device in _given(ask, state)}
    if ask.kind is AskKind.PARTITION:
        name, partition = locate(berth.devices[0], state.node.devices)
        starts = _starts(ask, given[name]) if name in given else ()
        return "" if partition in [start.partition for start in starts] else f"{berth.devices[0]} cannot be given"
    taken = [name for name in berth.devices if name not in given]
    if taken:
        return f"device {', '.join(taken)} cannot be given"
    if ask.is_one_island and len({given[name].device.island for name in berth.devices}) > 1:
        return f"devices {', '.join(berth.devices)} are not of one island"
    return ""


def holds(pod: Pod, berth: Berth, state: NodeState) -> bool:
    """Return True if the pod may have exactly this berth; see `refusal`."""
    return not refusal(pod, berth, state)
