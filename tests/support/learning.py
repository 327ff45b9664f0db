"""Made-up cycles for the vertical axis: what replicas hold is given, what they answer follows from a curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from scaler.decision import Lesson
from scaler.policy import Policy, Promise, TargetBounds
from scaler.vertical.learn import learn
from scaler.vertical.learner import Learner
from scaler.vertical.values import Cycle

Curve = Callable[[np.ndarray], np.ndarray]


def eight_cores(k: np.ndarray) -> np.ndarray:
    """0.1 s alone, and 8 at once."""
    return 0.1 * np.maximum(k / 8, 1.0)


def a_learning_policy(
    initial: float = 7.0, *, latency_s: float | None = None, error_ratio: float = 0.02, **bounds: Any
) -> Policy:
    """Build a valid policy whose target is learnt."""
    policy = Policy(
        min_replicas=1,
        max_replicas=100,
        target=TargetBounds(**{"initial": initial, "minimum": 0.5, "maximum": 500.0} | bounds),
        promise=Promise(latency_s=latency_s, error_ratio=error_ratio),
    )
    assert policy.problems() == ()
    return policy


def a_cycle(
    k: np.ndarray,
    *,
    curve: Curve = eight_cores,
    error_ratio: Curve | float = 0.0,
    memory_ratio: Curve | float = np.nan,
    resources: Mapping[str, Curve] | None = None,
    p95_times: float = 2.0,
    **words: Any,
) -> Cycle:
    """Build a cycle from k, shape (replicas, seconds): whole completions, errors in parts, nothing random."""
    replicas, seconds = k.shape
    flat = k.ravel().astype(float)
    latency = curve(flat)
    completions = np.rint(flat / latency)
    columns: dict[str, Any] = {
        "replica": np.repeat(np.arange(replicas), seconds),
        "second": np.tile(np.arange(seconds, dtype=float), replicas),
        "in_flight": flat,
        "latency_s": latency,
        "p95_s": p95_times * latency,
        "completions": completions,
        "errors": completions * _of(error_ratio, flat),
        "memory_ratio": _of(memory_ratio, flat),
        "size": np.full(flat.size, np.nan),
        "resources": {name: each(flat) for name, each in (resources or {}).items()},
        "names": tuple(f"pod-{index}" for index in range(replicas)),
        "replicas": replicas,
    }
    return Cycle(**columns | words)


def _of(value: Curve | float, k: np.ndarray) -> np.ndarray:
    return value(k) if callable(value) else np.full(k.size, float(value))


def spread_k(limit: float, *, replicas: int = 4, seconds: int = 30, low: float = 0.3, high: float = 1.2) -> np.ndarray:
    """Return in-flight counts that wander slowly between two shares of L, each replica at its own phase."""
    phase = np.linspace(0, 1, replicas, endpoint=False)[:, None]
    wave = np.abs(((np.arange(seconds) / seconds + phase) % 1.0) * 2 - 1)
    return limit * (low + (high - low) * wave)


class Pupil:
    """A learner that is shown cycles.

    Attributes:
        learner: State.
        lessons: All so far.
    """

    def __init__(self, policy: Policy, learner: Learner | None = None) -> None:
        self.policy = policy
        self.learner = learner or Learner.fresh(policy)
        self.lessons: list[Lesson] = []

    def see(self, cycle: Cycle) -> Lesson:
        """Learn from one cycle."""
        lesson, self.learner = learn(cycle, self.learner, self.policy, 30.0 * len(self.lessons))
        self.lessons.append(lesson)
        return lesson

    def see_many(self, cycles: int, **words: Any) -> Lesson:
        """Learn from cycles whose load follows L."""
        for _ in range(cycles):
            self.see(a_cycle(spread_k(self.learner.limit), **words))
        return self.lessons[-1]
