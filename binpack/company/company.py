"""What the company that a pod would have on each node allows and costs: the one door to roster, crowd and rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from binpack.coming import Coming, is_minded
from binpack.company import wishes
from binpack.company.crowd import ANTI, Crowd
from binpack.company.order import in_any_order, underway
from binpack.company.roster import Bools, Floats, Ints, Roster
from binpack.company.rules import Judgement, judgements
from binpack.state import NodeState
from fleet.company import NOBODY, Guest
from fleet.plan import Reason
from fleet.pod import Pod

COMPANY_REASONS = frozenset({Reason.HOST_PORT, Reason.TOPOLOGY_SPREAD, Reason.POD_AFFINITY, Reason.POD_ANTI_AFFINITY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a pod's company costs, milli-GPU by row.

    Attributes:
        everywhere: (capacity,), inf where a hard rule forbids the node; None = nothing.
        rows: Rows that cost more, (n,).
        more: By how much, (n,).
    """

    everywhere: Floats | None
    rows: Ints
    more: Floats


class Company:
    """All nodes and the pods on them, as far as pods are each other's business.

    Rows are its own numbering of nodes (`row`); an index maps its slots to them. Fed with the states of all nodes, of
    those too on which nobody may be placed; bookings of an index are counted in between.

    While pods are chosen a place to be pinned to (`pinning`), rules hold whatever the order in which kube-scheduler
    binds those that are on their way, those booked meanwhile included.
    """

    def __init__(self) -> None:
        self._roster = Roster()
        self._crowd = Crowd()
        self._coming = Coming()
        self._planned: Coming | None = None

    def follow(self, coming: Coming) -> None:
        """Read from now on who of the pods on the nodes is on the way to them; until then nobody is."""
        self._coming = coming

    @contextmanager
    def pinning(self, pods: Iterable[Pod]) -> Iterator[None]:
        """Let the rules about these pods hold in every order of binding meanwhile."""
        if self._coming.minded or any(is_minded(pod.guest) for pod in pods):
            self._planned = Coming()
        try:
            yield
        finally:
            self._planned = None

    def set_node(self, state: NodeState) -> None:
        """Add a node or replace all that is known of it, its pods included."""
        row = self._roster.set_node(state.node)
        self._crowd.set_row(row, state.guests)

    def remove_node(self, name: str) -> None:
        """Forget a node and who is on it."""
        row = self._roster.remove_node(name)
        if row is not None:
            self._crowd.set_row(row, ())

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> bool:
        """Learn the labels of a namespace; None = it is gone. True if that may change any answer."""
        return self._crowd.set_namespace(name, labels)

    def row(self, name: str) -> int:
        """Return the row of a node, -1 if it is not known; it keeps it until it is removed."""
        return self._roster.rows.get(name, -1)

    def enter(self, pod: Pod, name: str) -> None:
        """Count a pod as on a node."""
        if pod.guest is not NOBODY and (row := self.row(name)) >= 0:
            self._crowd.enter(pod.guest, row)
            if self._planned is not None:
                self._planned.seen(pod, name)

    def leave(self, pod: Pod, name: str) -> None:
        """Undo `enter`."""
        if pod.guest is not NOBODY and (row := self.row(name)) >= 0:
            self._crowd.enter(pod.guest, row, -1)
            if self._planned is not None:
                self._planned.gone(pod.uid)

    def cost(self, pod: Pod) -> Cost | None:
        """Return what the nodes cost this pod for the company's sake; None = nothing anywhere."""
        guest = pod.guest
        if guest is NOBODY and not pod.preferred_nodes and not self._roster.discouraging:
            return None
        everywhere = wishes.wishes(self._roster, self._crowd, pod)
        allowed: Bools | None = None
        for judgement in self._judgements(pod):
            allowed = judgement.allowed if allowed is None else allowed & judgement.allowed
        if allowed is not None:
            everywhere = np.where(allowed, 0.0 if everywhere is None else everywhere, np.inf)
        rows, more = wishes.replicas(self._crowd, guest) or (_NO_ROWS, _NO_COSTS)
        if everywhere is None and not len(rows):
            return None
        return Cost(everywhere=everywhere, rows=rows, more=more)

    def _judgements(self, pod: Pod) -> Iterator[Judgement]:
        yield from judgements(self._roster, self._crowd, pod)
        if self._planned is not None:
            way = underway(self._roster, (self._coming, self._planned), pod)
            if way is not None:
                yield from in_any_order(self._roster, self._crowd, pod, way)

    def allows(self, pod: Pod, name: str) -> bool:
        """Return True if no rule between pods forbids the pod this node now; False where it is not known."""
        row = self.row(name)
        return row >= 0 and all(bool(one.allowed[row]) for one in self._judgements(pod))

    def holds(self, pod: Pod, name: str) -> bool:
        """Return True if no rule between pods forbids a pod the node where it is counted, beside all others there."""
        self.leave(pod, name)
        is_allowed = self.allows(pod, name)
        self.enter(pod, name)
        return is_allowed

    def against(self, pod: Pod) -> dict[str, str]:
        """Return, by node, the first rule between pods that forbids it to the pod, in words; others are left out."""
        found: dict[str, str] = {}
        for one in self._judgements(pod):
            for row in np.flatnonzero(~one.allowed).tolist():
                node = self._roster.nodes[row] if row < self._roster.count else None
                if node is not None:
                    found.setdefault(node.name, one.subject)
        return found

    def why_not(self, pod: Pod, rows: Ints) -> tuple[Reason, str]:
        """Return the rule that forbids most of these nodes, and how many each rule forbids, in words.

        Args:
            pod: A pod that may go on none of them.
            rows: Nodes that would do but for their company.
        """
        found = [(int((~one.allowed[rows]).sum()), one) for one in self._judgements(pod)]
        # By number, then by name: the answer is the same whatever order the rules came to be known in.
        found = sorted(
            ((many, one) for many, one in found if many), key=lambda pair: (-pair[0], _forbids(pair[1], rows))
        )
        if not found:
            return Reason.INSUFFICIENT, ""
        _, first = found[0]
        words = "; ".join(f"{_forbids(one, rows)} on {many} of {len(rows)} nodes with room" for many, one in found)
        return first.reason, words

    def stamp(self, guest: Guest) -> tuple[int, ...]:
        """Return a value that changes whenever the answer about such a pod's company may have."""
        crowd = self._crowd
        versions = [self._roster.version, len(crowd.holders)]
        versions += [
            crowd.alike(guest.namespace, spread.selector, is_hard=True).version
            for spread in guest.spreads
            if spread.is_hard and spread.selector is not None
        ]
        if guest.affinity:
            versions.append(crowd.named(guest.affinity, is_hard=True).version)
        versions += [crowd.named((term,), is_hard=True).version for term in guest.anti]
        versions += [group.version for kind, _, _, group in crowd.met(guest) if kind == ANTI]
        for port in guest.ports:
            versions += [group.version for group in crowd.ports.get((port.port, port.protocol), {}).values()]
        if self._coming.minded or is_minded(guest):
            versions.append(self._stamp_of_coming(guest))
        return tuple(versions)

    def _stamp_of_coming(self, guest: Guest) -> int:
        """Return what changes, nearly always, with those on their way who may matter to such a pod."""
        return hash(
            frozenset(
                (other, tuple(sorted(at.items())))
                for other, at in self._coming.counted().items()
                if other.namespace == guest.namespace
                or is_minded(other)
                or (guest.affinity and self._crowd.is_named(guest.affinity, other))
            )
        )

    def is_involved(self, pod: Pod) -> bool:
        """Return True if the pod cannot be moved about without looking at others: rules of its own, or about it."""
        guest = pod.guest
        if guest is NOBODY:
            return False
        if guest.has_wishes or self._crowd.is_counted(guest):
            return True
        return bool(self._coming.minded) and any(
            one.guest.namespace == guest.namespace for one in self._coming.minded.values()
        )

    def standing(self, pod: Pod) -> tuple[object, ...]:
        """Return what tells pods apart whose nodes cost them differently for their company's sake."""
        guest = pod.guest
        group = self._crowd.owners.get(guest.owner) if guest.owner else None
        owner = guest.owner if group is not None and group.at and wishes.spreads_replicas(guest) else ""
        return (owner, pod.preferred_nodes)

    @staticmethod
    def togetherness(placed: Counter[tuple[str, str]]) -> float:
        """Return what replicas that are placed together cost beside each other, milli-GPU.

        Args:
            placed: How many pods of (owner, node).
        """
        return wishes.REPLICA_MILLI * sum(many * (many - 1) // 2 for (owner, _), many in placed.items() if owner)


def _forbids(one: Judgement, rows: Ints) -> str:
    if one.skew is not None:
        refused = rows[~one.allowed[rows]]
        skew = int(one.skew[refused].min())
        if skew > one.most:
            return f"{one.subject}: skew would be {skew} > {one.most}"
        return f"{one.subject}: no such label"
    return f"{one.subject} is in the way" if one.reason is not Reason.HOST_PORT else f"{one.subject} is taken"


_NO_ROWS: Ints = np.zeros(0, np.int64)
_NO_COSTS: Floats = np.zeros(0)
