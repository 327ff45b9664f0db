"""What the planner knows between two turns: which pods to plan next, which wait, which are on their way. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from binpack.check_register import Register
from binpack.company import COMPANY_REASONS, Company
from binpack.controller.claimants import Claimants
from binpack.controller.expectations import Expectations
from binpack.controller.lookups import Lookups
from binpack.controller.moves import Moves
from binpack.controller.news import News
from binpack.controller.nodes import Nodes
from binpack.controller.sorting import Place, place_of, wish
from binpack.controller.together import Together
from binpack.controller.triage import Handling, handling
from binpack.controller.unbound import Unbound
from binpack.controller.waiting import CAPACITY, WaitingRoom
from binpack.controller.yard import Yard
from binpack.dra.desk import Desk
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.state import NodeState
from binpack.tenants import Tenants
from binpack.wording import sentence
from fleet.dra import Reserver, ResourceClaim
from fleet.plan import Reason, Unplaced
from fleet.pod import Berth, Pod
from fleet.pool import Pool


class Away(Enum):
    """Where a gated pod is while it stands neither in the queue nor only in the waiting room."""

    PLANNED = "planned"  # in the batch that is being decided
    WRITTEN = "written"  # its patch is on the way to the API
    RESTING = "resting"  # its patch failed; it is read again after a pause
    LANDED = "landed"  # the API has taken its patch, and the watch does not show it yet


class World:
    """The planner's picture, moved by watch events and by its own decisions.

    A gated pod is in exactly one place: the queue (to be planned), away (see `Away`), or the waiting room alone. A pod
    that has waited keeps its record there while it is planned again. Everything can be rebuilt from the API's objects.
    """

    def __init__(
        self,
        ledger: Ledger,
        index: Index,
        waiting: WaitingRoom,
        now_s: Callable[[], float],
        yard: Yard | None = None,
        cpu_s: Callable[[], float] | None = None,
    ) -> None:
        self.ledger = ledger
        self.index = index
        self.waiting = waiting
        self.yard = Yard() if yard is None else yard
        self.tenants = Tenants()
        self.desk = Desk(cpu_s=cpu_s)
        self.company = Company()
        self.company.follow(ledger.coming)
        self.register = Register()
        self.nodes = Nodes(ledger, index, self.yard, desk=self.desk, company=self.company, register=self.register)
        self.news = News(self.nodes, self.desk, self.company)
        self.lookups = Lookups()
        self.claimants = Claimants(self.desk)
        self.together = Together()
        self.expectations = Expectations(index, self.together)
        self.moves = Moves(ledger, self.tenants, self.is_welcome, self.desk)
        self.unbound = Unbound(ledger, index)
        self.weights: dict[str, float] = {}
        self.pods: dict[str, Pod] = {}
        self.queue: dict[str, Pod] = {}
        self.away: dict[str, Away] = {}
        self.to_say: dict[str, str] = {}
        self.malformed: list[Pod] = []
        self._tries: dict[str, int] = {}
        self._now_s = now_s

    # -- watch events ------------------------------------------------------------------------------------------

    def pod_seen(self, pod: Pod) -> None:
        """Sort a new or changed pod into its place."""
        uid, pod = pod.uid, self.lookups.resolved(self.ledger.as_written(pod))
        self.together.seen(pod)
        self.tenants.seen(pod)
        self.expectations.seen(pod)
        if handling(pod) is Handling.NONE:
            self._leave(uid)
            self.away.pop(uid, None)
            self.unbound.seen(pod, self._now_s())
            return
        place = self.away.get(uid)
        if place is Away.LANDED:
            return  # older than the patch: a gate never comes back
        before = self.pods.get(uid)
        self.pods[uid] = pod
        if place is None:
            self._sort(pod, before)

    def pod_gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        self.tenants.gone(uid)
        self.expectations.gone(uid)
        self.moves.pod_gone(uid)
        self.together.gone(uid)
        self.desk.forget(uid)
        self._leave(uid)
        self.unbound.gone(uid)
        self.away.pop(uid, None)

    def namespace_seen(self, name: str, of_namespace: Mapping[str, str] | None) -> None:
        """Take the labels of a new or changed namespace; None = it is gone."""
        self.company.set_namespace(name, of_namespace)
        self.register.set_namespace(name, of_namespace)

    def namespaces_known(self) -> None:
        """Note that all namespaces have been listed."""
        self.lookups.has_news |= not self.lookups.knows_namespaces
        self.lookups.knows_namespaces = True

    def _look_up_again(self) -> None:
        """Sort pods anew of which something was looked up that reads otherwise now."""
        for pod in self.lookups.renewed():
            before, record = self.pods.get(pod.uid), self.waiting.get(pod.uid)
            waits_for_it = record is not None and record.reason is Reason.VOLUME
            if before is None or (before == pod and not waits_for_it and not self.lookups.lacks(pod)):
                continue
            self.pods[pod.uid] = pod
            self.together.seen(pod)
            if pod.uid not in self.away:
                self._sort(pod, before)

    def pool_seen(self, pool: Pool) -> None:
        """Take a new or changed warm pool: whose miss it is that a pod waits may be another's now."""
        if self.yard.pools.set_pool(pool):
            self._reconsider_waiting()

    def pool_gone(self, name: str) -> None:
        """Forget a warm pool."""
        if self.yard.pools.remove_pool(name):
            self._reconsider_waiting()

    def _reconsider_waiting(self) -> None:
        for pod in self.waiting_for_room():
            self.queue[pod.uid] = pod

    def _sort(self, pod: Pod, before: Pod | None) -> None:
        """Put a gated pod that is not away into the queue or into the waiting room."""
        record = self.waiting.get(pod.uid)
        waits_for = None if record is None else record.reason
        lack, is_alone = self.lookups.lacks(pod), self.together.is_alone(pod)
        place = place_of(pod, before, waits_for, lack=lack, is_alone=is_alone)
        if isinstance(place, Unplaced):
            if place.reason is Reason.MALFORMED and waits_for is not Reason.MALFORMED:
                self.malformed.append(pod)
            self.wait(place)
        elif place is Place.TOGETHER:
            self._gather(pod)
        elif place is Place.QUEUE or pod.uid in self.queue:
            self.queue[pod.uid] = pod

    def _gather(self, pod: Pod) -> None:
        """Let a pod wait for its seat, or for the others of its gang."""
        self.queue.pop(pod.uid, None)
        if pod.seat is not None:
            text = f"a berth on node {pod.seat.node} is kept for it"
            self.wait(Unplaced(pod_uid=pod.uid, reason=Reason.SEAT_AWAITED, detail=text))
        else:
            self.together.called.add((pod.namespace, pod.gang))

    def keep_seat(self, pod: Pod, berth: Berth) -> None:
        """Count a seat as held, and its patch as being written."""
        self.queue.pop(pod.uid, None)
        self.away[pod.uid] = Away.WRITTEN
        self.ledger.assume(pod, berth, as_seat=True)
        self.desk.keep(pod.uid, berth.choices)

    def seat_written(self, uid: str, seat: Berth | None) -> None:
        """Note that the API has taken a pod's seat, or that it was taken back."""
        pod = self.pods.get(uid)
        if pod is None:
            return
        self.away.pop(uid, None)
        if seat is None:
            self.desk.keep(uid, ())
        pod = self.pods[uid] = self.ledger.wrote_seat(pod, seat)
        self.together.seen(pod)
        self._sort(pod, None)

    def _leave(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.lookups.forget(uid)
        self.queue.pop(uid, None)
        self.waiting.leave(uid)
        self.to_say.pop(uid, None)
        self._tries.pop(uid, None)
        self.desk.keep(uid, ())
        self.yard.forget(uid)

    # -- turns -------------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Carry the ledger's changes into the index; return True if waiting pods may fit since `News.take`."""
        self._look_up_again()
        self.nodes.carry_changes(self.pods)
        return self.news.gather()

    def is_welcome(self, pod: Pod, name: str) -> bool:
        """Return True if no rule between pods forbids the node as it is now."""
        return not self.company.is_involved(pod) or self.company.allows(pod, name)

    def waiting_for_room(self) -> list[Pod]:
        """Return the pods that wait for room, each for itself."""
        found: list[Pod] = []
        for uid, pod in self.pods.items():
            record = self.waiting.get(uid)
            if record is None or record.reason not in CAPACITY or uid in self.away or uid in self.queue:
                continue
            if self.together.is_alone(pod):
                found.append(pod)
        return found

    def waited_s(self, uid: str) -> float:
        """Return for how long the pod has waited for room; 0 where it does not."""
        record = self.waiting.get(uid)
        return 0.0 if record is None or record.reason not in CAPACITY else self._now_s() - record.since_s

    def take_batch(
        self, most: int, *, order: Callable[[Iterable[Pod]], list[Pod] | None] = lambda _: None
    ) -> tuple[Pod, ...]:
        """Move the pods to plan now out of the queue: highest priority first, then first come.

        Args:
            most: How many.
            order: Says who comes first where not all can; None = as above.
        """
        self.expectations.tell(self.waiting_for_room(), self._now_s())
        ordered = order(self.queue.values()) if len(self.queue) > most else None
        if ordered is None:
            ordered = sorted(self.queue.values(), key=lambda pod: (-pod.priority, pod.created_at_s))
        pods = ordered[:most]
        for pod in pods:
            del self.queue[pod.uid]
            self.away[pod.uid] = Away.PLANNED
        return tuple(pods)

    def asks_still(self, planned: Pod) -> bool:
        """Return True if a pod of the batch that is being decided is still there, and wishes what it wished."""
        pod = self.pods.get(planned.uid)
        return pod is not None and self.away.get(pod.uid) is Away.PLANNED and wish(pod) == wish(planned)

    def decided(self, planned: Pod) -> Pod | None:
        """Return a pod of the decided batch as it is now, if what was decided still holds for it.

        It must then `depart`, `wait` or `rest`. One that changed meanwhile in what it wishes is queued again; one that
        went is forgotten.
        """
        pod = self.pods.get(planned.uid)
        if pod is None or self.away.get(planned.uid) is not Away.PLANNED:
            return None
        if wish(pod) == wish(planned):
            return pod
        self.again(pod.uid)
        return None

    def depart(self, pod: Pod, berth: Berth | None) -> None:
        """Count a berth as held and its patch as being written; None = it gets none (hand-over)."""
        self.queue.pop(pod.uid, None)
        self.away[pod.uid] = Away.WRITTEN
        if berth is not None:
            self.ledger.assume(pod, berth)
            self.desk.assume(pod.uid, berth.choices)
            self.yard.warm.begin(berth.node)

    def shun(self, name: str) -> None:
        """Leave a warm node alone for a while that could not be claimed."""
        self.nodes.shun(name, self._now_s(), self.pods)

    def forgive(self) -> None:
        """Look again at warm nodes that were left alone for a while."""
        self.nodes.forgive(self._now_s(), self.pods)

    @property
    def unwritten(self) -> int:
        """Return how many patches are on their way."""
        return sum(place is Away.WRITTEN for place in self.away.values())

    def arrived(self, uid: str) -> None:
        """Note that the API has taken the patch. What is assumed stays until the watch shows it."""
        if uid in self.away:
            self.away[uid] = Away.LANDED
        self._leave(uid)

    def rest(self, uid: str, *, is_written: bool) -> int:
        """Note that a patch failed, and return for the how-manieth time for this pod.

        Args:
            uid: The pod; it is not planned before `again`, `arrived` or `pod_gone`.
            is_written: Whether it may have been written all the same: its berth then stays counted until it is read.
        """
        if not is_written:
            self.ledger.forget(uid)
            self.desk.forget(uid)
        if uid not in self.pods:
            return 1
        self.away[uid] = Away.RESTING
        self._tries[uid] = self._tries.get(uid, 0) + 1
        return self._tries[uid]

    def again(self, uid: str) -> None:
        """Give back what was assumed for a pod and plan it again, if it is still gated and can be planned."""
        self.ledger.forget(uid)
        self.desk.forget(uid)
        self.away.pop(uid, None)
        self.yard.take_back_hit(uid)
        pod = self.pods.get(uid)
        if pod is None:
            return
        if pod.seat is None:
            self.desk.keep(uid, ())
        is_plannable = handling(pod) in (Handling.PIN, Handling.STEER) and not self.lookups.lacks(pod)
        if is_plannable and self.together.is_alone(pod):
            self.queue[uid] = pod
        else:
            self._sort(pod, None)

    def read_again(self, fresh: Pod) -> None:
        """Take a pod as read from the API after its patch failed, and plan it again."""
        if fresh.uid in self.pods:
            self.pods[fresh.uid] = self.lookups.resolved(fresh)
        self.again(fresh.uid)

    def recall(self) -> None:
        """Queue again whatever is in a batch that will not be decided any more."""
        for uid in [uid for uid, place in self.away.items() if place is Away.PLANNED]:
            self.again(uid)

    def wait(self, unplaced: Unplaced) -> None:
        """Let a pod wait with its reason, and note what is to be said of it."""
        pod = self.pods.get(unplaced.pod_uid)
        if pod is None:
            return
        unplaced = self.claimants.judged(pod, self.yard.judged(pod, unplaced), self._is_idle)
        if unplaced.reason in COMPANY_REASONS:
            self.news.await_company(pod.guest)
        text = sentence(pod, unplaced)
        self.queue.pop(pod.uid, None)
        if self.away.get(pod.uid) is Away.PLANNED:
            del self.away[pod.uid]
        if self.waiting.enter(pod.uid, unplaced.reason, text, self._now_s()):
            self.to_say[pod.uid] = text

    def _is_idle(self, reserver: Reserver) -> bool:
        pod = self.pods.get(reserver.uid)
        return pod is not None and pod.seat is None and pod.uid not in self.away

    def take_loose(self) -> list[ResourceClaim]:
        """Return claims, as they are now, whose gated pods have no room where the claims have devices."""
        return self.claimants.take_loose(self._is_idle)

    def states(self, names: Iterable[str]) -> dict[str, NodeState]:
        """Return the states of the named nodes as the index knows them."""
        return self.nodes.states(names)

    def node(self, name: str) -> NodeState | None:
        """Return the state of one node as the index knows it, None if there is no such node."""
        return self.nodes.get(name)
