"""How long a step may last: learnt from the steps that were taken, with a floor under it.

A time-out kills what it measures, so what was given up counts as a step as well: a cloud that turns slow lengthens the
time-outs instead of being ordered from again and again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from warmpool.values import COMING, NodeState, PoolSpec

_KEPT = 64
_ENOUGH = 8
_QUANTILE = 0.95
_SLACK = 3.0
_LONGEST_S = 6 * 3600.0

# Seconds a step may last before much is known of it, and never less than a third of that. Launch and registration are
# Karpenter's own limits (5 and 15 min); drivers may take a quarter of an hour (kubernetes/autoscaler#451).
_PRIOR_S = {
    NodeState.ORDERED: 300.0,
    NodeState.LAUNCHED: 900.0,
    NodeState.REGISTERED: 1800.0,
    NodeState.DEVICES: 1800.0,
    NodeState.IMAGES: 3600.0,
}
_PRIOR_LEAD_S = 3600.0
_FLOOR_RATIO = 1.0 / 3.0
# Time to replace one node, for rotation, before any lead time is known.
_PRIOR_REPLACE_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds that a tick judges by, in seconds.

    Attributes:
        warm_timeout_s: From the order (or from falling out of warm) to warm.
        step_timeout_s: Of single steps; a step that is not named has none.
        replace_s: What rotation allows for one replacement.
        silence_s: Without a sign of life, counted here, before a node counts as dead.
        settle_s: Between seeing a node closed and trusting that no pod is under way to it.
        retell_s: Before a release that had no effect is asked for again.
        image_lag_s: How late a kubelet may list an image that is mounted (it looks every 30 s).
        lost_s: How long a provider may not know a node that is there.
    """

    warm_timeout_s: float = _PRIOR_LEAD_S
    step_timeout_s: tuple[tuple[NodeState, float], ...] = ()
    replace_s: float = _PRIOR_REPLACE_S
    silence_s: float = 120.0
    settle_s: float = 10.0
    retell_s: float = 60.0
    image_lag_s: float = 60.0
    lost_s: float = 60.0

    def step_s(self, state: NodeState) -> float:
        """Return how long the step after this state may last; infinite where there is no bound."""
        return dict(self.step_timeout_s).get(state, math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """The last durations of each step and of whole lead times, in seconds, oldest first."""

    steps_s: tuple[tuple[NodeState, tuple[float, ...]], ...] = ()
    leads_s: tuple[float, ...] = field(default=())

    def step(self, state: NodeState, duration_s: float) -> StepTimes:
        """Return the times with one more step."""
        known = dict(self.steps_s)
        known[state] = (*known.get(state, ()), duration_s)[-_KEPT:]
        return replace(self, steps_s=tuple(sorted(known.items())))

    def lead(self, duration_s: float) -> StepTimes:
        """Return the times with one more lead time, from order to warm."""
        return replace(self, leads_s=(*self.leads_s, duration_s)[-_KEPT:])


def limits_of(pool: PoolSpec, times: StepTimes) -> Limits:
    """Return the bounds for a pool: clamp(3 × q95, floor, 6 h) per step and for the whole; a person's word instead."""
    known = dict(times.steps_s)
    replace_s = _quantile(times.leads_s) if len(times.leads_s) >= _ENOUGH else _PRIOR_REPLACE_S
    if pool.warm_timeout_s is not None:
        return Limits(warm_timeout_s=pool.warm_timeout_s, replace_s=min(replace_s, pool.warm_timeout_s))
    steps = tuple((state, _bound(known.get(state, ()), _PRIOR_S[state])) for state in sorted(COMING))
    return Limits(warm_timeout_s=_bound(times.leads_s, _PRIOR_LEAD_S), step_timeout_s=steps, replace_s=1.5 * replace_s)


def _bound(durations_s: tuple[float, ...], prior_s: float) -> float:
    if len(durations_s) < _ENOUGH:
        return max(prior_s, min(_LONGEST_S, _SLACK * max(durations_s, default=0.0)))
    return min(_LONGEST_S, max(_FLOOR_RATIO * prior_s, _SLACK * _quantile(durations_s)))


def _quantile(durations_s: tuple[float, ...]) -> float:
    ordered = sorted(durations_s)
    return ordered[min(len(ordered) - 1, math.ceil(_QUANTILE * len(ordered)) - 1)]
