"""Which nodes and devices can hold a request now: the hard rules, over many nodes at once.

Amounts asked are at most `HUGE`; `bounded` sees to that where pods come in.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from binpack.index import islands
from binpack.index.columns import CLASSIC, HUGE, SHARING, Bools, Columns, Floats, Ints, between
from binpack.index.eligibility import Eligibility
from fleet import labels
from fleet.device import WHOLE_MILLI, AskKind, DeviceAsk
from fleet.pod import Pod
from fleet.resources import Resources

_LEFT_TIE = 2.0**-10  # of an instance that stays free on the node


def bounded(pod: Pod) -> Pod:
    """Return the pod with amounts that int64 arrays can compare: what is absurd stays absurd, but does not overflow."""
    wanted, mib = pod.requests, pod.ask.memory_mib if pod.ask is not None else 0
    if max(wanted.milli_cpu, wanted.memory_bytes, wanted.pod_slots, mib, *(n for _, n in wanted.extended)) <= HUGE:
        return pod
    return replace(
        pod,
        requests=Resources(
            milli_cpu=min(wanted.milli_cpu, HUGE),
            memory_bytes=min(wanted.memory_bytes, HUGE),
            pod_slots=min(wanted.pod_slots, HUGE),
            extended=tuple((name, min(amount, HUGE)) for name, amount in wanted.extended),
        ),
        ask=replace(pod.ask, memory_mib=min(mib, HUGE)) if pod.ask is not None else None,
    )


def amounts_suffice(arrays: Columns, pod: Pod) -> Bools:
    """Return, over slots (count,), where memory, pod slots and other resources suffice; CPU is judged with the score.

    A resource of which nothing is asked is never short, even on an over-committed node.
    """
    count = arrays.count
    wanted = pod.requests
    found = arrays.live[:count] > 0
    if wanted.memory_bytes > 0:
        found &= arrays.memory_bytes[:count] >= wanted.memory_bytes
    if wanted.pod_slots > 0:
        found &= arrays.pod_slots[:count] >= wanted.pod_slots
    for name, amount in wanted.extended:
        if amount > 0:
            found &= arrays.extended(name)[:count] >= amount
    return found


def nodes_with_room(arrays: Columns, eligibility: Eligibility, pod: Pod) -> Bools:
    """Return where constraints and amounts other than CPU and devices allow the pod, (count,); a fresh array."""
    found = amounts_suffice(arrays, pod)
    found &= eligibility.mask(pod.constraints)[: arrays.count]
    return found


def instances_left(arrays: Columns, pod: Pod) -> Floats:
    """Return best fit as a tie-break for a pod that asks for advertised MIG instances, (count,); 0 for others.

    Which card an instance is of is the device plugin's choice, and instances of one profile are worth the same: all
    that can be saved is nodes on which none is in use.
    """
    count = arrays.count
    if not any(name.startswith(labels.NVIDIA_MIG_PREFIX) for name, _ in pod.requests.extended):
        return np.zeros(count)
    left = np.zeros(count, np.int64)
    for name in arrays.extended_names():
        if name.startswith(labels.NVIDIA_MIG_PREFIX):
            left += between(arrays.extended(name)[:count], 0, 2**20)
    return np.multiply(left, _LEFT_TIE, dtype=np.float64)


def cpu_suffices(arrays: Columns, milli_cpu: int, slots: Ints) -> Bools:
    """Return where the free CPU covers the request, (n,)."""
    if milli_cpu <= 0:
        return np.ones(len(slots), np.bool_)
    found: Bools = arrays.milli_cpu[slots] >= milli_cpu
    return found


def takes_kind(arrays: Columns, ask: DeviceAsk, slots: Ints) -> Bools:
    """Return which nodes keep the books that the ask is written in, (n,); a blocked node keeps none."""
    found: Bools = arrays.kind[slots] == (CLASSIC if ask.kind is AskKind.CLASSIC else SHARING)
    return found


def devices_of_model(arrays: Columns, ask: DeviceAsk, slots: Ints) -> Bools:
    """Return which devices are of an acceptable model, (n, D); all of them where any will do."""
    if not ask.models:
        return np.ones((len(slots), arrays.width), np.bool_)
    found: Bools = arrays.models.ranks(ask.models)[arrays.model[slots]] >= 0
    return found


def whole_devices(arrays: Columns, ask: DeviceAsk, slots: Ints) -> Bools:
    """Return which devices can be given as a whole, (n, D)."""
    found = arrays.untouched[slots] > 0
    if ask.models:
        found &= devices_of_model(arrays, ask, slots)
    if ask.memory_mib > 0:
        total = arrays.total_mib[slots]
        found &= (total == 0) | (total >= ask.memory_mib)
    if ask.is_one_island:
        found = islands.roomy(found, arrays.island[slots], ask.count) if arrays.island is not None else found & False
    return found


def shared_devices(arrays: Columns, ask: DeviceAsk, slots: Ints) -> tuple[Bools, Ints]:
    """Return which devices can give the share, (n, D), and the residual each would keep, (n, D), 0..1000."""
    milli, mib = ask.milli_gpu, ask.memory_mib
    free, total = arrays.free_milli[slots], arrays.total_mib[slots]
    found = arrays.healthy[slots] > 0
    found &= free >= np.maximum(milli, total == 0)  # see `fit.least_milli`
    if ask.models:
        found &= devices_of_model(arrays, ask, slots)
    after = between(free - milli, 0, WHOLE_MILLI)
    if mib > 0 or total.any():
        left = arrays.free_mib[slots] - mib
        is_known = total > 0
        if mib > 0:
            found &= ~is_known | (left >= 0)
        by_memory = WHOLE_MILLI * between(left, 0, 2**50) // np.maximum(total, 1)
        after = np.where(is_known, np.minimum(after, by_memory), after)
    return found, after
