"""Agents of every node (device plugins, log shippers, …) must tolerate a pool's taints, or its nodes lack them.

A device plugin that stays away leaves the node without devices: it would never become warm. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.constraints import Requirement, Taint, Toleration
from fleet.kube.objects import NodeAffinityObject
from warmpool.controller.objects import AgentObject
from warmpool.values import PoolSpec

_DEVICE_WORDS = ("device-plugin", "gpu", "nvidia", "dra-driver", "amd", "gaudi", "tpu", "neuron")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A DaemonSet.

    Attributes:
        selector: Node labels that it asks for, sorted by name.
        terms: Its required node affinity: any one of these, each a conjunction; None = none is required.
    """

    namespace: str
    name: str
    tolerations: tuple[Toleration, ...]
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[tuple[Requirement, ...], ...] | None = None

    def __str__(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    def wants(self, node_labels: Mapping[str, str]) -> bool:
        """Return True if a node with these labels is one that it should run on."""
        if any(node_labels.get(name) != text for name, text in self.selector):
            return False
        if self.terms is None:
            return True
        return any(all(one.accepts(node_labels.get(one.key)) for one in term) for term in self.terms if term)


def agent_of(obj: AgentObject) -> Agent:
    """Return what matters of a DaemonSet."""
    spec = obj.spec.template.spec
    return Agent(
        namespace=obj.metadata.namespace,
        name=obj.metadata.name,
        tolerations=tuple(
            Toleration(key=t.key or "", operator=t.operator or "Equal", value=t.value or "", effect=t.effect or "")
            for t in spec.tolerations or ()
        ),
        selector=tuple(sorted((spec.node_selector or {}).items())),
        terms=_terms(spec.affinity.node_affinity if spec.affinity else None),
    )


def strangers(pool: PoolSpec, agents: Iterable[Agent], nodes: Iterable[Mapping[str, str]]) -> tuple[Agent, ...]:
    """Return the agents that should run on the pool's nodes and tolerate its taints not, device plugins first.

    Args:
        pool: For its taints and the labels that it gives its nodes.
        agents: All DaemonSets.
        nodes: Labels of the nodes that there are; without any, the pool's own labels tell which agents want them.
    """
    taints = (pool.readiness_taint, pool.pool_taint)
    known = list(nodes)
    found = [
        agent
        for agent in agents
        if not all(_tolerates(agent, taint) for taint in taints) and _is_wanted(agent, pool, known)
    ]
    return tuple(sorted(found, key=lambda agent: (not _is_of_devices(agent), agent.namespace, agent.name)))


def _is_wanted(agent: Agent, pool: PoolSpec, nodes: list[Mapping[str, str]]) -> bool:
    if nodes:
        return any(agent.wants(node_labels) for node_labels in nodes)
    # Nobody knows yet what labels a node will have: one that asks for none will want it, and so will one that asks
    # for what the pool gives. Others are judged when there is a node.
    return agent.terms is None and set(agent.selector) <= {*pool.shape.labels, ("kubernetes.io/os", "linux")}


def _tolerates(agent: Agent, taint: Taint) -> bool:
    return any(toleration.tolerates(taint) for toleration in agent.tolerations)


def _is_of_devices(agent: Agent) -> bool:
    return any(word in agent.name for word in _DEVICE_WORDS)


def _terms(affinity: NodeAffinityObject | None) -> tuple[tuple[Requirement, ...], ...] | None:
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return None
    return tuple(
        tuple(
            Requirement(key=one.key, operator=one.operator, values=one.values or ())
            for one in term.match_expressions or ()
        )
        for term in required.node_selector_terms or ()
    )
