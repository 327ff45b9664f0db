"""An endpoint under the horizontal axis with made-up seconds: policy, track, state and fleet in one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from scaler.decision import Decision, Sizing
from scaler.horizontal.decide import decide
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.track import Track
from scaler.policy import Behavior, Policy, TargetBounds
from scaler.seen import Fleet, Sample

PERIOD_S = 5


def a_policy(**words: Any) -> Policy:
    """Build a valid policy; words of Behavior and TargetBounds are sorted to where they belong."""
    behavior = {key: words.pop(key) for key in list(words) if key in Behavior.__dataclass_fields__}
    target = {key: words.pop(key) for key in list(words) if key in TargetBounds.__dataclass_fields__}
    policy = Policy(
        **{"min_replicas": 1, "max_replicas": 100} | words,
        target=TargetBounds(**{"initial": 5.6, "limit": 8.0} | target),
        behavior=Behavior(**behavior),
    )
    assert policy.problems() == ()
    return policy


class Endpoint:
    """Feeds a second at a time and follows decisions after `start_s`; a perfect balancer where rates are given.

    Attributes:
        ready: Serving.
        starting_s: When each that is not Ready was ordered.
        decisions: All so far.
    """

    def __init__(
        self, policy: Policy, replicas: int, *, start_s: float = 0.0, plan_s: float = 60.0, now_s: int = 0
    ) -> None:
        self.policy = policy
        self.sizing = Sizing(target=policy.target.initial, slots=policy.target.limit)
        self.now_s = now_s
        self.ready, self.starting_s = replicas, list[float]()
        self.start_s, self.plan_s = start_s, plan_s
        self.decisions: list[Decision] = []
        self.restart()

    def restart(self) -> None:
        """Forget everything, as a controller that crashed."""
        self.track = Track(self.policy, float(self.now_s))
        self.state = HorizontalState.found(self.ready + len(self.starting_s), float(self.now_s))

    def resize(self, target: float, slots: float | None) -> None:
        """Take another size of replica, as the vertical axis says."""
        self.sizing = Sizing(target=target, slots=slots)
        self.track.resize(self.policy, self.sizing)

    @property
    def fleet(self) -> Fleet:
        """Return the counts."""
        return Fleet(ready=self.ready, starting_since_s=tuple(self.starting_s))

    def live(self, seconds: int, sample: Callable[[int], dict[str, Any] | None]) -> Iterator[Decision]:
        """Live on; `sample` returns the words of one second, None where no sample comes. Yields each decision."""
        for _ in range(seconds):
            self.now_s += 1
            due = [at_s for at_s in self.starting_s if at_s + self.start_s <= self.now_s]
            self.ready += len(due)
            self.starting_s = [at_s for at_s in self.starting_s if at_s not in due]
            words = sample(self.now_s)
            if words is not None:
                self.track.see(Sample(at_s=float(self.now_s), **words), self.fleet)
            if self.now_s % PERIOD_S == 0:
                yield self._decide()

    def steady(self, seconds: int, rate_rps: float, service_s: float = 1.0, queued: float = 0.0) -> list[Decision]:
        """Live on under a rate that all see at once."""
        words = {
            "arrivals": rate_rps,
            "completions": rate_rps,
            "in_flight": rate_rps * service_s,
            "queued": queued,
        }
        return list(self.live(seconds, lambda _: words))

    def _decide(self) -> Decision:
        decision, self.state = decide(
            self.track, self.fleet, self.sizing, self.policy, self.state, float(self.now_s), start_time_s=self.plan_s
        )
        self.decisions.append(decision)
        surplus = decision.desired - self.fleet.replicas
        if surplus > 0 and self.start_s:
            self.starting_s += [float(self.now_s)] * surplus
        elif surplus > 0:
            self.ready += surplus
        else:
            cancelled = min(-surplus, len(self.starting_s))
            self.starting_s = self.starting_s[: len(self.starting_s) - cancelled]
            self.ready += surplus + cancelled
        return decision
