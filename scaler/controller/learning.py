"""The vertical axis of one endpoint: it learns from one make of replica at a time. It awaits nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scaler.controller.census import Census, Make
from scaler.controller.cycle import CycleRows
from scaler.controller.facts import Kept, Known
from scaler.controller.join import Row
from scaler.decision import Lesson, Sizing
from scaler.horizontal.survivors import Survivors
from scaler.policy import Policy
from scaler.vertical.learn import learn
from scaler.vertical.learner import Learner
from scaler.vertical.lesson import sizing as sizing_of
from scaler.vertical.service import longest_service_s
from scaler.vertical.survivors import survivors

_MOST_MAKES = 8


def to_learn_from(present: Make | None, ready: Mapping[Make, int]) -> Make | None:
    """Return the make with the most Ready replicas; the present one stays while it has at least half as many.

    Else a fleet of two makes would begin anew whenever one replica comes or goes.
    """
    if not ready:
        return present
    most = max(ready, key=lambda make: (ready[make], make))
    return present if present is not None and 2 * ready.get(present, 0) >= ready[most] else most


class Learning:
    """What one replica of an endpoint may hold, and how that came to be known.

    Another make (version of the pod template, GPUs of the node) has another curve and another memory: its bins are
    empty at first, and it begins at what was learnt of it before, else at what holds now.

    Attributes:
        make: Whose replicas are learnt from; None = none was Ready yet.
        sizing: What one replica may hold.
        lesson: The last; None = none yet, or nothing is learnt.
        survivors: What the curve says of a smaller fleet; None = nothing yet.
        service_limit_s: Longest that a request may be believed to take; None = no curve tells.
    """

    def __init__(self, policy: Policy, kept: Kept, now_s: float) -> None:
        self.make: Make | None = None
        self.lesson: Lesson | None = None
        self.survivors: Survivors | None = None
        self.service_limit_s: float | None = None
        self._learner = Learner.fresh(policy)
        if kept.learnt is not None:
            self._learner = Learner.restored(policy, kept.learnt, kept.validated)
        self._rows = CycleRows(now_s)
        self._made_at_s = float("-inf")
        self._before: dict[Make, tuple[float, float]] = {}
        self.sizing = _sizing(policy, self._learner)

    @property
    def learnt(self) -> float:
        """Return L."""
        return self._learner.limit

    @property
    def validated(self) -> float:
        """Return the part of L that was really held."""
        return self._learner.validated

    @property
    def begun_s(self) -> float:
        """Return when the present cycle began."""
        return self._rows.begun_s

    def apply(self, policy: Policy, *, was_learnt: bool) -> None:
        """Go on under other bounds, keeping what was learnt as far as they allow."""
        self._learner = self._learner.within(policy) if was_learnt else Learner.fresh(policy)
        self.lesson = None
        self._conclude(policy)

    def take(self, at_s: float, rows: Sequence[Row], seen: Census, known: Known) -> None:
        """Take one second of the serving replicas; those of another make are left out."""
        makes = seen.makes
        if self.make is None:
            self.make = to_learn_from(None, seen.ready_by_make)
        if seen.is_mixed:
            rows = [row for row in rows if makes.get(row.pod) == self.make]
        self._rows.add(at_s, rows, known.metrics)

    def turn(self, seen: Census, known: Known, policy: Policy, now_s: float, *, is_late: bool) -> Lesson:
        """Learn from the cycle that ends now."""
        self._follow(to_learn_from(self.make, seen.ready_by_make), policy, now_s)
        cycle, self._rows = self._rows.close(
            now_s,
            replicas=seen.fleet.ready,
            starting=seen.fleet.starting,
            is_late=is_late,
            since_rollout_s=now_s - max(known.changed_at_s, self._made_at_s),
        )
        self.lesson, self._learner = learn(cycle, self._learner, policy, now_s)
        self._conclude(policy)
        return self.lesson

    def _follow(self, make: Make | None, policy: Policy, now_s: float) -> None:
        if make == self.make or make is None:
            return
        if self.make is not None:
            self._before[self.make] = (self._learner.limit, self._learner.validated)
            for known in list(self._before)[:-_MOST_MAKES]:
                del self._before[known]
            learnt, validated = self._before.pop(make, (self._learner.limit, self._learner.validated))
            self._learner = Learner.restored(policy, learnt, validated)
            self._rows = CycleRows(now_s)
            self._made_at_s = now_s
        self.make = make

    def _conclude(self, policy: Policy) -> None:
        """Derive what others read from what is known now."""
        self.sizing = _sizing(policy, self._learner)
        self.survivors = self.service_limit_s = None
        if policy.target.is_learnt:
            self.survivors = survivors(self._learner, policy)
            self.service_limit_s = longest_service_s(self._learner, self.sizing.target)


def _sizing(policy: Policy, learner: Learner) -> Sizing:
    """Return the person's word, or what is learnt."""
    if not policy.target.is_learnt:
        return Sizing(target=policy.target.initial, slots=policy.target.limit)
    return sizing_of(learner, policy)
