"""The soft rules, as costs in milli-GPU: what a user wrote as a preference, and one service's replicas apart.

A preference of weight w (1..100) is worth w milli-GPU. They break ties between nodes that pack about as well, and no
more; who wants one kept whatever it costs writes it as required.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from binpack.company.crowd import REPULSED, Crowd
from binpack.company.roster import Floats, Ints, Roster
from binpack.company.rules import all_keys, in_domains, skews
from fleet import labels
from fleet.company import Guest, PodTerm
from fleet.constraints import NodeTerm, Toleration
from fleet.node import Node
from fleet.pod import Pod

REPLICA_MILLI: Final = 25.0  # for each replica of the same owner that is on the node already
SPREAD_MILLI: Final = 100.0  # for each pod by which a soft topology spread constraint would be exceeded
DISCOURAGED_MILLI: Final = 100.0  # for each PreferNoSchedule taint that is not tolerated
_MOST_REPELLED: Final = 10  # pods in one domain that count for a preferred anti-affinity


def spreads_replicas(guest: Guest) -> bool:
    """Return True for a replica of which the user wrote nothing about sharing nodes with the others."""
    return bool(guest.owner) and not any(
        key == labels.HOSTNAME
        for key in (
            *(spread.key for spread in guest.spreads),
            *(term.key for term in guest.anti),
            *(term.key for _, term in guest.repulsed),
        )
    )


def replicas(crowd: Crowd, guest: Guest) -> tuple[Ints, Floats] | None:
    """Return rows with replicas of the same owner and what each costs, both (n,); None where there are none."""
    group = crowd.owners.get(guest.owner) if guest.owner else None
    if group is None or not group.at or not spreads_replicas(guest):
        return None
    rows, counts = group.arrays()
    return rows, REPLICA_MILLI * counts.astype(np.float64)


def wishes(roster: Roster, crowd: Crowd, pod: Pod) -> Floats | None:
    """Return what the nodes cost by the soft rules, (capacity,), but for replicas of one owner; None = nothing."""
    guest = pod.guest
    parts: list[Floats] = []
    soft = tuple(spread for spread in guest.spreads if not spread.is_hard)
    if soft:
        everywhere = all_keys(roster, soft)
        for spread in soft:
            skew = skews(roster, crowd, pod, spread, everywhere)
            excess = np.where(everywhere, (skew - spread.max_skew).clip(0), 0)
            parts.append(SPREAD_MILLI * np.where(everywhere, excess, excess.max(initial=0) + 1))
    for weight, term in guest.preferred:
        rows, _ = crowd.named((term,), is_hard=False).arrays()
        parts.append(np.where(in_domains(roster.domains(term.key), rows), 0.0, float(weight)))
    for weight, term in guest.repulsed:
        parts.append(weight * _crowding(roster, term, *crowd.named((term,), is_hard=False).arrays()))
    for kind, weight, term, holders in crowd.met(guest):
        if kind == REPULSED and holders.at:
            parts.append(weight * _crowding(roster, term, *holders.arrays()))
    if pod.preferred_nodes:
        parts.append(roster.column(("preferred", pod.preferred_nodes), lambda node: _unmet(node, pod.preferred_nodes)))
    if roster.discouraging:
        tolerations = pod.constraints.tolerations
        parts.append(roster.column(("discouraged", tolerations), lambda node: _discouraged(node, tolerations)))
    return sum(parts[1:], parts[0]) if parts else None


def _crowding(roster: Roster, term: PodTerm, rows: Ints, counts: Ints) -> Floats:
    """Return how many of these pods share a domain with each node, ten at most, (capacity,)."""
    domains = roster.domains(term.key)
    many = np.zeros(len(domains.names) + 1)
    np.add.at(many, domains.of_row[rows], counts)
    many[-1] = 0
    found: Floats = np.minimum(many, _MOST_REPELLED)[domains.of_row]
    return found


def _unmet(node: Node, preferred: tuple[tuple[int, NodeTerm], ...]) -> float:
    return float(sum(weight for weight, term in preferred if not term.matches(node.name, node.labels)))


def _discouraged(node: Node, tolerations: tuple[Toleration, ...]) -> float:
    return DISCOURAGED_MILLI * sum(
        taint.effect == "PreferNoSchedule" and not any(t.tolerates(taint) for t in tolerations) for taint in node.taints
    )
