"""When a batch of gated pods closes: after a pause, at a longest wait, or when it is full. Time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """How long pods are collected before they are planned together.

    Attributes:
        idle_s: The batch closes once no pod has arrived for this long.
        longest_s: It closes this long after its first pod, whatever still arrives.
        most_pods: It closes at once with this many pods.
    """

    idle_s: float = 0.02
    longest_s: float = 0.2
    most_pods: int = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A batch that is being collected; every time is on one monotonic clock."""

    opened_at_s: float
    last_at_s: float
    pods: int = 1


def arrived(window: Window | None, now_s: float, pods: int = 1) -> Window:
    """Return the window after `pods` more pods came; None opens one.

    A clock that steps back does not move the last arrival back.
    """
    if window is None:
        return Window(opened_at_s=now_s, last_at_s=now_s, pods=pods)
    return replace(window, last_at_s=max(window.last_at_s, now_s), pods=window.pods + pods)


def closes_at_s(window: Window, policy: BatchPolicy) -> float:
    """Return when the batch closes if no further pod comes; a full batch has closed already."""
    if window.pods >= policy.most_pods:
        return window.last_at_s
    return min(window.last_at_s + policy.idle_s, window.opened_at_s + policy.longest_s)


def wait_s(window: Window, policy: BatchPolicy, now_s: float) -> float:
    """Return how long to wait before the batch closes; 0.0 = plan it now."""
    return max(0.0, closes_at_s(window, policy) - now_s)
