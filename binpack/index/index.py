"""The index: answers any pod at once with the class-value policy, and keeps books between answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from binpack.company import Company, CompanyBySlot
from binpack.dra.by_slot import ClaimsBySlot
from binpack.dra.desk import Desk
from binpack.index import alternatives, room
from binpack.index.ahead import Expected
from binpack.index.arrays import Arrays, Bools, Floats, Ints
from binpack.index.contention import contention
from binpack.index.device_value import frozen_value_table
from binpack.index.eligibility import Eligibility
from binpack.index.excerpt import Excerpt, nearest
from binpack.index.kept import Kept
from binpack.index.lessons import Lessons
from binpack.index.miss import Misses
from binpack.index.mix import Mix, default_mix, shape_of
from binpack.index.potential import Potential, Weights, grained
from binpack.index.reservation import Reservations
from binpack.index.scarcity import cpu_demand_ratio, suited
from binpack.index.scorer import Scorer
from binpack.index.scores import PodClass, ScoreCache
from binpack.index.soft_taints import SoftTaints
from binpack.index.unseen import with_unseen
from binpack.state import NodeState
from fleet.device import AskKind
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Pod

_LEAST_PRICED_MILLI = 300
# A CPU-only pod on a node with devices while others have room, or any pod on a node that is to be emptied: dearer than
# anything else.
_LAST_RESORT_MILLI = 10_000.0


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
        self._mix = default_mix() if mix is None else mix
        self._weights = self._given_weights = Weights() if weights is None else weights
        self._lessons = Lessons()
        self._eligibility = Eligibility(self._arrays)
        self._misses = Misses(self._arrays, self._eligibility)
        self._by_slot = CompanyBySlot()
        self._soft = SoftTaints()
        self._claims: ClaimsBySlot | None = None
        self._kept: Kept | None = None
        for state in states:
            self.set_node(state)
        self._rebuild()

    def keep_for(self, expected: Iterable[Expected]) -> None:
        """Leave nodes to drain for these pods that need several whole devices; the last call counts.

        Args:
            expected: How many of each kind wait, and how many fewer run than usual; kinds that ask less may be there.
        """
        self._kept = Kept(self._arrays, self._eligibility, expected)

    @property
    def company(self) -> Company:
        """Return what is known of rules between pods."""
        return self._by_slot.company

    def use_company(self, company: Company) -> None:
        """Read rules between pods from a company that is fed with more nodes than these; before there are any."""
        self._by_slot = CompanyBySlot(company)

    @property
    def desk(self) -> Desk | None:
        """Return who knows what the resource claims of pods can get; None = nobody does."""
        return None if self._claims is None else self._claims.desk

    def use_claims(self, desk: Desk) -> None:
        """Ask this desk what the resource claims of pods can get; before there are any nodes."""
        self._claims = ClaimsBySlot(desk)

    def set_node(self, state: NodeState) -> None:
        """Add a node or replace all that is known of it, bookings included."""
        self._arrays.set_node(state)
        if self._claims is not None:
            self._claims.node_moved(state.node.name)
        slot = self._arrays.slots[state.node.name]
        self._by_slot.set_node(state, slot)
        self._soft.set_node(slot, state.node)

    def remove_node(self, name: str) -> None:
        """Forget a node; one that is not there is no error."""
        slot = self._arrays.slots.get(name)
        if slot is not None:
            self._arrays.remove_node(name)
            self._by_slot.remove_node(name, slot)
            self._soft.remove_node(slot)

    def take(self, pod: Pod, berth: Berth) -> None:
        """Book the pod on the berth.

        Raises:
            UnknownBerthError: The node or a device is not in the index.
        """
        self._arrays.take(pod, berth)
        if berth.choices and self._claims is not None:
            self._claims.desk.take(berth.choices)
        self._by_slot.take(pod, berth)

    def give_back(self, pod: Pod, berth: Berth) -> None:
        """Undo `take`.

        Raises:
            UnknownBerthError: The node or a device is not in the index.
        """
        self._arrays.give_back(pod, berth)
        if berth.choices and self._claims is not None:
            self._claims.desk.give_back(berth.choices)
        self._by_slot.give_back(pod, berth)

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

    def potential(self) -> float:
        """Return the sum of Phi over all nodes, milli-GPU: the lower, the better what is free can still be used."""
        self._refresh()
        return self._scorer.total()

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
        self._mix = mix
        self._rebuild()

    def excerpt(self, groups: Sequence[tuple[Pod, int]], most: int, also: Iterable[str]) -> Excerpt | None:
        """Return what a batch solver must know; None if no node can hold any of the pods.

        Args:
            groups: One pod of each kind, and how many equal nodes to include for it.
            most: Nodes of different cost to look at per kind.
            also: Nodes to include whatever they cost.
        """
        arrays = self._arrays
        found = {arrays.slots[name] for name in also}
        for pod, many in groups:
            found.update(nearest(self._costs(pod)[0], arrays.order, most, many).tolist())
        if not found:
            return None
        slots = np.array(sorted(found, key=arrays.order.__getitem__), np.int64)
        pods = [pod for pod, _ in groups]
        surcharge = np.stack([self._surcharge(pod)[slots] for pod in pods])
        return Excerpt(
            names=tuple(arrays.name(slot) for slot in slots.tolist()),
            device_ids=tuple(arrays.ids[slot] for slot in slots.tolist()),
            columns={name: column.tobytes() for name, column in arrays.columns(slots).items()},
            models=tuple(arrays.models),
            mix=self._mix,
            weights=self._weights,
            values=self._scorer.potential.of_residual[:, 1].tobytes(),
            surcharge=surcharge.tobytes(),
            reserves=self._reservations.reserves(pods, slots),
            reserve_price=self._weights.reserved_milli,
        )

    def _surcharge(self, pod: Pod) -> Floats:
        """Return what the pod costs beside potential and reservations, (count,), inf where it is not allowed."""
        arrays = self._arrays
        allowed = room.nodes_with_room(arrays, self._eligibility, pod)
        cost = np.where(allowed, 0.0, np.inf)
        if pod.ask is None:
            every = np.arange(arrays.count)
            self._spare_devices(cost, allowed & room.cpu_suffices(arrays, pod.requests.milli_cpu, every))
            if pod.requests.extended:
                cost += room.instances_left(arrays, pod)
        elif self._price is not None:
            priced = max(pod.ask.total_milli_gpu, _LEAST_PRICED_MILLI)
            cost += priced * self._price[arrays.node_model[: arrays.count]]
        self._by_slot.charge(pod, cost)
        if pod.resource_claims and self._claims is not None:
            self._claims.charge(pod, cost, arrays.slots, arrays.name)
        if arrays.leaving:
            cost[list(arrays.leaving)] += _LAST_RESORT_MILLI
        avoided = self._soft.avoided(pod.constraints.tolerations)
        if avoided is not None:
            cost[avoided] += _LAST_RESORT_MILLI
        if self._kept:
            self._kept.charge(pod, cost)
        return cost

    def _unclaimed(self, pod: Pod) -> Unplaced | None:
        """Return the answer for a pod that its resource claims alone keep from every node; None = more does."""
        if not pod.resource_claims or self._claims is None:
            return None
        cost, _ = self._costs(replace(pod, resource_claims=()))
        return self._claims.why_not(pod, [self._arrays.name(slot) for slot in np.flatnonzero(cost < np.inf).tolist()])

    def _lonely(self, pod: Pod) -> Unplaced | None:
        """Return the answer for a pod that nothing but a rule between pods keeps from every node; None = more does."""
        if not self.company.is_involved(pod):
            return None
        score, _ = self._cache.scores(PodClass.of(pod))
        has_room = room.nodes_with_room(self._arrays, self._eligibility, pod) & (score < np.inf)
        slots = np.flatnonzero(has_room)
        if not len(slots):
            return None
        reason, detail = self._by_slot.why_not(pod, slots)
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
            return alternatives.cheapest(pod, self._costs, self._weights.lesser_model_milli)
        self._refresh()
        score, kept = self._cache.scores(PodClass.of(pod))
        position = kept.astype(np.int64, copy=False)
        cost = score + self._surcharge(pod)
        charged = self._reservations.charged(pod, position)
        if charged is not None:
            cost[charged] += self._weights.reserved_milli
        return cost, position

    def _spare_devices(self, cost: Floats, has_room: Bools) -> None:
        """Make nodes with devices the last resort of a CPU-only pod while another node has room."""
        has_devices = self._arrays.has_devices[: self._arrays.count] > 0
        if (has_room & ~has_devices).any():
            cost[has_devices] += _LAST_RESORT_MILLI

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
            chosen, _ = self._scorer.choose(ask, np.array([slot]))
            devices = arrays.device_ids(slot, [int(p) for p in np.flatnonzero(chosen[0])])
        node = arrays.name(slot)
        choices = self._claims.choices(pod, node) if pod.resource_claims and self._claims is not None else ()
        return Placement(pod_uid=pod.uid, berth=Berth(node=node, devices=devices, choices=choices), score=cost)

    def _refresh(self) -> None:
        """Bring everything derived up to date with the bookings and nodes since the last question."""
        arrays = self._arrays
        if len(arrays.models) != self._models_known:
            self._rebuild()
        elif arrays.has_new_inventory and self._suited() == self._weights:
            self._scorer.renew(self._changed())
            self._recount()
        elif arrays.has_new_inventory:
            self._rebuild()
        elif arrays.changed:
            slots = self._changed()
            self._scorer.renew(slots)
            self._reservations.renew(slots)
            arrays.changed.clear()

    def _changed(self) -> Ints:
        return np.fromiter(self._arrays.changed, np.int64, len(self._arrays.changed))

    def _rebuild(self) -> None:
        """Make all tables for the mix and the nodes there are now."""
        arrays = self._arrays
        self._models_known = len(arrays.models)
        self._weights = self._suited()
        potential = Potential(self._mix, arrays.models, frozen_value_table(), self._weights)
        self._scorer = Scorer(arrays, potential)
        self._cache = ScoreCache(arrays, self._scorer.score)
        self._recount()

    def _recount(self) -> None:
        """Make prices and reservations anew, which depend on how many nodes of which kind there are."""
        arrays = self._arrays
        self._reservations = Reservations(
            arrays, self._mix, self._weights.reservation_factor, self._weights.reservation_margin
        )
        self._price = self._prices()
        arrays.changed.clear()
        arrays.has_new_inventory = False

    def _suited(self) -> Weights:
        return suited(self._given_weights, cpu_demand_ratio(self._mix, self._arrays.known_classes().items()))

    def _prices(self) -> Floats | None:
        """Return the contention price per milli-GPU by model, (models + 1,); None where nothing is contended."""
        arrays = self._arrays
        devices = Counter[int](arrays.model[: arrays.count][arrays.model[: arrays.count] >= 0].tolist())
        levels = contention(self._mix, {arrays.models[model]: n for model, n in devices.items()})
        if not any(levels.values()):
            return None
        price = np.zeros(len(arrays.models) + 1)
        for name, level in levels.items():
            price[arrays.models.index(name)] = grained(self._weights.contention * level)
        return price

    def _usual_device_mib(self) -> int:
        known = self._arrays.total_mib[: self._arrays.count]
        known = known[known > 0]
        return int(np.median(known)) if len(known) else 0
