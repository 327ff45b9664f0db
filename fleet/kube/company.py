"""What a v1 Pod asks of other pods, as a `Guest`: read of every pod, since those that run count for those that come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from fleet.company import Guest, HostPort, PodTerm, Selector, Spread
from fleet.constraints import NodeTerm, Requirement
from fleet.kube.objects import (
    AffinityObject,
    LabelSelectorObject,
    MetaObject,
    PodAffinityObject,
    PodSpecObject,
    PodTermObject,
    RequirementObject,
    SpreadObject,
    TermObject,
)
from fleet.pod import Owner

# Whose pods are replicas of one thing, one as good as the other.
_OF_REPLICAS = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
_ALL_ADDRESSES = ("", "0.0.0.0")  # noqa: S104  what pods write for it; nothing is bound here
_HONOR = "Honor"
MOST_RULES = 128  # of one pod: each is judged on every node


def guest_of(meta: MetaObject, spec: PodSpecObject, owner: Owner | None) -> Guest:
    """Return the pod as rules between pods see it; pods of one template share one value."""
    labels = meta.labels
    own = tuple(sorted(labels.items())) if labels else ()
    replica_of = owner.uid if owner is not None and owner.kind in _OF_REPLICAS else ""
    is_leaving = meta.deletion_timestamp is not None
    ports = _ports(spec)
    affinity = spec.affinity
    is_plain = affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None)
    is_plain = is_plain and not spec.topology_spread_constraints and not ports
    if is_plain or has_too_many_rules(spec):
        return _plain(meta.namespace, own, replica_of, is_leaving)
    towards, away = _terms(affinity, meta.namespace)
    return _with_wishes(
        meta.namespace,
        own,
        replica_of,
        is_leaving,
        tuple(_spread(spread, labels or {}) for spread in spec.topology_spread_constraints or ()),
        towards,
        away,
        ports,
    )


def has_too_many_rules(spec: PodSpecObject) -> bool:
    """Return True for a pod with more rules about other pods than are read; they are kube-scheduler's to keep."""
    affinity = spec.affinity
    kinds = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ()
    many = len(spec.topology_spread_constraints or ()) + sum(
        len(kind.required_during_scheduling_ignored_during_execution or ())
        + len(kind.preferred_during_scheduling_ignored_during_execution or ())
        for kind in kinds
        if kind is not None
    )
    return many > MOST_RULES


def preferred_nodes(affinity: AffinityObject | None) -> tuple[tuple[int, NodeTerm], ...]:
    """Return (weight, term) of preferred node affinity; a term without requirements prefers nothing."""
    wishes = affinity.node_affinity if affinity is not None else None
    if wishes is None or not wishes.preferred_during_scheduling_ignored_during_execution:
        return ()
    return tuple(
        (one.weight, _node_term(one.preference))
        for one in wishes.preferred_during_scheduling_ignored_during_execution
        if one.preference is not None and (one.preference.match_expressions or one.preference.match_fields)
    )


@lru_cache(maxsize=16384)
def _plain(namespace: str, labels: tuple[tuple[str, str], ...], owner: str, is_leaving: bool) -> Guest:
    return Guest(namespace=namespace, labels=labels, owner=owner, is_leaving=is_leaving)


_Terms = tuple[tuple[PodTerm, ...], tuple[tuple[int, PodTerm], ...]]


@lru_cache(maxsize=16384)
def _with_wishes(
    namespace: str,
    labels: tuple[tuple[str, str], ...],
    owner: str,
    is_leaving: bool,
    spreads: tuple[Spread, ...],
    towards: _Terms,
    away: _Terms,
    ports: tuple[HostPort, ...],
) -> Guest:
    return Guest(
        namespace=namespace,
        labels=labels,
        owner=owner,
        is_leaving=is_leaving,
        spreads=spreads,
        affinity=towards[0],
        preferred=towards[1],
        anti=away[0],
        repulsed=away[1],
        ports=ports,
    )


def _terms(affinity: AffinityObject | None, namespace: str) -> tuple[_Terms, _Terms]:
    if affinity is None:
        return ((), ()), ((), ())
    return _of_kind(affinity.pod_affinity, namespace), _of_kind(affinity.pod_anti_affinity, namespace)


def _of_kind(kind: PodAffinityObject | None, namespace: str) -> _Terms:
    if kind is None:
        return (), ()
    required = kind.required_during_scheduling_ignored_during_execution or ()
    preferred = kind.preferred_during_scheduling_ignored_during_execution or ()
    return (
        tuple(_pod_term(term, namespace) for term in required),
        tuple((one.weight, _pod_term(one.pod_affinity_term, namespace)) for one in preferred),
    )


def _pod_term(term: PodTermObject, namespace: str) -> PodTerm:
    namespaces = tuple(sorted(set(term.namespaces or ())))
    if not namespaces and term.namespace_selector is None:
        namespaces = (namespace,)
    return PodTerm(
        key=term.topology_key,
        selector=selector_from(term.label_selector),
        namespaces=namespaces,
        namespace_selector=selector_from(term.namespace_selector),
    )


def _spread(spread: SpreadObject, labels: Mapping[str, str]) -> Spread:
    selector = selector_from(spread.label_selector)
    if selector is not None:
        # API servers before 1.34 leave it to the scheduler to put these into the selector.
        merged = {
            Requirement(key=key, operator="In", values=(labels[key],))
            for key in spread.match_label_keys or ()
            if key in labels
        }
        selector = Selector(requirements=_sorted({*selector.requirements, *merged}))
    return Spread(
        key=spread.topology_key,
        max_skew=spread.max_skew,
        is_hard=spread.when_unsatisfiable == "DoNotSchedule",
        selector=selector,
        min_domains=spread.min_domains or 1,
        honors_affinity=(spread.node_affinity_policy or _HONOR) == _HONOR,
        honors_taints=spread.node_taints_policy == _HONOR,
    )


def selector_from(obj: LabelSelectorObject | None) -> Selector | None:
    """Return the selector; None where none is given, which is not the empty one that selects everything."""
    if obj is None:
        return None
    pairs = [Requirement(key=key, operator="In", values=(value,)) for key, value in (obj.match_labels or {}).items()]
    return Selector(requirements=_sorted([*pairs, *map(_requirement, obj.match_expressions or ())]))


def _sorted(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    return tuple(sorted(requirements, key=lambda r: (r.key, r.operator, r.values)))


def _requirement(obj: RequirementObject) -> Requirement:
    return Requirement(key=obj.key, operator=obj.operator, values=tuple(sorted(obj.values or ())))


def _node_term(term: TermObject) -> NodeTerm:
    return NodeTerm(
        labels=tuple(map(_requirement, term.match_expressions or ())),
        fields=tuple(map(_requirement, term.match_fields or ())),
    )


def _ports(spec: PodSpecObject) -> tuple[HostPort, ...]:
    """Return the host ports of containers and sidecars; other init containers are gone before the pod runs."""
    containers = spec.containers or ()
    found: set[HostPort] = set()
    for container in (*containers, *(c for c in spec.init_containers or () if c.restart_policy == "Always")):
        for port in container.ports or ():
            if port.host_port and port.host_port > 0:
                ip = port.host_ip or ""
                ip = "" if ip in _ALL_ADDRESSES else ip
                found.add(HostPort(port=port.host_port, protocol=port.protocol or "TCP", ip=ip))
    return tuple(sorted(found, key=lambda p: (p.port, p.protocol, p.ip))) if found else ()
