"""Nodes and claims in each other's eyes: GPUs that claims hold count as used, and those that records name as held."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from binpack.dra.pools import Cell
from binpack.state import NodeState
from fleet import labels
from fleet.dra import DeviceResult


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


def recorded_results(cells: Iterable[Cell], recorded: Iterable[str]) -> tuple[DeviceResult, ...]:
    """Return what pods hold by their records as if a claim did: all of these GPUs, by the ids that both give them."""
    wanted = frozenset(recorded)
    return tuple(
        DeviceResult(request="", driver=cell.id[0], pool=cell.id[1], device=cell.id[2])
        for cell in cells
        if cell.id[0].startswith(labels.DRA_GPU_DRIVERS) and cell.id[2] in wanted
    )
