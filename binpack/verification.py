"""Is a berth that the planner wrote down really free for its pod? Pure; answers in words for the pod's event."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from binpack import fit
from binpack.state import DeviceState, NodeState
from binpack.wording import amount
from fleet import labels
from fleet.berths import locate
from fleet.device import AskKind, DeviceAsk
from fleet.pod import Berth, Pod


class Holdings(Protocol):
    """What the verification asks of a ledger."""

    def state(self, name: str) -> NodeState | None:
        """Return what is free on a node; None if there is no such node."""
        ...

    def state_without(self, name: str, uid: str) -> NodeState | None:
        """Return what would be free on a node if one pod held nothing."""
        ...

    def berth_of(self, uid: str) -> Berth | None:
        """Return what a pod holds; None = nothing."""
        ...


def objection(holdings: Holdings, pod: Pod, berth: Berth) -> str:
    """Return why the pod cannot have exactly this berth; "" = it can.

    What the pod holds itself does not stand in its way, whether the ledger has seen its record already or not.
    """
    state = holdings.state(berth.node)
    if state is None:
        return "the node is not known here"
    if holdings.berth_of(pod.uid) == berth:
        if _is_sound(pod, berth, state):
            return ""
        state = holdings.state_without(berth.node, pod.uid) or state
    refusal = fit.refusal(pod, berth, state)
    return "; ".join((refusal, *_details(pod, berth, state))) if refusal else ""


def shortage(pod: Pod, state: NodeState) -> str:
    """Return what the node lacks for the pod, in words; "" = nothing."""
    missing = fit.missing(pod, state)
    return f"lacks {' and '.join(amount(name, value) for name, value in missing)}" if missing else ""


def _is_sound(pod: Pod, berth: Berth, state: NodeState) -> bool:
    """Return True if a berth that `state` counts already is surely the pod's: nothing of it is taken twice.

    The quick half of `fit.refusal`, which wants the sums without the pod: if this one says no, ask that one. A berth
    of the wrong kind (recorded devices on a classic node, a count on a sharing one) has closed the node's books.
    """
    free, node, ask = state.free, state.node, pod.ask
    if free.milli_cpu < 0 or free.memory_bytes < 0 or free.pod_slots < 0 or any(left < 0 for _, left in free.extended):
        return False
    if state.blocked or fit.mismatch(pod, node) is not None:
        return False
    if ask is None:
        return True
    if ask.kind is AskKind.PARTITION or ask.alternatives or ask.is_one_island:
        return False
    if ask.kind is AskKind.CLASSIC:
        held = node.allocatable.of(labels.NVIDIA_GPU) - free.of(labels.NVIDIA_GPU)
        return not ask.models and held <= sum(device.device.is_healthy for device in state.devices)
    mine = [device for device in state.devices if device.device.id in berth.devices]
    return len(mine) == len(berth.devices) == ask.count and all(_is_sound_device(ask, device) for device in mine)


def _is_sound_device(ask: DeviceAsk, device: DeviceState) -> bool:
    if not device.device.is_healthy or fit.model_rank(ask, device.device.model) is None:
        return False
    if ask.is_whole:
        memory_mib = device.device.memory_mib
        return device.users == 1 and (memory_mib is None or memory_mib >= ask.memory_mib)
    # What the pod itself holds is counted already: only what it leaves untouched (see `fit.least_milli`) must be there.
    spare_milli = fit.least_milli(ask, device) - ask.milli_gpu
    return device.free_milli >= spare_milli and (device.free_mib is None or device.free_mib >= 0)


def _details(pod: Pod, berth: Berth, state: NodeState) -> Iterator[str]:
    """Yield what is the matter with the node's books and with each device of the record."""
    yield from state.blocked
    devices = {device.device.id: device for device in state.devices}
    for name in berth.devices:
        device = devices.get(locate(name, state.node.devices)[0])
        fault = "does not exist" if device is None else _device_fault(pod, device)
        if fault:
            yield f"device {name} {fault}"


def _device_fault(pod: Pod, device: DeviceState) -> str:
    if not device.device.is_healthy:
        return "is not healthy"
    ask = pod.ask
    if ask is not None and ask.kind is AskKind.PARTITION:
        return "" if fit.usable(ask, device) else f"has no start for a {ask.profile} now"
    if device.device.partitions is not None:
        return "is in MIG mode"
    if ask is not None and ask.is_whole and device.users:
        return f"is held by {device.users} other pods" if device.users > 1 else "is held by another pod"
    if ask is not None and (least := fit.least_milli(ask, device)) > device.free_milli:
        return f"has {device.free_milli} milli-GPU free, {least} are asked"
    if ask is not None and device.free_mib is not None and ask.memory_mib > device.free_mib:
        return f"has {device.free_mib} MiB free, {ask.memory_mib} are asked"
    return ""
