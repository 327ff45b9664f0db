"""Which nodes a pod may run on, judged by names, labels and taints alone (no amounts)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

# What Go's strconv.ParseInt takes: Python's int would also read "1_000", which is a legal label value.
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A node's taint. Effect PreferNoSchedule never excludes."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """A pod's toleration; an empty key with operator Exists tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return True if this toleration covers the taint (core/v1 ToleratesTaint)."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "Exists":
                return True
            case "Equal" | "":
                return bool(self.key) and self.value == taint.value
            case "Lt" | "Gt":
                return _compares(self.operator, taint.value, self.value)
            case _:
                return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One node-selector requirement; operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def accepts(self, value: str | None) -> bool:
        """Return True if a label (or field) with this value, None = absent, satisfies the requirement."""
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt" if len(self.values) == 1 and value is not None:
                return _compares(self.operator, value, self.values[0])
            case _:
                return False


def _compares(operator: str, value: str, bound: str) -> bool:
    if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(bound)):
        return False
    return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTerm:
    """Requirements that must all hold; a term with none matches no node (core/v1)."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return True if the node with this name and these labels satisfies every requirement."""
        if not self.labels and not self.fields:
            return False
        return all(r.accepts(labels.get(r.key)) for r in self.labels) and all(
            r.key == "metadata.name" and r.accepts(name) for r in self.fields
        )


class Mismatch(Enum):
    """Why a node may not take a pod whatever is free on it."""

    SELECTOR = "node selector"
    AFFINITY = "node affinity"
    TAINT = "taint"
    CORDONED = "cordoned"
    VOLUME = "volume"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstraints:
    """A pod's hard wishes about nodes. Hashable: equal constraints are judged once per node.

    Attributes:
        node_selector: Label pairs that must all be present.
        terms: Required node affinity, any one of which suffices; None = no such affinity.
        tolerations: What the pod tolerates.
        volumes: What the volumes that it mounts ask of the node, each an any-of that must hold. A pod as read has none;
            they are looked up (binpack/volumes.py).
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[tuple[NodeTerm, ...], ...] = ()

    def mismatch(
        self, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...], is_cordoned: bool
    ) -> Mismatch | None:
        """Return why the node is excluded, or None if names, labels and taints allow it."""
        if any(labels.get(key) != value for key, value in self.node_selector):
            return Mismatch.SELECTOR
        if self.terms is not None and not any(term.matches(name, labels) for term in self.terms):
            return Mismatch.AFFINITY
        if any(not any(term.matches(name, labels) for term in terms) for terms in self.volumes):
            return Mismatch.VOLUME
        if is_cordoned and not any(t.tolerates(CORDON) for t in self.tolerations):
            return Mismatch.CORDONED
        for taint in taints:
            if taint.effect != "PreferNoSchedule" and not any(t.tolerates(taint) for t in self.tolerations):
                return Mismatch.TAINT
        return None


CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
