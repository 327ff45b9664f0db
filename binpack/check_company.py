"""The verifier's half about rules between pods: ports, topology spread, (anti-)affinity. Shares no line with the index.

It counts by names and label values, pod by pod, as the API documents the rules; no arrays, no groups kept for later.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from enum import StrEnum

from binpack.check_register import Register
from fleet.company import NOBODY, Guest, PodTerm, Selector, Spread
from fleet.constraints import NodeConstraints, Requirement
from fleet.node import Node
from fleet.pod import Pod

NodeJudge = Callable[[NodeConstraints, Node], bool]


class CompanyRule(StrEnum):
    """The rules between pods."""

    HOST_PORT = "host port"
    SPREAD = "topology spread"
    SPREAD_KEY = "topology key of a spread constraint"
    AFFINITY = "pod affinity"
    ANTI_AFFINITY = "pod anti-affinity"
    OTHERS_ANTI_AFFINITY = "anti-affinity of another pod"


class Trial:
    """One plan, read placement by placement over what the register knows."""

    def __init__(self, register: Register, allows: NodeJudge) -> None:
        """Begin.

        Args:
            register: Left as it is.
            allows: Whether selector and required affinity of some constraints allow a node.
        """
        self._register = register
        self._allows = allows
        self._added: defaultdict[Guest, Counter[str]] = defaultdict(Counter)
        self._averse = dict(register.averse)
        self._members: dict[Hashable, dict[Guest, None]] = {}
        self._judges: dict[Hashable, Callable[[Guest], bool]] = {}
        self._names: dict[tuple[PodTerm, Guest], bool] = {}

    def book(self, pod: Pod, node: str) -> None:
        """Count a pod as placed."""
        guest = pod.guest
        if guest is NOBODY:
            return
        is_new = guest not in self._added
        self._added[guest][node] += 1
        if guest.anti:
            self._averse[guest] = None
        if is_new:
            for key, judge in self._judges.items():
                if judge(guest):
                    self._members[key][guest] = None

    def objections(self, pod: Pod, name: str) -> Iterator[tuple[CompanyRule, int, int]]:
        """Yield each rule that forbids the pod this node, with what would be and what may be."""
        guest, node = pod.guest, self._register.nodes.get(name)
        if guest is NOBODY or node is None:
            return
        if guest.ports:
            there = [*self._register.on.get(name, ()), *(other for other, at in self._added.items() if at[name])]
            taken = [one for other in there for one in other.ports]
            for port in guest.ports:
                same = [one for one in taken if (one.port, one.protocol) == (port.port, port.protocol)]
                if any(one.ip == port.ip or not one.ip or not port.ip for one in same):
                    yield CompanyRule.HOST_PORT, port.port, 0
        hard = [spread for spread in guest.spreads if spread.is_hard]
        for spread in hard:
            yield from self._spread(pod, spread, hard, node)
        if guest.affinity and not self._may_join(guest, node):
            yield CompanyRule.AFFINITY, 1, 0
        for term in guest.anti:
            if self._shares_domain(node, term.key, self._named((term,))):
                yield CompanyRule.ANTI_AFFINITY, 0, 1
        for other in self._averse:
            for term in other.anti:
                if self._is_named(term, guest) and self._shares_domain(node, term.key, (other,)):
                    yield CompanyRule.OTHERS_ANTI_AFFINITY, 0, 1

    def _spread(
        self, pod: Pod, spread: Spread, hard: list[Spread], node: Node
    ) -> Iterator[tuple[CompanyRule, int, int]]:
        domain = node.labels.get(spread.key)
        if domain is None:
            yield CompanyRule.SPREAD_KEY, 1, 0
            return
        domain_of = self._counting(pod, spread, hard)
        found = dict.fromkeys(domain_of.values(), 0)
        selector, guest = spread.selector, pod.guest
        if selector is not None and selector.requirements:
            for other in self._alike(guest.namespace, selector):
                for name, many in self._places(other):
                    if name in domain_of:
                        found[domain_of[name]] += many
        itself = int(selector is not None and _selects(selector, guest))
        least = min(found.values(), default=0) if len(found) >= spread.min_domains else 0
        skew = found.get(domain, 0) + itself - least
        if skew > spread.max_skew:
            yield CompanyRule.SPREAD, skew, spread.max_skew

    def _counting(self, pod: Pod, spread: Spread, hard: list[Spread]) -> dict[str, str]:
        """Return the domain of every node that counts."""
        wish = pod.constraints
        keys = tuple(one.key for one in hard)
        nodes_of = (wish.node_selector, wish.terms) if spread.honors_affinity else None
        taints_of = wish.tolerations if spread.honors_taints else None
        asked = (keys, spread.key, nodes_of, taints_of)
        if asked not in self._register.counting:
            wanted = NodeConstraints(
                node_selector=wish.node_selector if nodes_of else (), terms=wish.terms if nodes_of else None
            )
            self._register.counting[asked] = {
                name: node.labels[spread.key]
                for name, node in self._register.nodes.items()
                if all(key in node.labels for key in keys)
                and self._allows(wanted, node)
                and (taints_of is None or _tolerates_all(wish, node))
            }
        return self._register.counting[asked]

    def _may_join(self, guest: Guest, node: Node) -> bool:
        if any(term.key not in node.labels for term in guest.affinity):
            return False
        members = self._named(guest.affinity)
        if all(self._shares_domain(node, term.key, members) for term in guest.affinity):
            return True
        labelled = [self._register.nodes[n].labels for member in members for n, _ in self._places(member)]
        is_first = not any(term.key in labels for labels in labelled for term in guest.affinity)
        return is_first and all(self._is_named(term, guest) for term in guest.affinity)

    def _shares_domain(self, node: Node, key: str, guests: Iterable[Guest]) -> bool:
        domain = node.labels.get(key)
        if domain is None:
            return False
        nodes = self._register.nodes
        return any(nodes[name].labels.get(key) == domain for guest in guests for name, _ in self._places(guest))

    def _places(self, guest: Guest) -> Iterator[tuple[str, int]]:
        for places in (self._register.where.get(guest), self._added.get(guest)):
            for name, many in (places or {}).items():
                if name in self._register.nodes:
                    yield name, many

    def _alike(self, namespace: str, selector: Selector) -> Iterable[Guest]:
        def counts(guest: Guest) -> bool:
            return guest.namespace == namespace and not guest.is_leaving and _selects(selector, guest)

        return self._all_that((namespace, selector), counts)

    def _named(self, terms: tuple[PodTerm, ...]) -> Iterable[Guest]:
        return self._all_that(terms, lambda guest: all(self._is_named(term, guest) for term in terms))

    def _all_that(self, key: Hashable, judge: Callable[[Guest], bool]) -> Iterable[Guest]:
        if key not in self._members:
            known = {**dict.fromkeys(self._register.where), **dict.fromkeys(self._added)}
            self._members[key] = {guest: None for guest in known if judge(guest)}
            self._judges[key] = judge
        return self._members[key]

    def _is_named(self, term: PodTerm, guest: Guest) -> bool:
        asked = (term, guest)
        if asked not in self._names:
            self._names[asked] = self._names_it(term, guest)
        return self._names[asked]

    def _names_it(self, term: PodTerm, guest: Guest) -> bool:
        if term.selector is None or not _selects(term.selector, guest):
            return False
        if guest.namespace in term.namespaces:
            return True
        if term.namespace_selector is None:
            return False
        labels = self._register.namespaces.get(guest.namespace, {})
        return all(_has(requirement, labels) for requirement in term.namespace_selector.requirements)


def _selects(selector: Selector, guest: Guest) -> bool:
    labels = dict(guest.labels)
    return all(_has(requirement, labels) for requirement in selector.requirements)


def _has(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    is_there = requirement.key in labels
    is_listed = is_there and labels[requirement.key] in requirement.values
    return {"In": is_listed, "NotIn": not is_listed, "Exists": is_there, "DoesNotExist": not is_there}.get(
        requirement.operator, False
    )


def _tolerates_all(wish: NodeConstraints, node: Node) -> bool:
    return not any(
        taint.effect in ("NoSchedule", "NoExecute") and not any(one.tolerates(taint) for one in wish.tolerations)
        for taint in node.taints
    )
