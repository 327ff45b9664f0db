"""What must hold of pools' nodes at every moment, judged from the API's own objects and in the API's own order.

Shares no code with the planner, the pools' controller or their providers. The events of Nodes and Pods come from two
watches; resourceVersions of one API server count the writes of one store, so that sorting by them gives the one order
in which all of it happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from berthmaster.recount import number
from fleet import labels
from tests.support.warm_seen import SeenNode, SeenPod, decoded, is_live, is_puller, notes, pool_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One event; exactly one of node and pod is there. `at_s` is the observer's own clock."""

    version: int
    at_s: float
    node: SeenNode | None = None
    pod: SeenPod | None = None
    is_gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTruth:
    """What a person said of a pool: what a warm node of it must have, and who may be there."""

    name: str
    devices: int
    images: tuple[str, ...]
    namespaces: frozenset[str]
    resource: str = labels.NVIDIA_GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that must never be. `kind` is one of KINDS."""

    kind: str
    node: str
    text: str
    at_s: float

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.kind} at {self.at_s:.1f} s: {self.node}: {self.text}"


DOUBLE_CLAIM = "double claim"
OVER_ALLOCATED = "over-allocated"
STRANGER = "stranger"
UNPROVEN = "warm without proof"
TAINT_STAYS = "taint stays"
UNCLAIMED = "drawn without a claim"
DELETED_IN_USE = "deleted in use"
NO_NODE = "bound to no node"
# A pod may be sent to a node that stands empty and is not open; a pin that was decided then lands within one write.
PIN_S = 8.0
KINDS = (DOUBLE_CLAIM, OVER_ALLOCATED, STRANGER, UNPROVEN, TAINT_STAYS, UNCLAIMED, DELETED_IN_USE, NO_NODE)


def faults_of(events: Iterable[Seen], pools: Iterable[PoolTruth], *, late_s: float) -> tuple[Fault, ...]:
    """Replay what was seen, and return everything that must never be.

    Args:
        events: All that the watches brought, in any order.
        pools: The truth about each pool.
        late_s: How long a mark may be behind what is proven: the longest time without a controller, and a look.
    """
    replay = _Replay(pools={pool.name: pool for pool in pools}, late_s=late_s)
    last_s = 0.0
    for seen in sorted(events, key=lambda one: one.version):
        replay.take(seen)
        last_s = max(last_s, seen.at_s)
    replay.end(last_s)
    return tuple(replay.faults)


def lacks(node: SeenNode, pool: PoolTruth) -> str:
    """Return what keeps the node from being proven warm, "" = nothing."""
    status = node.status
    if not any(one.type == "Ready" and one.status == "True" for one in status.conditions or ()):
        return "not Ready"
    if number((status.allocatable or {}).get(pool.resource, 0)) < pool.devices:
        return f"{(status.allocatable or {}).get(pool.resource, 0)} of {pool.devices} {pool.resource}"
    listed = {name for image in status.images or () for name in image.names or ()}
    missing = [image for image in pool.images if image not in listed]
    return f"not listed: {', '.join(missing)}" if missing else ""


def readiness(node: SeenNode) -> bool:
    return any(taint.key.startswith(labels.READINESS_PREFIX) for taint in node.spec.taints or ())


@dataclass(slots=True)
class _Replay:
    pools: Mapping[str, PoolTruth]
    late_s: float
    faults: list[Fault] = field(default_factory=list)
    _nodes: dict[str, SeenNode] = field(default_factory=dict)
    _pods: dict[str, SeenPod] = field(default_factory=dict)
    _on: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    # By uid of the node: whom its claims ever named, and which sets these were of.
    _named: defaultdict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    _open_since_s: dict[str, float] = field(default_factory=dict)
    _since: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def take(self, seen: Seen) -> None:
        if seen.node is not None:
            self._node(seen.node, seen)
        elif seen.pod is not None:
            self._pod(seen.pod, seen)

    def end(self, at_s: float) -> None:
        for name, node in self._nodes.items():
            self._marks(name, node, at_s)

    def _say(self, kind: str, node: str, text: str, at_s: float) -> None:
        self.faults.append(Fault(kind=kind, node=node, text=text, at_s=at_s))

    def _node(self, node: SeenNode, seen: Seen) -> None:
        name = node.metadata.name
        before = self._nodes.get(name)
        if seen.is_gone:
            self._deleted(name, seen.at_s)
            return
        self._nodes[name] = node
        if pool_of(node) in self.pools:
            is_same = before is not None and before.metadata.uid == node.metadata.uid
            self._claim(node, notes(before).get(labels.CLAIM, "") if before is not None and is_same else "", seen.at_s)
            if not notes(node).get(labels.WARM):
                self._open_since_s.pop(node.metadata.uid, None)
            elif node.metadata.uid not in self._open_since_s:
                self._open_since_s[node.metadata.uid] = seen.at_s
                self._opened(node, seen.at_s)
            self._marks(name, node, seen.at_s)
        self._room(name, seen.at_s)

    def _claim(self, node: SeenNode, before: str, at_s: float) -> None:
        text, name, uid = notes(node).get(labels.CLAIM, ""), node.metadata.name, node.metadata.uid
        if not text or text == before:
            return
        claim, old = decoded(text), decoded(before)
        if before and claim.get("set") != old.get("set"):
            self._say(DOUBLE_CLAIM, name, f"claimed by {claim.get('set')} over the claim of {old.get('set')}", at_s)
        named = self._named[uid]
        new = [pod for pod in claim.get("pods", ()) if pod not in named]
        if not before:
            held = [one for one in self._on[name] if one in named and one not in claim.get("pods", ())]
            live = [one for one in held if self._pods[one].metadata.deletion_timestamp is None]
            if live:
                self._say(DOUBLE_CLAIM, name, f"drawn for {new} while {live} of an earlier claim are there", at_s)
        named.update(dict.fromkeys(claim.get("pods", ()), str(claim.get("set", ""))))

    def _opened(self, node: SeenNode, at_s: float) -> None:
        missing = lacks(node, self.pools[pool_of(node)])
        if readiness(node):
            missing = missing or "it carries its readiness taint"
        if missing:
            self._say(UNPROVEN, node.metadata.name, f"opened to claims: {missing}", at_s)

    def _marks(self, name: str, node: SeenNode, at_s: float) -> None:
        pool = self.pools.get(pool_of(node))
        if pool is None:
            return
        is_proven = not lacks(node, pool)
        is_leaving = bool(notes(node).get(labels.CLOSING)) or node.metadata.deletion_timestamp is not None
        is_shut = bool(node.spec.unschedulable) or is_leaving
        uid = node.metadata.uid
        self._lasting((TAINT_STAYS, uid, name), is_proven and readiness(node) and not is_shut, at_s, "proven warm")
        is_open = bool(notes(node).get(labels.WARM))
        self._lasting((UNPROVEN, uid, name), is_open and not is_proven, at_s, lacks(node, pool))

    def _lasting(self, key: tuple[str, str, str], holds: bool, at_s: float, text: str) -> None:
        since_s = self._since.get(key)
        if since_s is not None and at_s - since_s > self.late_s:
            self._say(key[0], key[2], f"for {at_s - since_s:.1f} s: {text}", at_s)
            self._since.pop(key)
        elif since_s is None and holds:
            self._since[key] = at_s
        if not holds:
            self._since.pop(key, None)

    def _deleted(self, name: str, at_s: float) -> None:
        self._nodes.pop(name, None)
        self._since = {key: since_s for key, since_s in self._since.items() if key[2] != name}
        staying = [
            f"{pod.metadata.namespace}/{pod.metadata.name}"
            for pod in map(self._pods.__getitem__, self._on[name])
            if pod.spec.node_name and pod.metadata.deletion_timestamp is None and is_live(pod) and not is_puller(pod)
        ]
        if staying:
            self._say(DELETED_IN_USE, name, f"with {staying} on it", at_s)

    def _pod(self, pod: SeenPod, seen: Seen) -> None:
        uid = pod.metadata.uid
        before = self._pods.pop(uid, None)
        if before is not None:
            self._on[_place(before)].discard(uid)
        if seen.is_gone:
            return
        self._pods[uid] = pod
        place = _place(pod)
        self._on[place].add(uid)
        if place and (before is None or _place(before) != place):
            self._claimed(pod, place, seen.at_s)
        if pod.spec.node_name and (before is None or not before.spec.node_name):
            self._bound(pod, pod.spec.node_name, seen.at_s)

    def _bound(self, pod: SeenPod, name: str, at_s: float) -> None:
        title = f"{pod.metadata.namespace}/{pod.metadata.name}"
        node = self._nodes.get(name)
        if node is None:
            if not is_puller(pod):
                self._say(NO_NODE, name, f"{title} was bound to it, and it is not there", at_s)
            return
        self._room(name, at_s)
        pool = self.pools.get(pool_of(node))
        if pool is None:
            return
        draw = decoded(notes(pod).get(labels.DRAW, ""))
        of = draw.get("pool") or pool_of(pod) or pool.name
        if of != pool.name or not (is_puller(pod) or pod.metadata.namespace in pool.namespaces):
            self._say(STRANGER, name, f"{title} of pool {of} came to a node of pool {pool.name}", at_s)
        if readiness(node) and not is_puller(pod):
            self._say(STRANGER, name, f"{title} came while the node was not ready yet", at_s)

    def _claimed(self, pod: SeenPod, name: str, at_s: float) -> None:
        """See to it that whoever is sent to an open node was named by a claim on it."""
        node = self._nodes.get(name)
        if node is None or is_puller(pod):
            return
        since_s = self._open_since_s.get(node.metadata.uid)
        is_open = since_s is not None and at_s - since_s > PIN_S
        if is_open and pod.metadata.uid not in self._named[node.metadata.uid]:
            title = f"{pod.metadata.namespace}/{pod.metadata.name}"
            self._say(UNCLAIMED, name, f"{title} was sent there, and no claim ever named it", at_s)

    def _room(self, name: str, at_s: float) -> None:
        """Compare what the bound pods ask for with what there is; pods that leave still count."""
        node = self._nodes[name]
        asked: defaultdict[str, Decimal] = defaultdict(Decimal)
        for pod in map(self._pods.__getitem__, self._on[name]):
            if not pod.spec.node_name or not is_live(pod):
                continue
            asked["pods"] += 1
            for container in pod.spec.containers:
                for resource, amount in (container.resources.requests or {}).items():
                    asked[resource] += number(amount)
        there = node.status.allocatable or {}
        for resource, amount in asked.items():
            if amount > number(there.get(resource, 0)):
                self._say(OVER_ALLOCATED, name, f"{amount} of {there.get(resource, 0)} {resource} are given", at_s)


def _place(pod: SeenPod) -> str:
    """Return the node that the pod is bound to, or that it is pinned to; "" = neither."""
    return pod.spec.node_name or notes(pod).get(labels.PINNED, "")
