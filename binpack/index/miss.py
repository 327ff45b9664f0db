"""Why a pod has no berth, and what the nearest node lacks."""

from __future__ import annotations

import numpy as np

from binpack.index import instance_misses, islands, room
from binpack.index.arrays import Arrays
from binpack.index.columns import CLASSIC, SHARING, Bools, Ints
from binpack.index.eligibility import Eligibility
from fleet import labels
from fleet.device import WHOLE_MILLI, AskKind, DeviceAsk
from fleet.plan import Reason, Shortfall, Unplaced
from fleet.pod import Pod
from fleet.resources import Resources

_KEPT = 1024


class Misses:
    """Explains misses; pods that ask the same in the same state get the same answer without new work."""

    def __init__(self, arrays: Arrays, eligibility: Eligibility) -> None:
        self._arrays = arrays
        self._eligibility = eligibility
        self._at = -1
        self._known: dict[tuple[object, ...], Unplaced] = {}

    def malformed(self, pod: Pod) -> Unplaced:
        """Return the answer for a pod that cannot be read."""
        return Unplaced(pod_uid=pod.uid, reason=Reason.MALFORMED, detail="; ".join(pod.problems))

    def explain(self, pod: Pod, *, with_shortfall: bool) -> Unplaced:
        """Return the reason, how many nodes are allowed at all, and on demand the nearest node's shortfall."""
        arrays = self._arrays
        if self._at != arrays.clock or len(self._known) > _KEPT:
            self._known.clear()
            self._at = arrays.clock
        key = (pod.requests, pod.ask, pod.constraints, with_shortfall)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._explain(pod, with_shortfall)
        return Unplaced(
            pod_uid=pod.uid,
            reason=known.reason,
            detail=known.detail,
            allowed_nodes=known.allowed_nodes,
            shortfall=known.shortfall,
        )

    def _explain(self, pod: Pod, with_shortfall: bool) -> Unplaced:
        arrays = self._arrays
        if not arrays.slots:
            return Unplaced(pod_uid=pod.uid, reason=Reason.NO_NODES)
        slots = np.flatnonzero(self._eligibility.mask(pod.constraints)[: arrays.count])
        if not len(slots):
            return Unplaced(
                pod_uid=pod.uid,
                reason=Reason.NO_NODE_ALLOWED,
                detail=f"selector, affinity, taints or cordon exclude all {len(arrays.slots)} nodes",
            )
        allowed = len(slots)
        if pod.ask is not None:
            able = slots[self._could_ever_hold(pod.ask, slots)]
            if not len(able):
                return Unplaced(
                    pod_uid=pod.uid,
                    reason=Reason.NO_SUCH_DEVICE,
                    detail=f"none of {allowed} allowed nodes has {_words(pod.ask)}{self._other_kind(pod.ask, slots)}",
                    allowed_nodes=allowed,
                )
            slots = able
        if not with_shortfall:
            return Unplaced(pod_uid=pod.uid, reason=Reason.INSUFFICIENT, allowed_nodes=allowed)
        shortfall = self._nearest(pod, slots)
        if pod.ask is not None and pod.ask.kind is AskKind.PARTITION:
            no_start = instance_misses.no_start(arrays, pod, slots, shortfall)
            if no_start is not None:
                return no_start
        missing = ", ".join(f"{amount} {name}" for name, amount in shortfall.missing)
        return Unplaced(
            pod_uid=pod.uid,
            reason=Reason.INSUFFICIENT,
            detail=f"best of {allowed} allowed nodes is {shortfall.node}, which lacks {missing}",
            allowed_nodes=allowed,
            shortfall=shortfall,
        )

    def _could_ever_hold(self, ask: DeviceAsk, slots: Ints) -> Bools:
        """Return which nodes have enough healthy devices of the right kind, model and memory, used or not, (n,)."""
        arrays = self._arrays
        if ask.kind is AskKind.PARTITION:
            return instance_misses.could_ever_hold(arrays, ask, slots)
        found: Bools = self._have_devices(ask, slots) & room.takes_kind(arrays, ask, slots)
        return found & (ask.milli_gpu <= WHOLE_MILLI)

    def _have_devices(self, ask: DeviceAsk, slots: Ints) -> Bools:
        """Return which nodes have enough healthy devices of the model and memory, whoever may be given them, (n,)."""
        arrays = self._arrays
        fit = (arrays.healthy[slots] > 0) & room.devices_of_model(arrays, ask, slots)
        total = arrays.total_mib[slots]
        fit &= (total == 0) | (total >= ask.memory_mib)
        if ask.is_one_island:
            fit = islands.roomy(fit, arrays.island[slots], ask.count) if arrays.island is not None else fit & False
        found: Bools = fit.sum(axis=1) >= ask.count
        return found

    def _other_kind(self, ask: DeviceAsk, slots: Ints) -> str:
        """Return how many nodes have the devices and give them to those alone who ask otherwise; "" = none."""
        if ask.kind is AskKind.PARTITION:
            return ""
        is_classic = ask.kind is AskKind.CLASSIC
        kept = self._have_devices(ask, slots) & (self._arrays.kind[slots] == (SHARING if is_classic else CLASSIC))
        if not kept.any():
            return ""
        takes = f"set aside for sharing and take no {labels.NVIDIA_GPU}"
        if not is_classic:
            takes = f"not set aside for sharing and take {labels.NVIDIA_GPU} alone"
        return f"; {int(kept.sum())} that have them are {takes}"

    def _nearest(self, pod: Pod, slots: Ints) -> Shortfall:
        """Return the node that lacks least: fewest kinds of things, then the smallest part of what is asked."""
        lacks = self._lacks(pod, slots)
        kinds = np.sum([amount > 0 for _, _, amount in lacks], axis=0)
        part = np.sum([amount / max(1, wanted) for _, wanted, amount in lacks], axis=0)
        nearest = int(np.lexsort((self._arrays.order[slots], part, kinds))[0])
        return Shortfall(
            node=self._arrays.name(int(slots[nearest])),
            missing=tuple((name, int(amount[nearest])) for name, _, amount in lacks if amount[nearest] > 0),
        )

    def _lacks(self, pod: Pod, slots: Ints) -> list[tuple[str, int, Ints]]:
        """Return (resource, asked, missing by node) for everything the pod asks."""
        arrays = self._arrays
        lacks = [
            (name, wanted, (wanted - free[slots]).clip(0) if wanted > 0 else np.zeros(len(slots), np.int64))
            for name, wanted, free in _amounts(arrays, pod.requests)
        ]
        ask = pod.ask
        if ask is None:
            return lacks
        if ask.kind is AskKind.PARTITION:
            return [*lacks, instance_misses.lacks(arrays, ask, slots)]
        if ask.is_whole:
            free = room.whole_devices(arrays, ask, slots).sum(axis=1)
            return [*lacks, ("devices", ask.count, (ask.count - free).clip(0))]
        return lacks + self._share_lacks(ask, slots)

    def _share_lacks(self, ask: DeviceAsk, slots: Ints) -> list[tuple[str, int, Ints]]:
        """Return what the `count`-th best device of each node lacks."""
        arrays = self._arrays
        usable = (arrays.healthy[slots] > 0) & room.devices_of_model(arrays, ask, slots)
        least = np.maximum(ask.milli_gpu, arrays.total_mib[slots] == 0)
        milli = (least - arrays.free_milli[slots]).clip(0)
        mib = np.where(arrays.total_mib[slots] > 0, (ask.memory_mib - arrays.free_mib[slots]).clip(0), 0)
        part = milli / WHOLE_MILLI + mib / max(1, ask.memory_mib)
        order = np.argsort(np.where(usable, part, np.inf), axis=1, kind="stable")
        last = order[:, ask.count - 1]
        rows = np.arange(len(slots))
        return [
            ("milli_gpu", ask.milli_gpu, milli[rows, last]),
            ("gpu_memory_mib", ask.memory_mib, mib[rows, last]),
        ]


def _amounts(arrays: Arrays, wanted: Resources) -> list[tuple[str, int, Ints]]:
    return [
        ("milli_cpu", wanted.milli_cpu, arrays.milli_cpu),
        ("memory_bytes", wanted.memory_bytes, arrays.memory_bytes),
        ("pod_slots", wanted.pod_slots, arrays.pod_slots),
        *((name, amount, arrays.extended(name)) for name, amount in wanted.extended),
    ]


def _words(ask: DeviceAsk) -> str:
    if ask.kind is AskKind.PARTITION:
        return instance_misses.words(ask)
    device = "device" if ask.count == 1 else "devices"
    kind = f"whole {device}"
    if not ask.is_whole:
        kind = f"{device} to share at {ask.milli_gpu} milli-GPU, {ask.memory_mib} MiB"
    models = f" of model {' or '.join(ask.models)}" if ask.models else ""
    return f"{ask.count} healthy {kind}{models}{' of one island' if ask.is_one_island else ''}"
