"""A `Guest` as the fields of a v1 Pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleet.company import Guest, PodTerm, Selector, Spread

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Namer = Callable[[str], str]


def selector_json(selector: Selector | None) -> dict[str, Any] | None:
    """Return a metav1 label selector."""
    if selector is None:
        return None
    expressions = [
        {"key": r.key, "operator": r.operator, **({"values": list(r.values)} if r.values else {})}
        for r in selector.requirements
    ]
    return {"matchExpressions": expressions} if expressions else {}


def term_json(term: PodTerm, namer: Namer) -> dict[str, Any]:
    """Return a PodAffinityTerm; `namer` turns the names of namespaces into real ones."""
    found: dict[str, Any] = {"topologyKey": term.key, "namespaces": [namer(name) for name in term.namespaces]}
    if term.selector is not None:
        found["labelSelector"] = selector_json(term.selector)
    if term.namespace_selector is not None:
        found["namespaceSelector"] = selector_json(term.namespace_selector)
    return found


def spread_json(spread: Spread) -> dict[str, Any]:
    """Return a TopologySpreadConstraint."""
    found: dict[str, Any] = {
        "topologyKey": spread.key,
        "maxSkew": spread.max_skew,
        "whenUnsatisfiable": "DoNotSchedule" if spread.is_hard else "ScheduleAnyway",
        "nodeAffinityPolicy": "Honor" if spread.honors_affinity else "Ignore",
        "nodeTaintsPolicy": "Honor" if spread.honors_taints else "Ignore",
    }
    if spread.selector is not None:
        found["labelSelector"] = selector_json(spread.selector)
    if spread.is_hard and spread.min_domains > 1:
        found["minDomains"] = spread.min_domains
    return found


def guest_json(guest: Guest, namer: Namer = str) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """Return labels, fields of the spec, and fields of the container."""
    affinity: dict[str, Any] = {}
    for kind, required, preferred in (
        ("podAffinity", guest.affinity, guest.preferred),
        ("podAntiAffinity", guest.anti, guest.repulsed),
    ):
        if required or preferred:
            affinity[kind] = {
                REQUIRED: [term_json(term, namer) for term in required],
                PREFERRED: [{"weight": w, "podAffinityTerm": term_json(term, namer)} for w, term in preferred],
            }
    spec: dict[str, Any] = {}
    if affinity:
        spec["affinity"] = affinity
    if guest.spreads:
        spec["topologySpreadConstraints"] = [spread_json(spread) for spread in guest.spreads]
    ports = [
        {
            "name": f"p{number}",
            "containerPort": 1000 + number,
            "hostPort": port.port,
            "protocol": port.protocol,
            **({"hostIP": port.ip} if port.ip else {}),
        }
        for number, port in enumerate(guest.ports)
    ]
    return dict(guest.labels), spec, {"ports": ports} if ports else {}
