"""A node as it is once the GPUs that resource claims hold count as used."""

from __future__ import annotations

from dataclasses import replace

from binpack.state import NodeState


def with_held(state: NodeState, held: frozenset[str]) -> NodeState:
    """Return the state with these devices in use by somebody, as a whole: a claim's part of one is no share of ours."""
    if not held or not any(device.device.id in held for device in state.devices):
        return state
    return replace(
        state,
        devices=tuple(
            replace(device, free_milli=0, free_mib=None if device.free_mib is None else 0, users=max(1, device.users))
            if device.device.id in held
            else device
            for device in state.devices
        ),
    )


def recorded_on(state: NodeState) -> tuple[str, ...]:
    """Return the ids of a sharing node's devices that pods hold by their records."""
    if not state.node.is_sharing:
        return ()
    return tuple(device.device.id for device in state.devices if device.users)
