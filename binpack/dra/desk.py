"""What every resource claim holds and what a pod's claims could get on each node: a function of the API's objects.

A claim holds the devices of its `status.allocation`. Until the API shows it, it holds what was decided here (`assume`),
and within one plan what the plan gives it (`take`, `give_back`). What is kept for a gated pod with a seat (`keep`) is
nobody else's, though others may have it still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from binpack.dra.books import Books, BookView
from binpack.dra.changes import Changes
from binpack.dra.check import Published, check_claims
from binpack.dra.choose import Alike, Chosen, Obstacle, Refused, Ways, choose, choose_each
from binpack.dra.fitting import Fitting
from binpack.dra.pools import Cell, PoolId, Pools
from binpack.dra.selectors import Trouble
from binpack.dra.shown import recorded_on, recorded_results, with_held
from binpack.dra.value import Values
from binpack.dra.wants import Way
from binpack.dra.wishes import Pending, Wish, wish_of
from binpack.state import NodeState
from fleet import labels
from fleet.dra import (
    Allocation,
    ClaimChoice,
    DeviceClass,
    DeviceResult,
    DeviceSlice,
    ResourceClaim,
    TaintRule,
)
from fleet.plan import Plan, Reason, Violation
from fleet.pod import Pod

IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


class Desk:
    """Books of all claims, and the choice of devices for those that have none.

    Attributes:
        changes: Where the books moved, and whether room came of it.
        releasing: Uids of claims whose devices are being taken back: nobody is planned on these meanwhile.
    """

    def __init__(self, values: Values | None = None, *, cpu_s: Callable[[], float] | None = None) -> None:
        """Know nothing yet.

        Args:
            values: Prices devices otherwise, for comparison.
            cpu_s: Returns seconds of CPU spent so far, by which slow selectors are given up; None = nobody counts.
        """
        self.is_synced = False
        self.pools = Pools()
        self.books = Books(self.pools)
        self.classes: dict[str, DeviceClass] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.changes = Changes()
        self._fitting = Fitting(cpu_s)
        self._values = Values() if values is None else values
        self._uid_of: dict[tuple[str, str], str] = {}
        self._slice_pool: dict[str, PoolId] = {}
        self._assumed: dict[str, tuple[str, Allocation]] = {}
        self._planned: dict[str, Allocation] = {}
        self._given_up: set[str] = set()
        self._kept: dict[str, tuple[ClaimChoice, ...]] = {}
        self.releasing: set[str] = set()
        self._recorders: set[str] = set()

    # -- what the API shows ------------------------------------------------------------------------------------

    def set_slice(self, new: DeviceSlice) -> None:
        """Take a new or changed slice."""
        pool_id = (new.driver, new.pool)
        before = self._slice_pool.get(new.name)
        if before is not None and before != pool_id:
            self.remove_slice(new.name)
        self._slice_pool[new.name] = pool_id
        self._pool_moved(pool_id, self.pools.set_slice(new))

    def remove_slice(self, name: str) -> None:
        """Drop a slice."""
        pool_id = self._slice_pool.pop(name, None)
        if pool_id is not None:
            self._pool_moved(pool_id, self.pools.remove_slice(name, pool_id))

    def set_class(self, new: DeviceClass) -> None:
        """Take a new or changed device class."""
        if self.classes.get(new.name) != new:
            self.classes[new.name] = new
            self._all_moved()

    def remove_class(self, name: str) -> None:
        """Drop a device class."""
        if self.classes.pop(name, None) is not None:
            self._all_moved()

    def set_rule(self, rule: TaintRule) -> None:
        """Take a new or changed taint rule."""
        self.pools.set_rule(rule)
        self._all_moved()

    def remove_rule(self, name: str) -> None:
        """Drop a taint rule."""
        self.pools.remove_rule(name)
        self._all_moved()

    def set_claim(self, claim: ResourceClaim) -> None:
        """Take a new or changed claim."""
        key = (claim.namespace, claim.name)
        earlier = self._uid_of.get(key)
        if earlier is not None and earlier != claim.uid:
            self.remove_claim(earlier)
        before = self.claims.get(claim.uid)
        self._uid_of[key] = claim.uid
        self.claims[claim.uid] = claim
        if claim.allocation is not None:
            self._assumed.pop(claim.uid, None)
        # A list may show only what came after: a claim is taken back as it was seen, so another version is no older.
        if claim.allocation is None or (before is not None and before.resource_version != claim.resource_version):
            self.releasing.discard(claim.uid)
        if before is None or before.demand != claim.demand or before.is_terminating != claim.is_terminating:
            self.changes.has_room = True
        self._rebook(claim.uid)

    def remove_claim(self, uid: str) -> None:
        """Drop a claim whose object is gone."""
        claim = self.claims.pop(uid, None)
        self._assumed.pop(uid, None)
        self.releasing.discard(uid)
        if claim is not None and self._uid_of.get((claim.namespace, claim.name)) == uid:
            del self._uid_of[claim.namespace, claim.name]
        self._rebook(uid)

    def set_node(self, name: str, node_labels: Mapping[str, str], recorded: Collection[str]) -> None:
        """Take a new or changed node.

        Args:
            name: Of the node.
            node_labels: By which slices with a selector reach it.
            recorded: Ids of its GPUs of which a pod holds any by its record: no claim gets those.
        """
        if self.pools.set_node(name, node_labels):
            self._fitting.forget(name)
            self.changes.on(name)
        if recorded or recorder(name) in self._recorders:
            self._record(name, recorded)

    def shown(self, state: NodeState) -> NodeState:
        """Take a new or changed node; return it as it is once the GPUs that claims hold count as used."""
        self.set_node(state.node.name, state.node.labels, recorded_on(state))
        return with_held(state, self.held_on(state.node.name))

    def remove_node(self, name: str) -> None:
        """Drop a node."""
        self.pools.remove_node(name)
        self._fitting.forget(name)
        self.changes.forget(name)
        self._record(name, ())

    # -- what was decided and does not show yet ----------------------------------------------------------------

    def assume(self, pod_uid: str, choices: Iterable[ClaimChoice]) -> None:
        """Count choices as held until the API shows the claim allocated, or until `forget`."""
        for choice in choices:
            claim = self.claims.get(choice.claim_uid)
            if claim is not None and claim.allocation is None:
                self._assumed[choice.claim_uid] = (pod_uid, choice.allocation)
                self._rebook(choice.claim_uid)

    def forget(self, pod_uid: str) -> None:
        """Drop what was assumed for a pod."""
        for claim_uid in [uid for uid, (owner, _) in self._assumed.items() if owner == pod_uid]:
            del self._assumed[claim_uid]
            self._rebook(claim_uid)

    def take(self, choices: Iterable[ClaimChoice]) -> None:
        """Book the choices of a plan in the making, or undo `give_back`."""
        for choice in choices:
            if choice.claim_uid in self._given_up:
                self._given_up.discard(choice.claim_uid)
            else:
                self._planned[choice.claim_uid] = choice.allocation
            self._rebook(choice.claim_uid)

    def give_back(self, choices: Iterable[ClaimChoice]) -> None:
        """Undo `take`; a claim that was not taken in thought, but has its devices, is imagined without them."""
        had_room = self.changes.has_room
        for choice in choices:
            if self._planned.pop(choice.claim_uid, None) is None and choice.claim_uid in self.claims:
                self._given_up.add(choice.claim_uid)
            self._rebook(choice.claim_uid)
        self.changes.has_room = had_room

    def keep(self, pod_uid: str, choices: Iterable[ClaimChoice]) -> None:
        """Let these be the devices that are kept for a gated pod, until it is let go of with none."""
        choices = tuple(choices)
        if choices == self._kept.get(pod_uid, ()):
            return
        if choices:
            self._kept[pod_uid] = choices
        else:
            del self._kept[pod_uid]
        results = [result for choice in choices for result in choice.allocation.results]
        self._book(keeper(pod_uid), results)
        self.changes.has_room |= not choices

    # -- questions ---------------------------------------------------------------------------------------------

    def claims_of(self, pod: Pod) -> list[ResourceClaim]:
        """Return those of the pod's claims that exist."""
        found = [self._claim_named(pod.namespace, one.claim) for one in pod.resource_claims if one.claim]
        return [claim for claim in found if claim is not None]

    def sharers(self, pod: Pod) -> frozenset[str]:
        """Return the uids of other pods that use a claim of this one: once they all go, it has no devices either."""
        if not pod.resource_claims:
            return frozenset()
        return frozenset(one.uid for claim in self.claims_of(pod) for one in claim.reserved_for) - {pod.uid}

    def _claim_named(self, namespace: str, name: str) -> ResourceClaim | None:
        uid = self._uid_of.get((namespace, name))
        return None if uid is None else self.claims[uid]

    def allocation(self, claim: ResourceClaim) -> Allocation | None:
        """Return what the claim has, shown or decided; None = nothing."""
        if claim.uid in self._given_up:
            return None
        if claim.allocation is not None:
            return claim.allocation
        if claim.uid in self._assumed:
            return self._assumed[claim.uid][1]
        return self._planned.get(claim.uid)

    def wish(self, pod: Pod) -> Wish | Pending:
        """Return what the pod's claims want, or why they cannot be planned."""
        if not self.is_synced:
            return Pending(Reason.CLAIM_PENDING, "resource claims are not listed yet")
        going = [claim for claim in self.claims_of(pod) if claim.uid in self.releasing] if self.releasing else []
        if going:
            return Pending(Reason.CLAIM_PENDING, f"the devices of claim {going[0].name} are being given back")
        return wish_of(pod, self._claim_named, self.allocation, self.classes)

    def offer(self, node: str, wish: Wish, books: BookView | None = None) -> Chosen | Refused:
        """Return devices on one node for what a wish wants, or why there are none.

        Args:
            node: Where.
            wish: What.
            books: What is held, imagined; None = as it is.
        """
        node_labels = self.pools.labels(node)
        if any(not allocation.reaches(node, node_labels) for allocation in wish.given):
            return Refused(Obstacle.HELD_ELSEWHERE)
        if not wish.wants:
            return Chosen(None, 0.0)
        reach = self.pools.reach(node)
        held = self.books if books is None else books
        return choose(node, wish.wants, reach, lambda way: self._fitting.of(node, reach, way)[0], held, self._values)

    def each(self, node: str, wish: Wish, alike: Alike, most: int) -> Ways:
        """Return ways to give a node's devices to what a wish wants that differ in what they leave, see `choose_each`.

        Args:
            node: Where.
            wish: What.
            alike: Equal for devices of the node that are as good as each other.
            most: Ways to return.
        """
        node_labels = self.pools.labels(node)
        if any(not allocation.reaches(node, node_labels) for allocation in wish.given):
            return Ways(choices=(), is_all=True)
        if not wish.wants:
            return Ways(choices=((),), is_all=True)
        return choose_each(
            node,
            wish.wants,
            self.pools.reach(node),
            lambda way: self.suitable(node, way),
            self.books,
            self._values,
            alike=alike,
            most=most,
        )

    def suitable(self, node: str, way: Way) -> tuple[Cell, ...]:
        """Return the devices that a node reaches and a way allows, whoever has them."""
        return self._fitting.of(node, self.pools.reach(node), way)[0]

    def troubles(self, node: str, wish: Wish) -> tuple[Trouble, ...]:
        """Return why devices of a node could not be judged for a wish."""
        reach = self.pools.reach(node)
        ways = [way for want in wish.wants for request in want.ways for way in request]
        return tuple(trouble for way in ways for trouble in self._fitting.of(node, reach, way)[1])

    def held_alone(self, pod: Pod) -> tuple[ClaimChoice, ...] | None:
        """Return what a pod's claims hold, made from templates and for it alone; None where that is not so."""
        found: list[ClaimChoice] = []
        for one in pod.resource_claims:
            claim = self._claim_named(pod.namespace, one.claim)
            if one.is_none:
                continue
            is_own = claim is not None and {user.uid for user in claim.reserved_for} == {pod.uid}
            if claim is None or claim.allocation is None or not one.template or not is_own:
                return None
            found.append(ClaimChoice(claim_uid=claim.uid, allocation=claim.allocation))
        return tuple(found)

    def leaves_to_scheduler(self, pod: Pod) -> str:
        """Return the resource that the pod asks and that DRA backs, "" = none: kube-scheduler makes such claims."""
        for name, amount in pod.requests.extended:
            if amount and (name.startswith(IMPLICIT_PREFIX) or name in self._backed):
                return name
        return ""

    def held_on(self, node: str, books: BookView | None = None) -> frozenset[str]:
        """Return the ids of a node's GPUs of which a claim holds any; by imagined books, if they are given."""
        held = self.books if books is None else books
        return frozenset(
            cell.id[2]
            for cell in self.pools.reach(node).cells
            if cell.id[0].startswith(labels.DRA_GPU_DRIVERS)
            and any(not holder.startswith(_RECORDS) for holder in held.holdings(cell.id))
        )

    def violations(self, plan: Plan, pods: Sequence[Pod]) -> tuple[Violation, ...]:
        """Return what the plan's choices of devices break now, as the independent verifier finds it."""
        claimants = {pod.uid for pod in pods if pod.resource_claims}
        if not any(one.pod_uid in claimants or one.berth.choices for one in plan.placements):
            return ()
        return check_claims(plan, pods, self.published({placement.berth.node for placement in plan.placements}))

    def published(self, nodes: Iterable[str], going: Collection[str] = ()) -> Published:
        """Return what the verifier is to judge by; what changes later does not move it.

        Args:
            nodes: Those of the plan.
            going: Uids of pods that are on their way out, or gone already.
        """
        claims = dict(self.claims)
        for uid, (_, allocation) in self._assumed.items():
            claims[uid] = replace(claims[uid], allocation=allocation)
        return Published(
            claims=claims,
            slices=tuple(self.pools.slices()),
            classes=dict(self.classes),
            rules=self.pools.rules(),
            node_labels={node: self.pools.labels(node) for node in nodes},
            kept=dict(self._kept),
            going=frozenset(going),
        )

    def rivals(self, claim: ResourceClaim) -> tuple[str, ...]:
        """Return other claims that have what this one has for itself: somebody else allocated at the same time."""
        found: set[str] = set()
        for result in claim.allocation.results if claim.allocation is not None else ():
            if not result.is_admin and not result.share_id:
                found |= {one for one in self.books.holdings(result.id) if not one.startswith(_KEEPER)} - {claim.uid}
        return tuple(sorted(found))

    def reconsider(self) -> None:
        """Have everything judged anew that waits for claims."""
        self._all_moved()

    # -- inside ------------------------------------------------------------------------------------------------

    @property
    def _backed(self) -> frozenset[str]:
        return frozenset(one.extended_resource for one in self.classes.values() if one.extended_resource)

    def _rebook(self, uid: str) -> None:
        claim = self.claims.get(uid)
        allocation = self.allocation(claim) if claim is not None else self._planned.get(uid)
        moved = self._book(uid, allocation.results if allocation is not None else ())
        if moved and allocation is None:
            self.changes.has_room = True

    def _book(self, holder: str, results: Iterable[DeviceResult]) -> bool:
        """Let these be all that somebody holds; return True if that moves anything."""
        moved = self.books.book(holder, results)
        for pool_id in moved:
            pool = self.pools.pool(pool_id)
            nodes = pool.nodes if pool is not None else frozenset()
            if nodes is None:
                self.changes.everywhere()
            else:
                for node in nodes:
                    self.changes.on(node)
        return bool(moved)

    def _record(self, node: str, recorded: Iterable[str]) -> None:
        holder = recorder(node)
        results = recorded_results(self.pools.reach(node).cells, recorded)
        if results:
            self._recorders.add(holder)
        else:
            self._recorders.discard(holder)
        if self.books.book(holder, results):
            self.changes.on(node)

    def _pool_moved(self, pool_id: PoolId, nodes: frozenset[str] | None) -> None:
        self.books.pool_changed(pool_id)
        self.changes.has_room = True
        if nodes is None:
            self._all_moved()
            return
        for node in nodes:
            self.changes.on(node)

    def _all_moved(self) -> None:
        self.changes.everywhere()
        self.changes.has_room = True
        self._fitting.clear()


def keeper(pod_uid: str) -> str:
    """Return under which name devices are held that are kept for a pod."""
    return f"{_KEEPER}{pod_uid}"


def recorder(node: str) -> str:
    """Return under which name the GPUs of a node are held that pods have by their records."""
    return f"{_RECORDS}{node}"


_RECORDS: Final = "records of "
_KEEPER: Final = "kept for "
