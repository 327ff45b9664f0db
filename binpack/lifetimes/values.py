"""What a run in which pods leave is asked, and what it measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from binpack.simulate import MIXES, OURS, POLICIES
from fleet.pod import Pod

LIFETIME_POLICIES: Final = tuple(policy for policy in POLICIES if policy != "clustering")
"""Clustering remembers kinds of pods per node and is defined for pods that stay."""
OWN, ARRIVAL, IN_TURN = ORDERS = ("own", "arrival", "in turn")
"""In which order waiting pods are tried where room appears. IN_TURN: as the planner does (`binpack.demand.in_turn`);
OWN: so for ours, and by arrival for published policies, as schedulers queue pods."""
CUT_RATIO: Final = 0.99
MOST_DAYS: Final = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """A pod of a trace and how long it lived there, seconds, >= 0."""

    pod: Pod
    life_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeSetting:
    """What to simulate.

    Attributes:
        load_ratio: Offered load: GPU time that arrives over GPU time that there is.
        days: How long is measured.
        warm_up_days: How long before that; None = the longest life, after which a cluster without limits would have
            forgotten that it started empty.
        mix: As in the openb protocol: "given" = the policy knows the demand mix, "learn" = it learns from arrivals.
        moves_ratio: Pods moved within any hour, at most this part of the pods in place; 0 = placed pods stay.
        order: One of `ORDERS`.
    """

    policy: str = OURS
    seed: int = 42
    load_ratio: float = 1.0
    days: float = 30.0
    warm_up_days: float | None = None
    mix: str = MIXES[0]
    moves_ratio: float = 0.0
    order: str = OWN

    @property
    def is_in_turn(self) -> bool:
        """Return whether waiting pods are tried as the planner does, not by arrival."""
        return self.order == IN_TURN or (self.order == OWN and self.policy == OURS)

    def problems(self) -> list[str]:
        """Return everything that is wrong with the setting."""
        wrong = []
        if self.policy not in LIFETIME_POLICIES:
            wrong.append(f"policy {self.policy!r} is none of {', '.join(LIFETIME_POLICIES)}")
        if not 0 < self.load_ratio <= 10:
            wrong.append(f"lifetimes is {self.load_ratio}, wanted more than 0 and at most 10")
        if not 0 < self.days <= MOST_DAYS:
            wrong.append(f"days is {self.days}, wanted more than 0 and at most {MOST_DAYS}")
        if self.warm_up_days is not None and not 0 <= self.warm_up_days <= MOST_DAYS:
            wrong.append(f"warm-up is {self.warm_up_days}, wanted 0 to {MOST_DAYS}")
        if self.mix not in MIXES:
            wrong.append(f"mix {self.mix!r} is none of {', '.join(MIXES)}")
        if self.order not in ORDERS:
            wrong.append(f"order {self.order!r} is none of {', '.join(ORDERS)}")
        if not 0 <= self.moves_ratio <= 1:
            wrong.append(f"moves is {self.moves_ratio}, wanted 0 to 1")
        if self.moves_ratio > 0 and self.policy != OURS:
            wrong.append(f"only {OURS} moves pods")
        return wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeResult:
    """What one run measured, after the warm-up.

    Attributes:
        gpus: Devices of the cluster.
        arrived: Pods that arrived.
        offered_ratio: GPU time that arrived over GPU time that there was: near the load asked for, by chance not equal.
        unallocated_gpu_ratio: Mean free part of the capacity over time.
        pending_gpu_hours: GPU time asked by waiting pods, by class, over all the time they waited.
        pending_pod_hours: Waiting time by class; of CPU-only pods too.
        stranded_gpu_hours: Free GPU time while a pod that asks GPU waited.
        wanted_gpu_hours: Of it no more than what the waiting pods asked at each moment.
        waiting_at_end: Pods still waiting, by class.
        moves: Pods moved, after the warm-up.
        faults: Over-allocations and refused pods that an independent count could have placed; any is a fault.
        decision_s: Time in the policy; wall_s: the whole run.
    """

    setting: LifeSetting
    gpus: int
    arrived: int
    offered_ratio: float
    unallocated_gpu_ratio: float
    pending_gpu_hours: Mapping[str, float]
    pending_pod_hours: Mapping[str, float]
    stranded_gpu_hours: float
    wanted_gpu_hours: float
    waiting_at_end: Mapping[str, int]
    moves: int
    faults: tuple[str, ...]
    decision_s: float
    wall_s: float

    @property
    def total_pending_gpu_hours(self) -> float:
        """Return the pending GPU time of all classes."""
        return sum(self.pending_gpu_hours.values())
