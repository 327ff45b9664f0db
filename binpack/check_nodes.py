"""The verifier's own judgement of which nodes a pod may run on: selector, required affinity, volumes, taints.

It shares no line with `fit` or the index.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from fleet.constraints import NodeConstraints, NodeTerm, Requirement, Taint, Toleration
from fleet.node import Node

_NEVER_EXCLUDES = "PreferNoSchedule"
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeRule(StrEnum):
    """The rules of which one may exclude a node."""

    SELECTOR = "node selector"
    AFFINITY = "node affinity"
    VOLUME = "volume"
    TAINT = "taint"


def excluded(wish: NodeConstraints, node: Node) -> NodeRule | None:
    """Judge selector, required node affinity and taints as kube-scheduler's filters do."""
    unlikeness = unlike(wish, node)
    if unlikeness is not None:
        return unlikeness
    taints = [*node.taints, _CORDON] if node.is_cordoned else list(node.taints)
    for taint in taints:
        if taint.effect != _NEVER_EXCLUDES and not any(_covers(wished, taint) for wished in wish.tolerations):
            return NodeRule.TAINT
    return None


def unlike(wish: NodeConstraints, node: Node) -> NodeRule | None:
    """Judge selector, required node affinity and what volumes ask."""
    for key, value in wish.node_selector:
        if node.labels.get(key) != value:
            return NodeRule.SELECTOR
    if wish.terms is not None and not _any_holds(wish.terms, node):
        return NodeRule.AFFINITY
    if not all(_any_holds(terms, node) for terms in wish.volumes):
        return NodeRule.VOLUME
    return None


def _any_holds(terms: Iterable[NodeTerm], node: Node) -> bool:
    fields = {"metadata.name": node.name}
    for term in terms:
        rows = [(r, node.labels) for r in term.labels] + [(r, fields) for r in term.fields]
        is_readable = bool(rows) and all(r.key in fields for r in term.fields)
        if is_readable and all(_holds(requirement, values) for requirement, values in rows):
            return True
    return False


def _holds(requirement: Requirement, values: Mapping[str, str]) -> bool:
    has = requirement.key in values
    value = values.get(requirement.key, "")
    if requirement.operator in ("Gt", "Lt"):
        return has and len(requirement.values) == 1 and _ordered(requirement.operator, value, requirement.values[0])
    verdicts = {
        "In": has and value in requirement.values,
        "NotIn": not has or value not in requirement.values,
        "Exists": has,
        "DoesNotExist": not has,
    }
    return verdicts.get(requirement.operator, False)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("Gt", "Lt"):
        return _ordered(toleration.operator, taint.value, toleration.value)
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("Equal", "") and toleration.key != "" and toleration.value == taint.value


def _ordered(operator: str, value: str, bound: str) -> bool:
    if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(bound)):
        return False
    return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)
