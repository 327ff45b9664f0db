"""How long a request may be believed to take in a replica, by the learnt curve."""

from __future__ import annotations

import numpy as np

from scaler.vertical.learner import Learner

_MARGIN_RATIO = 1.1
_SEEN_RATIO = 1.1  # the curve judges only where it was seen


def longest_service_s(learner: Learner, target: float) -> float | None:
    """Return 1.1 R(target), the bound of S; None where the curve cannot tell.

    Requests in progress over completions tell the latency of now, which in a full fleet is that of a full replica: more
    replicas would then be ordered for being slow. Held by tests/scenarios/test_both_axes.py.

    Args:
        learner: After its cycle.
        target: Requests in progress per replica that the horizontal axis aims at.
    """
    curve = learner.curve
    if curve is None or learner.shift.cycles or target > _SEEN_RATIO * curve.highest_k:
        return None
    fitted_s = float(curve.latency_s(np.array([target]))[0])
    return _MARGIN_RATIO * fitted_s if fitted_s > 0 else None
