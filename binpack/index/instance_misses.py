"""Why no MIG instance can be given: no card has the profile, or enough is free and none of it where one may start."""

from __future__ import annotations

import numpy as np

from binpack.index import room
from binpack.index.arrays import Arrays
from binpack.index.columns import Bools, Ints
from fleet.device import DeviceAsk
from fleet.plan import Reason, Shortfall, Unplaced
from fleet.pod import Pod


def could_ever_hold(arrays: Arrays, ask: DeviceAsk, slots: Ints) -> Bools:
    """Return which nodes have a device on which the profile could start if nobody held anything of it, (n,)."""
    if arrays.instances is None:
        return np.zeros(len(slots), np.bool_)
    able = arrays.instances.could_hold(ask.profile, slots) & room.devices_of_model(arrays, ask, slots)
    found: Bools = able.any(axis=1) & room.takes_kind(arrays, ask, slots)
    return found


def lacks(arrays: Arrays, ask: DeviceAsk, slots: Ints) -> tuple[str, int, Ints]:
    """Return (what, asked, missing by node): one start, or none."""
    name = _name(ask)
    if arrays.instances is None:
        return name, 1, np.ones(len(slots), np.int64)
    able, _ = arrays.instances.best(ask.profile, slots)
    able &= room.devices_of_model(arrays, ask, slots)
    return name, 1, np.where(able.any(axis=1), np.int64(0), np.int64(1))


def no_start(arrays: Arrays, pod: Pod, slots: Ints, shortfall: Shortfall) -> Unplaced | None:
    """Return the answer where the nearest node lacks nothing but a start; None where it lacks more, or something else.

    The free memory slices stand beside it, because the sum of them may well suffice.
    """
    ask = pod.ask
    if ask is None or arrays.instances is None or [name for name, _ in shortfall.missing] != [_name(ask)]:
        return None
    free = arrays.instances.free_slices(arrays.slots[shortfall.node])
    return Unplaced(
        pod_uid=pod.uid,
        reason=Reason.NO_LEGAL_START,
        detail=f"on the best node, {shortfall.node}, {free} memory slices are free, and at none of them may a "
        f"{ask.profile} start",
        allowed_nodes=len(slots),
        shortfall=shortfall,
    )


def words(ask: DeviceAsk) -> str:
    """Return what is asked, for people."""
    models = f" of model {' or '.join(ask.models)}" if ask.models else ""
    return f"a healthy device{models} in MIG mode that can hold a {ask.profile}"


def _name(ask: DeviceAsk) -> str:
    return f"start for {ask.profile}"
