"""What the learnt curve says each replica could hold if there were fewer: numbers for the horizontal axis."""

from __future__ import annotations

import math

from scaler.horizontal.survivors import Survivors
from scaler.policy import Policy
from scaler.vertical.knee import knee
from scaler.vertical.learner import Learner
from scaler.vertical.thresholds import MEMORY_RATIO


def survivors(learner: Learner, policy: Policy) -> Survivors:
    """Return the most requests in progress per replica at which p95 stays promised, and memory under 90 %.

    A latency limit of 0 says that no concurrency was seen to meet the promise.
    """
    latency: float | None = None
    if policy.promise.latency_s is not None and learner.curve is not None:
        found = knee(learner.curve, learner.bins.points(), policy.promise.latency_s)
        latency = 0.0 if found.latency_k is None else found.latency_k
        latency = latency if math.isfinite(latency) else None
    return Survivors(latency_limit_target=latency, memory_limit_target=learner.memory.reaches(MEMORY_RATIO))
