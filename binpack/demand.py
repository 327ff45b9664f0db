"""How much a pod asks, what leaving it out costs, and in which order a batch is gone through."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fleet.plan import Unplaced
from fleet.pod import Pod

# What leaving out one milli-GPU of demand costs, in milli-GPU of potential: more than placing it ever does.
UNPLACED_PRICE: Final = 1000
LONG_WAIT_S: Final = 3600.0
_LEAST_DEMAND_MILLI: Final = 100
_MOST_DEMAND_MILLI: Final = 1_000_000
_MILLI_CPU_PER_MILLI_GPU: Final = 16  # a machine of the openb trace has 17 cores per GPU
_MIB_PER_MILLI_GPU: Final = 80  # for a share of memory alone: as on a card of 80 GiB


def hardest_first(pod: Pod) -> tuple[int, int, bool, int, int, int, float, str, str]:
    """Order by priority, then several devices before one, the choosy, the big, those that wait longest, by name."""
    ask = pod.ask
    return (
        -pod.priority,
        -ask.count if ask is not None and ask.count > 1 else 0,
        not (ask is not None and ask.models),
        -(ask.total_milli_gpu if ask is not None else 0),
        -pod.requests.milli_cpu,
        -pod.requests.memory_bytes,
        pod.created_at_s,
        pod.key,
        pod.uid,
    )


def in_turn(pod: Pod, waited_s: float) -> tuple[object, ...]:
    """Order waiting pods where room is short: by priority, then by waiting time times the square of the demand.

    Room for a big pod comes rarely, and whoever is first takes it; a small one soon finds room again. So of two the
    bigger goes first, unless the other has waited longer by more than the square of how much bigger it is: nobody is
    passed over for ever. Up to an hour all count as waiting equally.
    """
    demand = demand_milli(pod)
    return (-pod.priority, -max(LONG_WAIT_S, waited_s) * demand * demand, hardest_first(pod))


def demand_milli(pod: Pod) -> int:
    """Return how much demand the pod is, in milli-GPU, CPU counted by what machines have of both: 100 to a million."""
    ask, of_devices = pod.ask, 0
    if ask is not None:
        of_devices = ask.total_milli_gpu or ask.count * ask.memory_mib // _MIB_PER_MILLI_GPU
    demand = of_devices + max(0, pod.requests.milli_cpu) // _MILLI_CPU_PER_MILLI_GPU
    return min(_MOST_DEMAND_MILLI, max(_LEAST_DEMAND_MILLI, demand))


def prices(pods: Iterable[Pod]) -> dict[str, int]:
    """Return by uid what leaving each pod out costs: any pod outweighs the whole batch's pods of lower priority."""
    demand = {pod.uid: (pod.priority, demand_milli(pod)) for pod in pods}
    tiers = sorted({priority for priority, _ in demand.values()})
    step = 1 + sum(milli for _, milli in demand.values())
    factor = {priority: UNPLACED_PRICE * step**rank for rank, priority in enumerate(tiers)}
    return {uid: factor[priority] * milli for uid, (priority, milli) in demand.items()}


def price_left_out(pods: Iterable[Pod], unplaced: Iterable[Unplaced]) -> int:
    """Return what leaving these pods of the batch out costs, in milli-GPU."""
    price = prices(pods)
    return sum(price[one.pod_uid] for one in unplaced)
