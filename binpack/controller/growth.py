"""Whether a node has become able to take a pod that it could not take before. Pure."""

from __future__ import annotations

from binpack.state import DeviceState, NodeState


def has_grown(old: NodeState, new: NodeState) -> bool:
    """Return True if anything that a waiting pod could want became more, or the node's rules changed.

    May be True where nothing helps anybody; is never False where some pod fits that did not fit before.
    """
    if old.node is not new.node and (
        old.node.labels != new.node.labels
        or old.node.taints != new.node.taints
        or old.node.is_cordoned != new.node.is_cordoned
        or old.node.is_sharing != new.node.is_sharing
        or old.node.devices != new.node.devices
    ):
        return True
    if old.blocked and not new.blocked:
        return True
    if old.free != new.free and old.free.lacks(new.free):
        return True
    if len(old.devices) != len(new.devices):
        return True
    return any(_has_more(before, after) for before, after in zip(old.devices, new.devices, strict=True))


def _has_more(before: DeviceState, after: DeviceState) -> bool:
    if after is before:
        return False
    return (
        after.device != before.device
        or after.free_milli > before.free_milli
        or not set(before.partitions) <= set(after.partitions)
        or after.users < before.users
        or (before.free_mib is not None and (after.free_mib is None or after.free_mib > before.free_mib))
    )
