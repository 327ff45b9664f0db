"""The waiting room: who waits, since when, why, what was said, when to hand over. Pure; time is an argument."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from binpack.company import COMPANY_REASONS
from fleet.plan import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One waiting pod.

    Attributes:
        since_s: When it first was without a berth for this kind of reason, room or something else (monotonic).
        found_at_s: When this reason was found (monotonic); -inf = never.
        said: Reason last written to its condition, with the sentence; ("", "") = nothing yet.
        said_at_s: When that was; -inf = never.
    """

    uid: str
    reason: Reason
    text: str
    since_s: float
    found_at_s: float = float("-inf")
    said: tuple[str, str] = ("", "")
    said_at_s: float = float("-inf")


class WaitingRoom:
    """Remembers waiting pods; decides what to say and whom to hand over.

    A condition is rewritten at once when its reason changes, and at most every `repeat_s` when only the numbers do:
    on a busy cluster the nearest node changes with every binding, and nobody reads that many updates. Of reasons whose
    sentence names the cause itself it is rewritten every `cause_repeat_s`: a claim that was not made yet is, a moment
    later, one whose class is missing.
    """

    def __init__(self, *, hand_over_after_s: float, repeat_s: float = 30.0, cause_repeat_s: float = 3.0) -> None:
        self._pods: dict[str, Waiting] = {}
        self._hand_over_after_s = hand_over_after_s
        self._repeat_s = repeat_s
        self._cause_repeat_s = cause_repeat_s
        self._expected: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> Waiting | None:
        """Return the record of one pod, None if it does not wait."""
        return self._pods.get(uid)

    def enter(self, uid: str, reason: Reason, text: str, now_s: float) -> bool:
        """Record that the pod waits for this reason; return True if that must be said now."""
        old = self._pods.get(uid)
        if old is None:
            new = Waiting(uid=uid, reason=reason, text=text, since_s=now_s, found_at_s=now_s)
        else:
            new = replace(old, reason=reason, text=text, found_at_s=now_s)
            if reason in CAPACITY and old.reason not in CAPACITY:
                new = replace(new, since_s=now_s)  # until now it did not wait for room
        self._pods[uid] = new
        if new.said == (reason.value, text):
            return False
        return new.said[0] != reason.value or self._may_repeat(new, now_s)

    def unsaid(self, now_s: float) -> dict[str, str]:
        """Return, by uid, the present text of pods whose condition has said an older one for long enough."""
        return {
            uid: pod.text
            for uid, pod in self._pods.items()
            if pod.said[1] and pod.said != (pod.reason.value, pod.text) and self._may_repeat(pod, now_s)
        }

    def _may_repeat(self, pod: Waiting, now_s: float) -> bool:
        pause_s = self._cause_repeat_s if pod.reason in NAMES_CAUSES else self._repeat_s
        return now_s - pod.said_at_s >= pause_s

    def said(self, uid: str, now_s: float) -> None:
        """Record that the present reason was written to the pod."""
        pod = self._pods.get(uid)
        if pod is not None:
            self._pods[uid] = replace(pod, said=(pod.reason.value, pod.text), said_at_s=now_s)

    def leave(self, uid: str) -> None:
        """Forget a pod that was placed, handed over or deleted."""
        self._pods.pop(uid, None)

    def expect(self, uids: frozenset[str]) -> None:
        """Note for whom room is being made: until that is over they are not handed over, however long they wait."""
        self._expected = uids

    def due_for_hand_over(self, now_s: float) -> tuple[str, ...]:
        """Return uids of pods that have waited for capacity long enough, longest wait first."""
        due = [
            (pod.since_s, uid)
            for uid, pod in self._pods.items()
            if pod.reason is Reason.LEFT_TO_SCHEDULER
            or (
                pod.reason in HANDED_OVER
                and now_s - pod.since_s >= self._hand_over_after_s
                and uid not in self._expected
            )
        ]
        return tuple(uid for _, uid in sorted(due))

    def counts(self) -> dict[str, int]:
        """Return how many pods wait, by reason: the gauge that operators alert on."""
        return dict(Counter(pod.reason.value for pod in self._pods.values()))


# A pod that a warm pool serves waits for room like others, but the pool orders the node: two owners would order two.
# A node autoscaler knows rules between pods as well: one more node may be what they ask.
HANDED_OVER = (
    frozenset(
        {Reason.NO_NODES, Reason.NO_NODE_ALLOWED, Reason.NO_SUCH_DEVICE, Reason.NO_LEGAL_START, Reason.INSUFFICIENT}
    )
    | {Reason.CLAIM_UNSATISFIED}
    | COMPANY_REASONS
)
CAPACITY = HANDED_OVER | {Reason.NO_WARM_NODE}
NAMES_CAUSES = frozenset({Reason.CLAIM_PENDING, Reason.VOLUME})
