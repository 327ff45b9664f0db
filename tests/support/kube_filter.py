"""kube-scheduler's filters about other pods, written down once more from its documentation, for one pod and one node.

The pod is pinned: its required node affinity names the node. What is bound is a plain list; pods that are not bound do
not exist for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.company import Guest, PodTerm, Selector, Spread
from fleet.node import Node
from fleet.pod import Pod

Bound = Sequence[tuple[Guest, str]]


def admits(
    nodes: Mapping[str, Node], teams: Mapping[str, Mapping[str, str]], bound: Bound, pod: Pod, name: str
) -> bool:
    """Return True if the pod may be bound to the node it is pinned to."""
    guest, node = pod.guest, nodes[name]
    return (
        all(
            not mine.clashes(theirs)
            for other, at in bound
            if at == name
            for mine in guest.ports
            for theirs in other.ports
        )
        and all(_spreads(nodes, bound, pod, one, node) for one in guest.spreads if one.is_hard)
        and _joins(nodes, teams, bound, guest, node)
        and not any(_shares(nodes, teams, bound, term, node) for term in guest.anti)
        and not any(
            _names(term, guest, teams) and _same(nodes[at], node, term.key)
            for other, at in bound
            for term in other.anti
        )
    )


def _selects(selector: Selector | None, guest: Guest) -> bool:
    return selector is not None and selector.matches(dict(guest.labels))


def _same(one: Node, other: Node, key: str) -> bool:
    return key in one.labels and one.labels[key] == other.labels.get(key)


def _names(term: PodTerm, guest: Guest, teams: Mapping[str, Mapping[str, str]]) -> bool:
    return term.matches(guest.namespace, dict(guest.labels), teams.get(guest.namespace, {}))


def _shares(
    nodes: Mapping[str, Node], teams: Mapping[str, Mapping[str, str]], bound: Bound, term: PodTerm, node: Node
) -> bool:
    return any(_names(term, other, teams) and _same(nodes[at], node, term.key) for other, at in bound)


def _joins(
    nodes: Mapping[str, Node], teams: Mapping[str, Mapping[str, str]], bound: Bound, guest: Guest, node: Node
) -> bool:
    terms = guest.affinity
    if not terms:
        return True
    if any(term.key not in node.labels for term in terms):
        return False
    members = [(other, at) for other, at in bound if all(_names(term, other, teams) for term in terms)]
    if all(any(_same(nodes[at], node, term.key) for _, at in members) for term in terms):
        return True
    is_anywhere = any(term.key in nodes[at].labels for _, at in members for term in terms)
    return not is_anywhere and all(_names(term, guest, teams) for term in terms)


def _spreads(nodes: Mapping[str, Node], bound: Bound, pod: Pod, spread: Spread, node: Node) -> bool:
    guest = pod.guest
    if spread.key not in node.labels:
        return False
    keys = [one.key for one in guest.spreads if one.is_hard]
    counting = {
        other.name: other.labels[spread.key]
        for other in nodes.values()
        if all(key in other.labels for key in keys)
        and not (spread.honors_affinity and other.name != node.name)
        and not (spread.honors_taints and _repels(other, pod))
    }
    found = dict.fromkeys(counting.values(), 0)
    if spread.selector is not None and spread.selector.requirements:
        for other, at in bound:
            is_alike = other.namespace == guest.namespace and not other.is_leaving and _selects(spread.selector, other)
            if is_alike and at in counting:
                found[counting[at]] += 1
    least = min(found.values(), default=0) if len(found) >= spread.min_domains else 0
    itself = _selects(spread.selector, guest)
    return found.get(node.labels[spread.key], 0) + itself - least <= spread.max_skew


def _repels(node: Node, pod: Pod) -> bool:
    return any(
        taint.effect in ("NoSchedule", "NoExecute") and not any(t.tolerates(taint) for t in pod.constraints.tolerations)
        for taint in node.taints
    )
