"""The hard rules between pods over all nodes at once, as kube-scheduler's filters judge them.

Sources: the filters NodePorts, PodTopologySpread and InterPodAffinity of kube-scheduler 1.37; KEP-895, KEP-3022
(minDomains), KEP-3094 (node inclusion policies).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from binpack.company.crowd import ANTI, Crowd
from binpack.company.group import Group
from binpack.company.roster import NO_DOMAIN, Bools, Domains, Ints, Roster
from fleet.company import Guest, PodTerm, Spread
from fleet.constraints import Toleration
from fleet.node import Node
from fleet.plan import Reason
from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What one rule says of every node.

    Attributes:
        subject: The rule in words.
        allowed: Where the pod may go, (capacity,).
        skew: What the skew would be, (capacity,); None for other rules than spread.
        most: The skew that is allowed.
    """

    reason: Reason
    subject: str
    allowed: Bools
    skew: Ints | None = None
    most: int = 0


def judgements(roster: Roster, crowd: Crowd, pod: Pod) -> Iterator[Judgement]:
    """Yield what each hard rule about other pods, the pod's own and theirs, says of every node."""
    guest = pod.guest
    if guest.ports:
        yield from _ports(roster, crowd, guest)
    if guest.spreads:
        hard = tuple(spread for spread in guest.spreads if spread.is_hard)
        if hard:
            everywhere = all_keys(roster, hard)
            for spread in hard:
                yield _spread(roster, crowd, pod, spread, everywhere)
    if guest.affinity:
        yield _affinity(roster, crowd, guest)
    for term in guest.anti:
        rows, _ = crowd.named((term,), is_hard=True).arrays()
        yield _apart(roster, rows, term, f"pod anti-affinity over {term.key}")
    for kind, _, term, holders in crowd.met(guest):
        if kind == ANTI and holders.at:
            yield _apart(roster, holders.arrays()[0], term, f"anti-affinity of other pods over {term.key}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Pods that a topology spread constraint counts, by domain.

    Attributes:
        domains: Of its key.
        eligible: Nodes that count, (capacity,).
        is_there: Domains with a node that counts, (domains,).
        counts: Pods, (domains + 1,); the last entry is that of nodes without the key, 0.
        own: 1 where the constraint counts the pod itself, else 0.
    """

    domains: Domains
    eligible: Bools
    is_there: Bools
    counts: Ints
    own: int

    def of(self, rows: Ints, many: Ints) -> Ints:
        """Return how many of these pods are in each domain, (domains + 1,)."""
        found = np.zeros(len(self.domains.names) + 1, np.int64)
        is_counted = self.eligible[rows]
        np.add.at(found, self.domains.of_row[rows[is_counted]], many[is_counted])
        return found


def tally(roster: Roster, crowd: Crowd, pod: Pod, spread: Spread, eligible: Bools) -> Tally:
    """Return whom a constraint counts.

    Args:
        roster: All nodes.
        crowd: All pods.
        pod: The pod to place.
        spread: One of its constraints.
        eligible: Nodes that have the keys of all constraints of its kind, (capacity,).
    """
    domains = roster.domains(spread.key)
    eligible = eligible & _included(roster, pod, spread)
    is_there = np.zeros(len(domains.names), np.bool_)
    is_there[domains.of_row[eligible]] = True
    selector = spread.selector
    found = Tally(
        domains=domains,
        eligible=eligible,
        is_there=is_there,
        counts=np.zeros(len(domains.names) + 1, np.int64),
        own=int(selector is not None and selector.matches(dict(pod.guest.labels))),
    )
    if selector is not None and not selector.is_everything:  # kube-scheduler counts nobody for one of everybody
        found.counts[:] = found.of(*crowd.alike(pod.guest.namespace, selector, is_hard=spread.is_hard).arrays())
    return found


def skews(roster: Roster, crowd: Crowd, pod: Pod, spread: Spread, eligible: Bools) -> Ints:
    """Return what the skew would be with the pod on each node, (capacity,); meaningless where the key is missing.

    The arguments are those of `tally`.
    """
    counted = tally(roster, crowd, pod, spread, eligible)
    is_there = counted.is_there
    least = int(counted.counts[:-1][is_there].min()) if is_there.sum() >= spread.min_domains else 0
    found: Ints = counted.counts[counted.domains.of_row] + counted.own - least
    return found


def all_keys(roster: Roster, spreads: tuple[Spread, ...]) -> Bools:
    """Return which nodes have the topology keys of all these constraints, (capacity,)."""
    found = np.ones(roster.capacity, np.bool_)
    for spread in spreads:
        found &= roster.domains(spread.key).of_row != NO_DOMAIN
    return found


def in_domains(domains: Domains, rows: Ints) -> Bools:
    """Return which nodes share a domain with one of these rows, (capacity,)."""
    has = np.zeros(len(domains.names) + 1, np.bool_)
    has[domains.of_row[rows]] = True
    has[NO_DOMAIN] = False
    found: Bools = has[domains.of_row]
    return found


def _spread(roster: Roster, crowd: Crowd, pod: Pod, spread: Spread, everywhere: Bools) -> Judgement:
    skew = skews(roster, crowd, pod, spread, everywhere)
    has_key = roster.domains(spread.key).of_row != NO_DOMAIN
    return Judgement(
        reason=Reason.TOPOLOGY_SPREAD,
        subject=f"topology spread over {spread.key}",
        allowed=has_key & (skew <= spread.max_skew),
        skew=np.where(has_key, skew, 0),
        most=spread.max_skew,
    )


def _included(roster: Roster, pod: Pod, spread: Spread) -> Bools:
    """Return which nodes count for a constraint, (capacity,)."""
    found = np.ones(roster.capacity, np.bool_)
    wish = pod.constraints
    if spread.honors_affinity and (wish.node_selector or wish.terms is not None):
        selector, terms = wish.node_selector, wish.terms

        def is_allowed(node: Node) -> float:
            if any(node.labels.get(key) != value for key, value in selector):
                return 0.0
            return float(terms is None or any(term.matches(node.name, node.labels) for term in terms))

        found &= roster.column(("nodes", selector, terms), is_allowed) > 0
    if spread.honors_taints:
        found &= roster.column(("taints", wish.tolerations), _tolerating(wish.tolerations)) > 0
    return found


def _tolerating(tolerations: tuple[Toleration, ...]) -> Callable[[Node], float]:
    def is_tolerated(node: Node) -> float:
        return float(
            all(
                taint.effect == "PreferNoSchedule" or any(t.tolerates(taint) for t in tolerations)
                for taint in node.taints
            )
        )

    return is_tolerated


def _affinity(roster: Roster, crowd: Crowd, guest: Guest) -> Judgement:
    """All terms must name a pod in the node's domain; the first of a kind may go anywhere where the keys are."""
    terms = guest.affinity
    members: Group = crowd.named(terms, is_hard=True)
    rows, _ = members.arrays()
    domains = [roster.domains(term.key) for term in terms]
    is_in_some = any((one.of_row[rows] != NO_DOMAIN).any() for one in domains)
    allowed = np.ones(roster.capacity, np.bool_)
    for one in domains:
        allowed &= one.of_row != NO_DOMAIN
    if is_in_some or not crowd.names_itself(guest):
        for one in domains:
            allowed &= in_domains(one, rows)
    return Judgement(
        reason=Reason.POD_AFFINITY,
        subject=f"pod affinity over {' and '.join(sorted({term.key for term in terms}))}",
        allowed=allowed,
    )


def _apart(roster: Roster, rows: Ints, term: PodTerm, subject: str) -> Judgement:
    return Judgement(
        reason=Reason.POD_ANTI_AFFINITY, subject=subject, allowed=~in_domains(roster.domains(term.key), rows)
    )


def _ports(roster: Roster, crowd: Crowd, guest: Guest) -> Iterator[Judgement]:
    for port in guest.ports:
        takers = [g for other, g in crowd.ports.get((port.port, port.protocol), {}).items() if port.clashes(other)]
        if not any(group.at for group in takers):
            continue
        allowed = np.ones(roster.capacity, np.bool_)
        for group in takers:
            allowed[group.arrays()[0]] = False
        yield Judgement(reason=Reason.HOST_PORT, subject=f"host port {port.protocol}/{port.port}", allowed=allowed)
