"""What happens to a learnt limit when something goes wrong: each mode changes a plant that was started at its knee.

A mode is called before every cycle and may replace the learner (a restart).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.scaler.knee_plant import Plant
from scaler.policy import Policy
from scaler.vertical.learner import Learner

FROM_CYCLE = 12
Disturb = Callable[[Plant, int, int, Learner, Policy], Learner]


def overload(plant: Plant, lane: int, cycle: int, learner: Learner, policy: Policy) -> Learner:
    """Half more than there is room for, and no replica is added."""
    plant.level[lane] = learner.limit
    plant.demand[lane] = 1.5
    plant.relief[lane] = 1.0
    return learner


def slow_spell(plant: Plant, lane: int, cycle: int, learner: Learner, policy: Policy) -> Learner:
    """Everything takes twice as long for 15 minutes."""
    plant.slowness[lane] = 2.0 if FROM_CYCLE <= cycle < FROM_CYCLE + 30 else 1.0
    return learner


def idle(plant: Plant, lane: int, cycle: int, learner: Learner, policy: Policy) -> Learner:
    """No requests for 10 minutes."""
    plant.demand[lane] = 0.0 if FROM_CYCLE <= cycle < FROM_CYCLE + 20 else 1.0
    return learner


def little_load(plant: Plant, lane: int, cycle: int, learner: Learner, policy: Policy) -> Learner:
    """15 % of the load, for ever."""
    plant.demand[lane] = 0.15 if cycle >= FROM_CYCLE else 1.0
    return learner


def twice_the_size_known(plant: Plant, lane: int, cycle: int, learner: Learner, policy: Policy) -> Learner:
    """Requests get twice as large, and the signals say so."""
    is_large = cycle >= FROM_CYCLE
    plant.slowness[lane] = plant.size[lane] = 2.0 if is_large else 1.0
    return learner


def twice_the_size(plant: Plant, lane: int, cycle: int, learner: Learner, policy: Policy) -> Learner:
    """Requests get twice as large, and nothing says so."""
    plant.slowness[lane] = 2.0 if cycle >= FROM_CYCLE else 1.0
    return learner


def unrelated_errors(plant: Plant, lane: int, cycle: int, learner: Learner, policy: Policy) -> Learner:
    """5 % fail, whatever the load."""
    plant.unrelated_error_ratio[lane] = 0.05 if cycle >= FROM_CYCLE else 0.0
    return learner


def restart(plant: Plant, lane: int, cycle: int, learner: Learner, policy: Policy) -> Learner:
    """A new process that knows only L."""
    return Learner.restored(policy, learner.limit) if cycle == FROM_CYCLE else learner


def slow_drift(plant: Plant, lane: int, cycle: int, learner: Learner, policy: Policy) -> Learner:
    """Latency doubles over 40 cycles, as with a leak or longer and longer answers."""
    plant.slowness[lane] = 1 + min(max(cycle - FROM_CYCLE, 0) / 40, 1.0)
    return learner


MODES: Mapping[str, Disturb] = {
    "overload at the hard limit": overload,
    "latency x2 for 15 min": slow_spell,
    "idle for 10 min": idle,
    "15 % load": little_load,
    "size x2, known": twice_the_size_known,
    "size x2, unknown": twice_the_size,
    "5 % unrelated errors": unrelated_errors,
    "restart with only L kept": restart,
    "slow drift to x2": slow_drift,
}
