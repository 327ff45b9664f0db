"""What the watches say, joined: pools, their nodes, pods, agents, and what autoscalers will need. No method waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from fleet import labels
from fleet.draw import read_draw
from fleet.errors import ConfigError
from fleet.kube.objects import ResourceSliceObject
from warmpool.controller.agents import Agent, agent_of, strangers
from warmpool.controller.needs import Needs, needs_of, nodes_for, share_of
from warmpool.controller.objects import AgentObject, PoolObject, ScalerObject, ToldPoolObject
from warmpool.controller.pods import PodBook, PodView
from warmpool.controller.slices import SliceBook
from warmpool.nodes.reading import WarmNode, WarmPod
from warmpool.resource import Spec, spec_of
from warmpool.starts.book import StartBook
from warmpool.starts.reading import moments_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A WarmPool as read.

    Attributes:
        spec: The last valid one; None = there never was one.
        generation: Of the spec that was read last, valid or not.
        problems: What is wrong with that one; empty = it is valid.
        is_deleting: Somebody deleted it; it stays until its nodes are given back.
        is_kept: It carries our finalizer.
        told: What its status says that is needed again.
    """

    name: str
    uid: str
    spec: Spec | None
    generation: int
    problems: tuple[str, ...]
    is_deleting: bool
    is_kept: bool
    told: ToldPoolObject


@dataclass(slots=True)
class World:
    """All of it. Watches write, rounds read.

    Attributes:
        starts: How long replicas took to be Ready, and on what.
        dirty: Names of pools of which something has changed since they were looked at.
        agents_version: Changes whenever an agent does.
    """

    pools: dict[str, Pool] = field(default_factory=dict)
    nodes: dict[str, WarmNode] = field(default_factory=dict)
    node_seen_s: dict[str, float] = field(default_factory=dict)
    heartbeats: dict[str, str] = field(default_factory=dict)
    slices: SliceBook = field(default_factory=SliceBook)
    pods: PodBook = field(default_factory=PodBook)
    starts: StartBook = field(default_factory=StartBook)
    agents: dict[tuple[str, str], Agent] = field(default_factory=dict)
    needs: dict[tuple[str, str], Needs] = field(default_factory=dict)
    dirty: set[str] = field(default_factory=set)
    agents_version: int = 0
    _of_pool: dict[str, set[str]] = field(default_factory=dict)

    def set_pool(self, obj: PoolObject) -> Pool:
        """Take a pool; an invalid spec leaves the last valid one in force."""
        meta = obj.metadata
        before = self.pools.get(meta.name)
        if before is not None and before.uid != meta.uid:
            before = None
        spec, problems = (before.spec, before.problems) if before else (None, ())
        if before is None or before.generation != meta.generation or not meta.generation:
            try:
                spec, problems = spec_of(meta.name, obj.spec or {}), ()
            except ConfigError as error:
                problems = error.problems
        pool = Pool(
            name=meta.name,
            uid=meta.uid,
            spec=spec,
            generation=meta.generation,
            problems=problems,
            is_deleting=meta.deletion_timestamp is not None,
            is_kept=labels.POOL_FINALIZER in (meta.finalizers or ()),
            told=obj.status or ToldPoolObject(),
        )
        self.pools[meta.name] = pool
        is_new = before is None or (before.generation, before.is_deleting) != (pool.generation, pool.is_deleting)
        if is_new or before is None or before.is_kept != pool.is_kept:
            self.dirty.add(meta.name)
        return pool

    def remove_pool(self, name: str) -> None:
        """Take note that a pool is gone."""
        self.pools.pop(name, None)
        self.starts.forget_pool(name)
        self.dirty.discard(name)

    def set_node(self, node: WarmNode, now_s: float) -> None:
        """Take a node that says it is a pool's."""
        name = node.metadata.name
        before = self.nodes.get(name)
        if before is None or before.metadata.uid != node.metadata.uid:
            self.node_seen_s[name] = now_s
        if before is not None and before.pool != node.pool:
            self._of_pool.get(before.pool, set()).discard(name)
            self.dirty.add(before.pool)
        self.nodes[name] = node
        self._of_pool.setdefault(node.pool, set()).add(name)
        self.dirty.add(node.pool)

    def remove_node(self, name: str) -> None:
        """Take note that a node is gone, or no pool's any more."""
        gone = self.nodes.pop(name, None)
        self.node_seen_s.pop(name, None)
        self.heartbeats.pop(name, None)
        if gone is not None:
            self._of_pool.get(gone.pool, set()).discard(name)
            self.dirty.add(gone.pool)

    def set_slice(self, obj: ResourceSliceObject) -> None:
        """Take a resource slice: its node may be proven by it."""
        self._note_slice(self.slices.set(obj))

    def remove_slice(self, obj: ResourceSliceObject) -> None:
        """Take note that a resource slice is gone."""
        self._note_slice(self.slices.remove(obj))

    def _note_slice(self, name: str) -> None:
        node = self.nodes.get(name)
        if node is not None:
            self.dirty.add(node.pool)

    def set_pod(self, pod: WarmPod) -> None:
        """Take a pod."""
        puller_before = self.pods.pullers.get(pod.metadata.uid)
        before, after = self.pods.set(pod)
        self._note_start(pod)
        puller = self.pods.pullers.get(pod.metadata.uid)
        for one in (puller_before, puller):
            if one is not None:
                self.dirty.add(one.pool)
        for view in (before, after):
            if view is not None:
                self._touch(view)

    def remove_pod(self, uid: str) -> None:
        """Take note that a pod is gone."""
        puller = self.pods.pullers.get(uid)
        if puller is not None:
            self.dirty.add(puller.pool)
        view = self.pods.remove(uid)
        self.starts.forget(uid)
        if view is not None:
            self._touch(view)

    def set_agent(self, obj: AgentObject) -> None:
        """Take a DaemonSet."""
        agent = agent_of(obj)
        key = (agent.namespace, agent.name)
        if self.agents.get(key) != agent:
            self.agents[key] = agent
            self.agents_version += 1

    def remove_agent(self, namespace: str, name: str) -> None:
        """Take note that a DaemonSet is gone."""
        if self.agents.pop((namespace, name), None) is not None:
            self.agents_version += 1

    def set_needs(self, obj: ScalerObject) -> None:
        """Take what an autoscaler says will be needed."""
        needs = needs_of(obj)
        key = (obj.metadata.namespace, obj.metadata.name)
        if needs is None:
            self.needs.pop(key, None)
        else:
            self.needs[key] = needs

    def remove_needs(self, namespace: str, name: str) -> None:
        """Take note that an autoscaler is gone."""
        self.needs.pop((namespace, name), None)

    def nodes_of(self, pool: str) -> Iterable[WarmNode]:
        """Return the nodes that say they are this pool's."""
        return [self.nodes[name] for name in sorted(self._of_pool.get(pool, ()))]

    def orphans(self) -> tuple[str, ...]:
        """Return the nodes of pools that are not there."""
        return tuple(sorted(name for name, node in self.nodes.items() if node.pool not in self.pools))

    def serves(self, pool: Pool, pod: PodView) -> bool:
        """Return True if the pod's draws are this pool's."""
        if pod.pool:
            return pod.pool == pool.name
        return pool.spec is not None and pool.spec.serves.names(pod.namespace, pod.labels)

    def needs_of(self, pool: Pool) -> list[tuple[Needs, float]]:
        """Return what autoscalers need of a pool, each with the part of a node that one of its replicas takes.

        Which pool a workload draws from is told by a replica that is there.
        """
        if pool.spec is None or not self.needs:
            return []
        shape = pool.spec.pool.shape
        served = [(owner, pod) for owner, pod in self.pods.owners() if self.serves(pool, pod)]
        return [
            (needs, share_of(pod.requests, shape))
            for needs in self.needs.values()
            for (namespace, *owner), pod in served
            if needs.owns(namespace, (owner[0], owner[1]))
        ]

    def backlog(self, pool: Pool) -> int:
        """Return the nodes that pods wait for which drew from the pool and missed."""
        if pool.spec is None:
            return 0
        shape = pool.spec.pool.shape
        return nodes_for(share_of(pod.requests, shape) for pod in self.pods.missing(pool.name))

    def strangers_of(self, pool: Pool) -> tuple[Agent, ...]:
        """Return the DaemonSets that should run on the pool's nodes and do not tolerate its taints."""
        if pool.spec is None:
            return ()
        marks = [node.metadata.labels or {} for node in self.nodes_of(pool.name)]
        return strangers(pool.spec.pool, self.agents.values(), marks)

    def age_s(self, created: str | None, wall_s: float) -> float | None:
        """Return how old an object is; None = its creation stamp cannot be read."""
        try:
            born = datetime.fromisoformat((created or "").replace("Z", "+00:00"))
        except ValueError:
            return None
        return max(0.0, wall_s - born.timestamp())

    def _note_start(self, pod: WarmPod) -> None:
        meta, spec = pod.metadata, pod.spec
        notes = meta.annotations or {}
        draw = read_draw(notes.get(labels.DRAW, ""))
        self.starts.see(
            meta.uid,
            f"{meta.namespace}/{meta.name}",
            spec.scheduler_name or "",
            # Anybody may write anything on a pod: what is counted is of pools that are there.
            draw if draw is not None and draw.pool in self.pools else None,
            moments_of(meta.creation_timestamp, spec, pod.status, notes),
        )

    def _touch(self, view: PodView) -> None:
        node = self.nodes.get(view.node)
        if node is not None:
            self.dirty.add(node.pool)
        if view.draw is not None:
            self.dirty.add(view.draw.pool)
