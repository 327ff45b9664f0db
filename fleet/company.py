"""What a pod asks of other pods, and what it is to them: spread, (anti-)affinity, host ports, replicas of one owner.

The words and their meaning are core/v1's (TopologySpreadConstraint, PodAffinityTerm, ContainerPort), read as
kube-scheduler 1.37 reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.constraints import Requirement


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A label selector: all requirements must hold; none = every pod. Where no selector is given, no pod is meant."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def is_everything(self) -> bool:
        """Return True if it selects every pod."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if these labels satisfy every requirement."""
        return all(requirement.accepts(labels.get(requirement.key)) for requirement in self.requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One topology spread constraint.

    Attributes:
        key: Node label whose values are the domains.
        max_skew: By how many matching pods a domain may exceed the least one, this pod included; at least 1.
        is_hard: DoNotSchedule, not ScheduleAnyway.
        selector: Which pods of the same namespace count; None = none.
        min_domains: With fewer domains than this the least one counts as empty.
        honors_affinity: Only nodes that the pod's selector and required node affinity allow count.
        honors_taints: Only nodes whose taints the pod tolerates count.
    """

    key: str
    max_skew: int = 1
    is_hard: bool = True
    selector: Selector | None = None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTerm:
    """One (anti-)affinity term: pods of some namespaces that a selector names, within one value of a node label.

    Attributes:
        key: Node label whose values are the domains.
        selector: Which pods; None = none.
        namespaces: Whose pods, by name.
        namespace_selector: Whose pods as well, by the labels of the namespace; None = nobody's.
    """

    key: str
    selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Return True if the term names such a pod.

        Args:
            namespace: Of the pod.
            labels: Of the pod.
            namespace_labels: Of its namespace; none where it is not known.
        """
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """A port of the node that the pod takes; ip "" = on all its addresses."""

    port: int
    protocol: str = "TCP"
    ip: str = ""

    def clashes(self, other: HostPort) -> bool:
        """Return True if both cannot be taken on one node."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return self.ip == other.ip or not (self.ip and other.ip)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """A pod as the rules between pods see it. Pods of one template are equal guests; hashed once.

    Attributes:
        labels: Of the pod, sorted by key.
        owner: UID of the ReplicaSet or StatefulSet whose replica it is; "" = no replica.
        is_leaving: Terminating: topology spread counts it no more, everything else does.
        spreads: Its topology spread constraints.
        affinity: Required pod affinity; all terms must hold.
        anti: Required pod anti-affinity; none of the terms may.
        preferred: (weight 1..100, term) that attract it.
        repulsed: (weight 1..100, term) that it would rather avoid.
        ports: Host ports it takes, each once.
    """

    namespace: str = "default"
    labels: tuple[tuple[str, str], ...] = ()
    owner: str = ""
    is_leaving: bool = False
    spreads: tuple[Spread, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti: tuple[PodTerm, ...] = ()
    preferred: tuple[tuple[int, PodTerm], ...] = ()
    repulsed: tuple[tuple[int, PodTerm], ...] = ()
    ports: tuple[HostPort, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "_hash",
            hash((
                self.namespace, self.labels, self.owner, self.is_leaving, self.spreads, self.affinity, self.anti,
                self.preferred, self.repulsed, self.ports,
            )),
        )  # fmt: skip

    def __hash__(self) -> int:
        return self._hash

    @property
    def has_rules(self) -> bool:
        """Return True if it has a hard rule of its own about other pods."""
        return bool(self.affinity or self.anti or self.ports) or any(spread.is_hard for spread in self.spreads)

    @property
    def has_wishes(self) -> bool:
        """Return True if it has a rule about other pods, hard or soft."""
        return bool(self.affinity or self.anti or self.ports or self.spreads or self.preferred or self.repulsed)


NOBODY = Guest()
