"""The index: answers any pod at once with the class-value policy, and keeps books between answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from binpack.company import Company, CompanyBySlot
from binpack.dra.by_slot import ClaimsBySlot
from binpack.dra.desk import Desk
from binpack.index import alternatives, room
from binpack.index.ahead import Expected
from binpack.index.arrays import Arrays
from binpack.index.beside import Beside
from binpack.index.columns import Bools, Floats, Ints
from binpack.index.eligibility import Eligibility
from binpack.index.excerpt import Excerpt, nearest
from binpack.index.lessons import Lessons
from binpack.index.miss import Misses
from binpack.index.mix import Mix, default_mix, shape_of
from binpack.index.potential import Weights
from binpack.index.scores import PodClass
from binpack.index.tables import Tables
from binpack.index.unseen import with_unseen
from binpack.state import NodeState
from fleet.device import AskKind
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Pod


class Index:
    """Answers with the placement of least cost.

    The cost of (pod, node, devices) is, in milli-GPU::

        Phi(node after) - Phi(node)  + contention * max(G, 300) * u(model)  + what a less preferred model costs
        + B if it takes an opening kept for others  + a best-fit tie-break

    Equal costs go to the smallest node name, so the answer depends on the state alone, not on the order
    in which nodes were added. A pod is left out only if no node can hold it; CPU-only pods have nodes with devices as
    their last options while another has room. The parameters (`Weights`) come from a random search on seeds 1001..1003
    of six openb traces, rounded; models in the pod's order, several shares per pod, CPU-only nodes and device memory
    came later.
    """

    def __init__(
        self, states: Iterable[NodeState] = (), *, mix: Mix | None = None, weights: Weights | None = None
    ) -> None:
        """Index these nodes for this demand mix; None = the openb default mix until `learn` has seen enough."""
        self._arrays = Arrays()
        self._lessons = Lessons()
        self._eligibility = Eligibility(self._arrays)
        self._misses = Misses(self._arrays, self._eligibility)
        self._beside = Beside(self._arrays, self._eligibility)
        for state in states:
            self.set_node(state)
        self._tables = Tables(self._arrays, default_mix() if mix is None else mix, weights or Weights())

    def keep_for(self, expected: Iterable[Expected]) -> None:
        """Leave nodes to drain for these pods that need several whole devices; the last call counts.

        Args:
            expected: How many of each kind wait, and how many fewer run than usual; kinds that ask less may be there.
        """
        self._beside.keep_for(expected)

    def keep_for_gangs(self, units: Iterable[Sequence[Pod]]) -> None:
        """Leave nodes to drain for gangs that wait, as things are now; the last call counts.

        Args:
            units: The members of each that must be placed together, those to be placed first first.
        """
        self._beside.keep_for_gangs(units)

    @property
    def company(self) -> Company:
        """Return what is known of rules between pods."""
        return self._beside.company.company

    def use_company(self, company: Company) -> None:
        """Read rules between pods from a company that is fed with more nodes than these; before there are any."""
        self._beside.company = CompanyBySlot(company)

    @property
    def desk(self) -> Desk | None:
        """Return who knows what the resource claims of pods can get; None = nobody does."""
        return None if self._beside.claims is None else self._beside.claims.desk

    def use_claims(self, desk: Desk) -> None:
        """Ask this desk what the resource claims of pods can get; before there are any nodes."""
        self._beside.claims = ClaimsBySlot(desk)

    def set_node(self, state: NodeState) -> None:
        """Add a node or replace all that is known of it, bookings included."""
        self._arrays.set_node(state)
        self._beside.set_node(state, self._arrays.slots[state.node.name])

    def remove_node(self, name: str) -> None:
        """Forget a node; one that is not there is no error."""
        slot = self._arrays.slots.get(name)
        if slot is not None:
            self._arrays.remove_node(name)
            self._beside.remove_node(name, slot)

    def take(self, pod: Pod, berth: Berth) -> None:
        """Book the pod on the berth.

        Raises:
            UnknownBerthError: The node or a device is not in the index.
        """
        self._arrays.take(pod, berth)
        self._beside.take(pod, berth)

    def give_back(self, pod: Pod, berth: Berth) -> None:
        """Undo `take`.

        Raises:
            UnknownBerthError: The node or a device is not in the index.
        """
        self._arrays.give_back(pod, berth)
        self._beside.give_back(pod, berth)

    def place(self, pod: Pod, *, with_shortfall: bool = True) -> Placement | Unplaced:
        """Return the best berth now, or why there is none; nothing is booked.

        Args:
            pod: The pod; where it is bound or pinned does not matter.
            with_shortfall: Whether a miss names the nearest node and what it lacks.
        """
        if pod.problems:
            return self._misses.malformed(pod)
        pod = room.bounded(pod)
        cost, position = self._costs(pod)
        least = cost.min() if len(cost) else np.inf
        if least == np.inf:
            return self._lonely(pod) or self._unclaimed(pod) or self._miss(pod, with_shortfall=with_shortfall)
        slots = np.flatnonzero(cost == least)
        slot = int(slots[0] if len(slots) == 1 else slots[np.argmin(self._arrays.order[slots])])
        return self._placement(pod, slot, float(least), int(position[slot]))

    def place_first(self, pod: Pod, rank: Ints) -> Placement | None:
        """Return the best berth among the nodes of least rank that can hold the pod, None if none can; books nothing.

        Args:
            pod: The pod.
            rank: What counts before the cost, by slot, (`slots_used`,); below 0 = not there, whatever is free.
        """
        if pod.problems:
            return None
        pod = room.bounded(pod)
        cost, position = self._costs(pod)
        slots = np.flatnonzero((cost < np.inf) & (rank >= 0))
        if not len(slots):
            return None
        slot = int(slots[np.lexsort((self._arrays.order[slots], cost[slots], rank[slots]))[0]])
        return self._placement(pod, slot, float(cost[slot]), int(position[slot]))

    def slot(self, name: str) -> int:
        """Return the slot of a node that is in the index; it keeps it until it is removed."""
        return self._arrays.slots[name]

    @property
    def arrays(self) -> Arrays:
        """Return what is free, by slot; for reading alone."""
        return self._arrays

    def allowed(self, pod: Pod) -> Bools:
        """Return where names, labels and taints allow the pod, whatever is free, by slot, (`slots_used`,)."""
        return self._eligibility.mask(pod.constraints)[: self._arrays.count].copy()

    @property
    def slots_used(self) -> int:
        """Return the length of arrays over slots; slots of removed nodes count until they are used again."""
        return self._arrays.count

    def options(self, pod: Pod, most: int) -> list[Placement]:
        """Return up to `most` feasible berths, best first, each node at most once."""
        if pod.problems or most < 1:
            return []
        pod = room.bounded(pod)
        cost, position = self._costs(pod)
        slots = np.flatnonzero(cost < np.inf)
        ranked = slots[np.lexsort((self._arrays.order[slots], cost[slots]))][:most]
        return [self._placement(pod, int(slot), float(cost[slot]), int(position[slot])) for slot in ranked]

    def nearest(self, pod: Pod, most: int) -> list[str]:
        """Return the names of the nodes of `options`, without choosing anything on them."""
        if pod.problems or most < 1:
            return []
        cost, _ = self._costs(room.bounded(pod))
        slots = np.flatnonzero(cost < np.inf)
        ranked = slots[np.lexsort((self._arrays.order[slots], cost[slots]))][:most]
        return [self._arrays.name(slot) for slot in ranked.tolist()]

    def potential(self) -> float:
        """Return the sum of Phi over all nodes, milli-GPU: the lower, the better what is free can still be used."""
        self._tables.refresh()
        return self._tables.scorer.total()

    def learn(self, pods: Iterable[Pod]) -> bool:
        """Count these pods into the demand mix; True if it was time for new tables (after 50, 100, 200, ... pods)."""
        device_mib = self._usual_device_mib()
        mix = self._lessons.learn([shape_of(pod, device_mib) for pod in pods])
        if mix is None or not mix.total_milli_gpu:
            return False
        self.set_mix(with_unseen(mix, self._arrays.known_classes()))
        return True

    def set_mix(self, mix: Mix) -> None:
        """Make all tables anew for this demand mix."""
        self._tables.set_mix(mix)

    def excerpt(self, groups: Sequence[tuple[Pod, int]], most: int, also: Iterable[str]) -> Excerpt | None:
        """Return what a batch solver must know; None if no node can hold any of the pods.

        Args:
            groups: One pod of each kind, and how many equal nodes to include for it.
            most: Nodes of different cost to look at per kind.
            also: Nodes to include whatever they cost.
        """
        arrays, tables = self._arrays, self._tables
        found = {arrays.slots[name] for name in also}
        for pod, many in groups:
            found.update(nearest(self._costs(pod)[0], arrays.order, most, many).tolist())
        if not found:
            return None
        slots = np.array(sorted(found, key=arrays.order.__getitem__), np.int64)
        pods = [pod for pod, _ in groups]
        surcharge = np.stack([self._beside.surcharge(pod, tables.price)[slots] for pod in pods])
        return Excerpt(
            names=tuple(arrays.name(slot) for slot in slots.tolist()),
            device_ids=tuple(arrays.ids[slot] for slot in slots.tolist()),
            columns={name: column.tobytes() for name, column in arrays.copied(slots).items()},
            models=tuple(arrays.models.names),
            mix=tables.mix,
            weights=tables.weights,
            values=tables.scorer.potential.of_residual[:, 1].tobytes(),
            surcharge=surcharge.tobytes(),
            reserves=tables.reservations.reserves(pods, slots),
            reserve_price=tables.weights.reserved_milli,
        )

    def _unclaimed(self, pod: Pod) -> Unplaced | None:
        """Return the answer for a pod that its resource claims alone keep from every node; None = more does."""
        claims = self._beside.claims
        if not pod.resource_claims or claims is None:
            return None
        cost, _ = self._costs(replace(pod, resource_claims=()))
        return claims.why_not(pod, [self._arrays.name(slot) for slot in np.flatnonzero(cost < np.inf).tolist()])

    def _lonely(self, pod: Pod) -> Unplaced | None:
        """Return the answer for a pod that nothing but a rule between pods keeps from every node; None = more does."""
        if not self.company.is_involved(pod):
            return None
        score, _ = self._tables.scores.scores(PodClass.of(pod))
        has_room = room.nodes_with_room(self._arrays, self._eligibility, pod) & (score < np.inf)
        slots = np.flatnonzero(has_room)
        if not len(slots):
            return None
        reason, detail = self._beside.company.why_not(pod, slots)
        allowed = int(self._eligibility.mask(pod.constraints)[: self._arrays.count].sum())
        return Unplaced(pod_uid=pod.uid, reason=reason, detail=detail, allowed_nodes=allowed)

    def _miss(self, pod: Pod, *, with_shortfall: bool) -> Unplaced:
        """Return why no node can hold the pod; of several ways to serve it, why the nearest cannot be had."""
        if pod.ask is None or not pod.ask.alternatives:
            return self._misses.explain(pod, with_shortfall=with_shortfall)
        return alternatives.nearest_miss(
            [self._misses.explain(one, with_shortfall=with_shortfall) for one in alternatives.variants_of(pod)]
        )

    def _costs(self, pod: Pod) -> tuple[Floats, Ints]:
        """Return the cost on every slot, (count,), inf where the pod does not fit, and the best device's position."""
        if pod.ask is not None and pod.ask.alternatives:
            return alternatives.cheapest(pod, self._costs, self._tables.weights.lesser_model_milli)
        tables = self._tables
        tables.refresh()
        score, narrow = tables.scores.scores(PodClass.of(pod))
        position = narrow.astype(np.int64, copy=False)
        cost = score + self._beside.surcharge(pod, tables.price)
        charged = tables.reservations.charged(pod, position)
        if charged is not None:
            cost[charged] += tables.weights.reserved_milli
        return cost, position

    def _placement(self, pod: Pod, slot: int, cost: float, position: int) -> Placement:
        pod, position = alternatives.chosen(pod, position)
        ask, arrays = pod.ask, self._arrays
        devices: tuple[str, ...] = ()
        if ask is not None and ask.kind is AskKind.PARTITION and arrays.instances is not None:
            partition = arrays.instances.start(ask.profile, slot, position)
            devices = (arrays.instance_name(slot, position, partition),)
        elif position >= 0:
            devices = arrays.device_ids(slot, [position])
        elif ask is not None and ask.kind is not AskKind.CLASSIC:
            chosen, _ = self._tables.scorer.choose(ask, np.array([slot]))
            devices = arrays.device_ids(slot, [int(p) for p in np.flatnonzero(chosen[0])])
        node = arrays.name(slot)
        claims = self._beside.claims
        choices = claims.choices(pod, node) if pod.resource_claims and claims is not None else ()
        return Placement(pod_uid=pod.uid, berth=Berth(node=node, devices=devices, choices=choices), score=cost)

    def _usual_device_mib(self) -> int:
        known = self._arrays.total_mib[: self._arrays.count]
        known = known[known > 0]
        return int(np.median(known)) if len(known) else 0
