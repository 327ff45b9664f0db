"""What the extender answers: verify a pin, steer to a candidate, or say why not. Pure: the time is an argument.

The planner is the only writer of device assignments. Filter is the second, independent look at them: it compares what
the planner wrote with a ledger of its own and can only agree or refuse.
"""

from __future__ import annotations

from collections.abc import KeysView, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from binpack.verification import Holdings, objection, shortage
from fleet import labels
from fleet.device import AskKind
from fleet.pod import Berth, Pod

PROMISE_S = 30.0
_BEST_SCORE = 10


class Outcome(Enum):
    """How a Filter call ended; the label of its metric."""

    FOREIGN = "foreign"  # another scheduler's pod: every node passed on
    VERIFIED = "verified"  # pinned, and the ledger agrees
    VETOED = "vetoed"  # pinned, and the ledger does not agree
    STEERED = "steered"  # sent to its first candidate still free
    NO_CANDIDATE = "no-candidate"  # none of its candidates is free and allowed
    UNPLANNED = "unplanned"  # asks for devices that only the planner gives, and was given none
    PASSED = "passed"  # needs no record: handed over, CPU only, of a DaemonSet
    BEHIND = "behind"  # the scheduler has seen more of the pod than the ledger: to be asked again
    NOT_SYNCED = "not-synced"  # the ledger does not know the cluster yet
    UNUSABLE = "unusable"  # the request cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Filter's answer.

    Attributes:
        passed: Nodes the pod may use, a subset of those asked about.
        failed: Nodes it may not use, with the reason people see in the pod's event.
    """

    outcome: Outcome
    passed: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


class Books(Holdings, Protocol):
    """What the extender asks of a ledger."""

    def known(self) -> KeysView[str]:
        """Return the names of all nodes."""
        ...

    def assume(self, pod: Pod, berth: Berth) -> None:
        """Count a berth as held before the API says so."""
        ...

    def forget(self, uid: str) -> None:
        """Take back what was assumed."""
        ...


class Extender:
    """Answers the scheduler from a ledger that somebody else keeps up to date and tells `pod_seen` and `pod_gone` of.

    Two small memories beside the ledger. *Promises*: the candidate to which an un-pinned pod was steered stays its own
    until the pod is seen bound, or for 30 s, because the scheduler never says that it gave up. *Contested* nodes: where
    pods that are not bound yet hold something, the scheduler's own picture has too much room.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._promises: dict[str, tuple[Pod, Berth, float]] = {}
        self._holders: dict[str, str] = {}
        self._pods: dict[str, Pod] = {}
        self._contested: dict[str, int] = {}
        self._seats: dict[str, str] = {}

    @property
    def contested(self) -> int:
        """Return on how many nodes pods that are not bound yet hold something."""
        return len(self._contested)

    @property
    def promises(self) -> int:
        """Return how many promises are kept now."""
        return len(self._promises)

    def pod_seen(self, pod: Pod) -> None:
        """Take note of a pod after the ledger did."""
        uid = pod.uid
        promise = self._promises.get(uid)
        is_unbound = not pod.node_name and pod.is_live
        if is_unbound and pod.gates and pod.seat is not None and (pod.has_claims or pod.ask is not None):
            self._seats[uid] = pod.seat.node
        else:
            self._seats.pop(uid, None)
        if is_unbound and pod.scheduler_name == labels.SCHEDULER_NAME:
            self._pods[uid] = pod
        else:
            self._pods.pop(uid, None)
        if not is_unbound:
            self._break_promise(uid)
            self._note_holder(uid, "")
        elif promise is not None:
            # What the API says of an unbound pod is its first candidate; what was promised is more precise.
            self._books.assume(pod, promise[1])
            self._note_holder(uid, promise[1].node)
        else:
            self._note_holder(uid, _recorded_node(pod))
        self._keep_ready(pod.node_name or pod.pinned_node)

    def pod_gone(self, uid: str) -> None:
        """Take note that a pod's object is gone."""
        self._pods.pop(uid, None)
        self._seats.pop(uid, None)
        self._break_promise(uid)
        self._note_holder(uid, "")

    def recall(self, uid: str, version: str) -> Pod | None:
        """Return an unbound pod of ours if this is the version that was seen last: nobody need read it again."""
        pod = self._pods.get(uid)
        return pod if pod is not None and version and pod.resource_version == version else None

    def is_behind(self, pod: Pod) -> bool:
        """Return True if the scheduler has seen more than the ledger has: a refusal may then be premature.

        The pin was written after whatever made room for it, and both come by the same watch; so once the ledger holds
        the pod as the scheduler sees it, it holds what freed its devices too. A new node comes by another watch.
        """
        seen = self._pods.get(pod.uid)
        if seen is None or _version(seen) < _version(pod):
            return True
        return bool(pod.pinned_node) and self._books.state(pod.pinned_node) is None

    def filter(self, pod: Pod, names: Sequence[str], now_s: float) -> Verdict:
        """Return which of the named nodes the pod may use.

        Args:
            pod: As the scheduler sees it now.
            names: Nodes that passed the scheduler's own filters.
            now_s: Monotonic time, for the age of promises.
        """
        if pod.scheduler_name != labels.SCHEDULER_NAME:
            return Verdict(outcome=Outcome.FOREIGN, passed=names)
        if not names:
            return Verdict(outcome=Outcome.PASSED)
        self._expire(now_s)
        if pod.gates:
            return _refuse(Outcome.UNPLANNED, names, f"the pod is still gated: {', '.join(pod.gates)}")
        if pod.problems:
            return _refuse(Outcome.UNPLANNED, names, f"the pod cannot be read: {'; '.join(pod.problems)}")
        if pod.pinned_node and (pod.devices is not None or pod.ask is None or pod.ask.kind is AskKind.CLASSIC):
            return self._verify(pod, names)
        if pod.candidates:
            return self._steer(pod, names, now_s)
        if pod.ask is not None and pod.ask.kind is not AskKind.CLASSIC:
            return _refuse(Outcome.UNPLANNED, names, "the planner has given the pod no devices: it was never planned")
        return self._pass(pod, names)

    def scores(self, pod: Pod, names: Sequence[str]) -> list[tuple[str, int]]:
        """Return a score of 0..10 for every named node: candidates in their order, 0 for all others."""
        if pod.scheduler_name != labels.SCHEDULER_NAME:
            return [(name, 0) for name in names]
        wanted = [berth.node for berth in pod.candidates] or ([pod.pinned_node] if pod.pinned_node else [])
        score = {node: max(0, _BEST_SCORE - rank) for rank, node in enumerate(wanted)}
        return [(name, score.get(name, 0)) for name in names]

    def _verify(self, pod: Pod, names: Sequence[str]) -> Verdict:
        node = pod.pinned_node
        failed = {name: f"the pod is pinned to {node}" for name in names if name != node}
        if node not in names:
            return Verdict(outcome=Outcome.VETOED, failed=failed)
        why_not = objection(self._books, pod, Berth(node=node, devices=pod.devices or ()))
        if why_not:
            return Verdict(outcome=Outcome.VETOED, failed={**failed, node: why_not})
        return Verdict(outcome=Outcome.VERIFIED, passed=(node,), failed=failed)

    def _steer(self, pod: Pod, names: Sequence[str], now_s: float) -> Verdict:
        if self.is_behind(pod):
            # A promise can only be kept in a ledger that knows the pod.
            return Verdict(outcome=Outcome.BEHIND)
        given = set(names)
        failed: dict[str, str] = {}
        for berth in pod.candidates:
            if berth.node not in given:
                continue
            why_not = objection(self._books, pod, berth)
            if not why_not:
                self._promise(pod, berth, now_s)
                return Verdict(outcome=Outcome.STEERED, passed=(berth.node,), failed=failed)
            failed[berth.node] = why_not
        wanted = ", ".join(berth.node for berth in pod.candidates)
        others = dict.fromkeys(names, f"the pod was planned for {wanted}")
        return Verdict(outcome=Outcome.NO_CANDIDATE, failed=others | failed)

    def _pass(self, pod: Pod, names: Sequence[str]) -> Verdict:
        given = set(names)
        failed = dict.fromkeys(given.difference(self._books.known()), "the node is not known here")
        for name in self._doubtful(pod, given):
            state = self._books.state_without(name, pod.uid)
            if state is not None:
                why_not = shortage(pod, state)
                if why_not:
                    failed[name] = why_not
        if pod.has_claims and self._seats:
            # What leaves for a seat frees its devices for whoever allocates first, and kube-scheduler knows no seats.
            why_not = "devices of the node are kept for a pod with a seat"
            failed |= dict.fromkeys(given.intersection(self._seats.values()), why_not)
        passed = [name for name in names if name not in failed] if failed else names
        return Verdict(outcome=Outcome.PASSED, passed=passed, failed=failed)

    def _doubtful(self, pod: Pod, given: set[str]) -> set[str]:
        """Return the nodes on which the scheduler's own arithmetic does not suffice."""
        doubtful = given.intersection(self._contested)
        if pod.ask is not None:
            for name in given:
                state = self._books.state(name)
                if state is not None and (state.node.is_sharing or state.blocked):
                    doubtful.add(name)
        return doubtful

    def _promise(self, pod: Pod, berth: Berth, now_s: float) -> None:
        # Re-inserted at the end: promises are kept in the order in which they expire.
        self._promises.pop(pod.uid, None)
        self._promises[pod.uid] = (pod, berth, now_s + PROMISE_S)
        self._books.assume(pod, berth)
        self._note_holder(pod.uid, berth.node)

    def _keep_ready(self, node: str) -> None:
        """Have a node's sums ready before Filter asks for them."""
        if node in self._contested:
            self._books.state(node)

    def _expire(self, now_s: float) -> None:
        while self._promises:
            uid, (pod, _, until_s) = next(iter(self._promises.items()))
            if until_s > now_s:
                return
            self._break_promise(uid)
            self._note_holder(uid, _recorded_node(pod))

    def _break_promise(self, uid: str) -> None:
        if self._promises.pop(uid, None) is not None:
            self._books.forget(uid)

    def _note_holder(self, uid: str, node: str) -> None:
        old = self._holders.pop(uid, "")
        if old:
            self._contested[old] -= 1
            if not self._contested[old]:
                del self._contested[old]
        if node:
            self._holders[uid] = node
            self._contested[node] = self._contested.get(node, 0) + 1


def _refuse(outcome: Outcome, names: Sequence[str], reason: str) -> Verdict:
    return Verdict(outcome=outcome, failed=dict.fromkeys(names, reason))


def _version(pod: Pod) -> int:
    """Return the resource version as the number that it is in every Kubernetes served by etcd; 0 where it is not."""
    text = pod.resource_version
    return int(text) if len(text) < 20 and text.isascii() and text.isdigit() else 0


def _recorded_node(pod: Pod) -> str:
    """Return the node on which an unbound pod holds what was planned for it, or its seat; "" if nothing was."""
    if pod.scheduler_name != labels.SCHEDULER_NAME:
        return ""
    if pod.gates:
        return "" if pod.seat is None else pod.seat.node
    return pod.candidates[0].node if pod.candidates else pod.pinned_node
