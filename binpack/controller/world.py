"""What the planner knows between two turns: which pods to plan next, which wait, which are on their way. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from binpack.controller.repair import RepairShop
from binpack.controller.triage import Handling, handling, is_gang
from binpack.controller.waiting import WaitingRoom
from binpack.controller.wording import sentence
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet import labels
from fleet.plan import Reason, Unplaced
from fleet.pod import Berth, Pod


class World:
    """The planner's picture, moved by watch events and by its own decisions.

    A gated pod is in exactly one place: the queue (to be planned), the waiting room (no berth now), or in flight
    (a patch is being written). Everything here can be rebuilt from a list of the API's objects.
    """

    def __init__(self, ledger: Ledger, index: Index, waiting: WaitingRoom, now_s: Callable[[], float]) -> None:
        self.ledger = ledger
        self.index = index
        self.waiting = waiting
        self.shop = RepairShop()
        self.pods: dict[str, Pod] = {}
        self.queue: dict[str, Pod] = {}
        self.in_flight: dict[str, float] = {}
        self.unbound: dict[str, Pod] = {}
        self.to_say: dict[str, str] = {}
        self._states: dict[str, NodeState] = {}
        self._tried: dict[str, set[str]] = {}
        self._steer_again_s: dict[str, float] = {}
        self._now_s = now_s

    # -- watch events ------------------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod) -> None:
        """Sort a new or changed pod into its place."""
        uid = pod.uid
        treat = handling(pod)
        if treat is Handling.NONE:
            self._leave(uid)
            if pod.scheduler_name == labels.SCHEDULER_NAME and not pod.node_name and pod.is_live and not pod.gates:
                self.unbound[uid] = pod
                self.shop.observe(pod, self._now_s())
            else:
                self._forget_unbound(uid)
            return
        self.pods[uid] = pod
        if treat is Handling.HOLD:
            self.wait(Unplaced(pod_uid=uid, reason=_hold_reason(pod), detail="; ".join(pod.problems)))
        elif treat is Handling.FOREIGN_GATE:
            others = ", ".join(gate for gate in pod.gates if gate != labels.PLAN_GATE)
            self.wait(Unplaced(pod_uid=uid, reason=Reason.FOREIGN_GATE, detail=others))
        elif uid not in self.in_flight and (uid not in self.waiting or self._was_held(uid)):
            self.queue[uid] = pod

    def pod_gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        self._leave(uid)
        self._forget_unbound(uid)
        self.in_flight.pop(uid, None)

    def _forget_unbound(self, uid: str) -> None:
        if self.unbound.pop(uid, None) is not None:
            self.shop.forget(uid)
            self._tried.pop(uid, None)
            self._steer_again_s.pop(uid, None)

    def _leave(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.queue.pop(uid, None)
        self.waiting.leave(uid)
        self.to_say.pop(uid, None)

    def _was_held(self, uid: str) -> bool:
        record = self.waiting.get(uid)
        return record is not None and record.reason in (Reason.FOREIGN_GATE, Reason.MALFORMED)

    # -- turns -------------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Carry the ledger's changes into the index; return True if room appeared anywhere."""
        grew = False
        for name in sorted(self.ledger.take_changed()):
            state = self.ledger.state(name)
            if state is None:
                self._states.pop(name, None)
                self.index.remove_node(name)
                continue
            old = self._states.get(name)
            if old is state:
                continue
            grew = grew or old is None or _has_grown(old, state)
            self._states[name] = state
            self.index.set_node(state)
        return grew

    def requeue_waiting(self) -> None:
        """Plan every pod that waits for room again: room has appeared."""
        for uid, pod in self.pods.items():
            record = self.waiting.get(uid)
            if record is not None and record.reason in _MAY_CHANGE and uid not in self.in_flight:
                self.queue[uid] = pod

    def take_batch(self, most: int) -> tuple[Pod, ...]:
        """Remove and return the pods to plan now: highest priority first, then first come."""
        pods = sorted(self.queue.values(), key=lambda pod: (-pod.priority, pod.created_at_s))[:most]
        for pod in pods:
            del self.queue[pod.uid]
        return tuple(pods)

    def depart(self, pod: Pod, berth: Berth) -> None:
        """Count a berth as held and its patch as being written."""
        self.ledger.assume(pod, berth)
        self.in_flight[pod.uid] = self._now_s()

    def arrived(self, uid: str) -> None:
        """Note that the patch was taken by the API."""
        self.in_flight.pop(uid, None)
        self._leave(uid)

    def failed(self, uid: str) -> None:
        """Give back what was assumed for a pod whose patch was refused."""
        self.in_flight.pop(uid, None)
        self.ledger.forget(uid)

    def again(self, uid: str) -> None:
        """Queue a pod once more if it is still gated."""
        pod = self.pods.get(uid)
        if pod is not None and handling(pod) in (Handling.PIN, Handling.STEER):
            self.queue[uid] = pod

    def wait(self, unplaced: Unplaced) -> None:
        """Let a pod wait with its reason, and note what is to be said of it."""
        pod = self.pods.get(unplaced.pod_uid)
        if pod is None:
            return
        text = sentence(pod, unplaced)
        self.queue.pop(pod.uid, None)
        if self.waiting.enter(pod.uid, unplaced.reason, text, self._now_s()):
            self.to_say[pod.uid] = text

    def steered_anew(self, now_s: float, most: int) -> list[tuple[Pod, tuple[Berth, ...]]]:
        """Return un-pinned pods that kube-scheduler refused on all their candidates, with others to try.

        What the planner does not model (volume zones, host ports) may rule out every candidate it named; nodes tried
        before come last, and a pod gets a new list at most every ten seconds.
        """
        found: list[tuple[Pod, tuple[Berth, ...]]] = []
        for uid, pod in self.unbound.items():
            if not (pod.candidates and pod.is_unschedulable) or now_s < self._steer_again_s.get(uid, 0.0):
                continue
            tried = self._tried.setdefault(uid, set())
            tried.update(berth.node for berth in pod.candidates)
            options = [option.berth for option in self.index.options(pod, most + len(tried))]
            fresh = [berth for berth in options if berth.node not in tried] or options
            if fresh:
                self._steer_again_s[uid] = now_s + _STEER_AGAIN_S
                found.append((pod, tuple(fresh[:most])))
            if len(fresh) == len(options):
                tried.clear()
        return found

    def states(self, names: Iterable[str]) -> dict[str, NodeState]:
        """Return the states of the named nodes as the index knows them."""
        return {name: self._states[name] for name in names if name in self._states}

    @property
    def node_names(self) -> set[str]:
        """Return the names of all nodes the index knows."""
        return set(self._states)


def _hold_reason(pod: Pod) -> Reason:
    return Reason.UNMODELLED_CONSTRAINT if is_gang(pod) and not pod.problems else Reason.MALFORMED


def _has_grown(old: NodeState, new: NodeState) -> bool:
    """Return True if anything that a waiting pod could want became more, or the rules of the node changed."""
    if old.node is not new.node and (
        old.node.labels != new.node.labels
        or old.node.taints != new.node.taints
        or old.node.is_cordoned != new.node.is_cordoned
        or len(old.devices) != len(new.devices)
    ):
        return True
    if old.blocked and not new.blocked:
        return True
    if old.free != new.free and old.free.lacks(new.free):
        return True
    return any(
        after.free_milli > before.free_milli
        or (after.free_mib or 0) > (before.free_mib or 0)
        or after.users < before.users
        or (after.device.is_healthy and not before.device.is_healthy)
        for before, after in zip(old.devices, new.devices, strict=False)
    )


_STEER_AGAIN_S = 10.0
_MAY_CHANGE = frozenset({Reason.NO_NODES, Reason.NO_NODE_ALLOWED, Reason.NO_SUCH_DEVICE, Reason.INSUFFICIENT})
