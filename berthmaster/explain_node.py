"""What is on one node: each device, who holds what of it, how an empty card could be cut for those who wait. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from binpack import mig
from binpack.mig.proposals import Proposal, proposals
from binpack.state import DeviceState, NodeState
from fleet import labels
from fleet.berths import locate
from fleet.dra import DeviceId, ResourceClaim
from fleet.pod import Berth, Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One device.

    Attributes:
        mode: "whole or shares", "MIG", "MIG, made" (instances made beforehand), or "counted" on a classic node.
        island: Its number; 0 = none.
        free: What is left, in words.
        holders: Pods with what each holds of it, and claims with the pods that use them.
    """

    device: str
    model: str
    mode: str
    island: int
    is_healthy: bool
    free: str
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    """The answer of `berthmaster explain node`.

    Attributes:
        kind: "sharing" or "classic".
        advertised: MIG instances that a device plugin advertises: resource, free, of how many.
        closed: Why no device of it may be given now.
    """

    node: str
    kind: str
    devices: tuple[DeviceRow, ...]
    advertised: tuple[tuple[str, int, int], ...]
    closed: tuple[str, ...]
    warnings: tuple[str, ...]
    proposals: tuple[Proposal, ...]


def claim_holders(claims: Iterable[ResourceClaim], reach: Iterable[DeviceId]) -> dict[str, tuple[str, ...]]:
    """Return, by the name of a node's device, the resource claims that hold any of it, with the pods that use them.

    Args:
        claims: Of the cluster.
        reach: Driver, pool and name of the node's devices.
    """
    near = frozenset(reach)
    found: dict[str, list[str]] = defaultdict(list)
    for claim in sorted(claims, key=lambda one: one.key):
        users = ", ".join(f"{claim.namespace}/{user.name}" for user in claim.reserved_for) or "nobody"
        for result in () if claim.allocation is None else claim.allocation.results:
            if result.id in near and not result.is_admin:
                found[result.device].append(f"{users} (claim {claim.name})")
    return {device: tuple(words) for device, words in found.items()}


def explain_node(
    state: NodeState,
    holders: Mapping[str, Berth],
    waiting: Iterable[Pod],
    warnings: Sequence[str],
    claimed: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> NodeExplanation:
    """Return the explanation.

    Args:
        state: The node now.
        holders: By namespace/name, what each pod holds there.
        waiting: Pods without a place.
        warnings: What the ledger says of the node.
        claimed: By device, who holds it by resource claims, in words.
    """
    node = state.node
    by_device: dict[str, list[str]] = defaultdict(list)
    for key, berth in sorted(holders.items()):
        for name in berth.devices:
            device, partition = locate(name, node.devices)
            by_device[device].append(key if partition is None else f"{key} ({partition.profile}@{partition.start})")
    return NodeExplanation(
        node=node.name,
        kind="sharing" if node.is_sharing else "classic",
        devices=tuple(
            DeviceRow(
                device=device.device.id,
                model=device.device.model,
                mode=_mode(state, device),
                island=device.device.island,
                is_healthy=device.device.is_healthy,
                free=_free(state, device),
                holders=(*by_device[device.device.id], *claimed.get(device.device.id, ())),
            )
            for device in state.devices
        ),
        advertised=tuple(
            (name, state.free.of(name), amount)
            for name, amount in node.allocatable.extended
            if name.startswith(labels.NVIDIA_MIG_PREFIX)
        ),
        closed=state.blocked,
        warnings=tuple(warnings),
        proposals=proposals({node.name: state}, waiting, most=len(state.devices)),
    )


def _mode(state: NodeState, device: DeviceState) -> str:
    if not state.node.is_sharing:
        return "counted"
    if device.device.partitions is None:
        return "whole or shares"
    return "MIG, made" if device.device.partitions else "MIG"


def _free(state: NodeState, device: DeviceState) -> str:
    if device.device.partitions is None:
        if not state.node.is_sharing:
            return "held" if device.users else "free"
        memory = "" if device.free_mib is None else f", {device.free_mib} MiB"
        return f"{device.free_milli} milli-GPU{memory}"
    geometry = mig.geometry_of(device.device)
    busy = (
        None
        if geometry is None or device.users != len(device.partitions)
        else mig.occupied(geometry, device.partitions)
    )
    if geometry is None or busy is None:
        return "no instance may be given"
    free, slices = mig.free_slices(geometry, busy)
    able = dict.fromkeys(start.partition.profile for start in geometry.starts if not start.mask & busy)
    unit = "instances" if geometry.is_made else "memory slices"
    return f"{free} of {slices} {unit}; may start: {', '.join(able) or 'nothing'}"
