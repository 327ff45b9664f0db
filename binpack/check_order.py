"""The verifier's half about the order of binding: a plan's pins must hold whoever of them and of others comes first.

For each pod that is on its way it asks what kube-scheduler could find at worst: everybody who is bound, and of those
on their way the ones that are the most in its way. Counted by names, pod by pod; shares no line with the index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from binpack.check_company import Trial
from binpack.check_nodes import unlike
from binpack.check_register import Register
from fleet.company import Guest, PodTerm, Spread
from fleet.node import Node
from fleet.plan import Plan, Violation
from fleet.pod import Pod

OnWay = tuple[Pod, str]


class OrderRule(StrEnum):
    """What another order of binding would break."""

    SPREAD = "topology spread, were others bound first"
    AFFINITY = "pod affinity, were others bound first"


def disorders(register: Register, coming: Iterable[OnWay], pods: Sequence[Pod], plan: Plan) -> tuple[Violation, ...]:
    """Return the pins of a plan that some order of binding breaks, or that break those which are on their way.

    Args:
        register: Who is where, those on their way included.
        coming: Those of them who are not bound yet.
        pods: The batch.
        plan: To be judged; each of its placements is on its way from now on.
    """
    if not any(_minds(pod) for pod in pods) and not any(_minds(pod) for pod, _ in coming):
        return ()
    by_uid = {pod.uid: pod for pod in pods}
    placed = [
        (by_uid[one.pod_uid], one.berth.node)
        for one in plan.placements
        if one.pod_uid in by_uid and one.berth.node in register.nodes
    ]
    before = [(pod, node) for pod, node in coming if node in register.nodes]
    trial = _Order(register, lambda wish, node: unlike(wish, node) is None)
    for pod, node in placed:
        trial.book(pod, node)
    return tuple(trial.disorders(placed, before))


def _minds(pod: Pod) -> bool:
    """Return True if it matters to the pod who is bound before it."""
    return bool(pod.guest.affinity) or any(map(_is_checked, pod.guest.spreads))


def _is_checked(spread: Spread) -> bool:
    """Return True if kube-scheduler has something left to check once the pod is pinned."""
    return spread.is_hard and not spread.honors_affinity


class _Order(Trial):
    """Everybody is booked; looks from each pod on its way at all the others."""

    def disorders(self, placed: Sequence[OnWay], before: Sequence[OnWay]) -> Iterator[Violation]:
        way = [*before, *placed]
        mine = {pod.uid for pod, _ in placed}
        for pod, name in filter(lambda one: _minds(one[0]), way):
            node = self._register.nodes[name]
            others = [(other, at) for other, at in way if other.uid != pod.uid]
            for spread in filter(_is_checked, pod.guest.spreads):
                to_blame = self._crowding(pod, spread, node, others)
                if to_blame is not None:
                    yield from _blamed(OrderRule.SPREAD, pod, name, mine, to_blame)
            if pod.guest.affinity:
                lonely = self._lonely(pod.guest, node, others)
                if lonely is not None:
                    yield from _blamed(OrderRule.AFFINITY, pod, name, mine, lonely)

    def _crowding(self, pod: Pod, spread: Spread, node: Node, others: Sequence[OnWay]) -> list[OnWay] | None:
        """Return those whose coming first would break a spread; None = nobody's would."""
        hard = [one for one in pod.guest.spreads if one.is_hard]
        domain_of, domain = self._counting(pod, spread, hard), node.labels.get(spread.key)
        selector = spread.selector
        if domain is None or selector is None or not selector.requirements:
            return None
        alike = self._alike(pod.guest.namespace, selector)
        most: Counter[str] = Counter()
        for guest in alike:
            for name, many in self._places(guest):
                if name in domain_of:
                    most[domain_of[name]] += many
        itself = int(pod.guest in alike)
        if node.name in domain_of:
            most[domain] -= itself
        loose = [(o, at) for o, at in others if o.guest in alike and at in domain_of]
        least = Counter(most)
        least.subtract(domain_of[at] for _, at in loose)
        known = set(domain_of.values())
        lowest = 0
        if len(known) >= spread.min_domains:
            lowest = min((most[one] if one == domain else least[one] for one in known), default=0)
        if most[domain] + itself - lowest <= spread.max_skew:
            return None
        return [(o, at) for o, at in loose if domain_of[at] == domain]

    def _lonely(self, guest: Guest, node: Node, others: Sequence[OnWay]) -> list[OnWay] | None:
        """Return those whose coming first would forbid the node to a pod that is to join others; None = nobody's."""
        members = self._named(guest.affinity)
        loose: Counter[tuple[Guest, str]] = Counter((o.guest, at) for o, at in others if o.guest in members)
        sure: list[Mapping[str, str]] = []
        for member in members:
            there: Counter[str] = Counter()
            for name, many in self._places(member):
                there[name] += many
            there[node.name] -= member == guest
            sure += [self._register.nodes[name].labels for name in there if there[name] > loose[member, name]]
        if any(term.key in labels for labels in sure for term in guest.affinity):
            is_joined = all(any(_is_one(term, node, labels) for labels in sure) for term in guest.affinity)
            return None if is_joined else []
        if not all(self._is_named(term, guest) for term in guest.affinity):
            return []
        elsewhere = [
            (o, at)
            for o, at in others
            if o.guest in members and self._is_elsewhere(guest, node, self._register.nodes[at].labels)
        ]
        return elsewhere or None

    @staticmethod
    def _is_elsewhere(guest: Guest, node: Node, labels: Mapping[str, str]) -> bool:
        if not any(term.key in labels for term in guest.affinity):
            return False
        return not all(_is_one(term, node, labels) for term in guest.affinity)


def _is_one(term: PodTerm, node: Node, labels: Mapping[str, str]) -> bool:
    return term.key in labels and node.labels.get(term.key) == labels[term.key]


def _blamed(rule: OrderRule, pod: Pod, name: str, mine: set[str], to_blame: Iterable[OnWay]) -> Iterator[Violation]:
    """Name the pod if it is of this plan, else those of the plan that are in the way of one pinned before."""
    if pod.uid in mine:
        yield Violation(pod_uid=pod.uid, node=name, rule=rule)
        return
    for other, at in to_blame:
        if other.uid in mine:
            yield Violation(pod_uid=other.uid, node=at, rule=rule)
