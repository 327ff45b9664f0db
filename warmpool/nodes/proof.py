"""What a node still lacks before it is warm: a fact read from the node every time, never a job that once succeeded."""

from __future__ import annotations

from fleet.constraints import Taint
from warmpool.nodes.limits import Limits
from warmpool.nodes.seen import NodeFacts, NodeSeen, Puller
from warmpool.providers.provider import MachinePhase
from warmpool.values import NodeState, PoolNode, PoolSpec, Why

# Taints of the cluster itself that keep every pod off: they may come before and go after the Ready condition.
_BARS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/")
_CORDON = "node.kubernetes.io/unschedulable"  # follows spec.unschedulable, which is looked at by itself

Proof = tuple[NodeState, Why, str]


def proof(seen: NodeSeen, node: PoolNode, pool: PoolSpec, now_s: float, limits: Limits) -> Proof:
    """Return the last step that is proven, the first thing that is missing, and its numbers.

    Args:
        seen: The node now.
        node: With this tick's heartbeat already noted.
        pool: What is wanted of it.
        now_s: Own clock.
        limits: For the silence that counts as death.
    """
    facts = seen.facts
    if facts is None:
        if seen.machine is not None and seen.machine.phase is not MachinePhase.ORDERED:
            return NodeState.LAUNCHED, Why.NOT_REGISTERED, "launched, and no Node of it yet"
        return NodeState.ORDERED, Why.NOT_LAUNCHED, f"ordered as {node.offer}"
    silent_s = now_s - node.heartbeat_seen_s
    if facts.heartbeat and silent_s > limits.silence_s:
        return NodeState.REGISTERED, Why.SILENT, f"no sign of life for {silent_s:.0f} s"
    if not facts.is_ready:
        return NodeState.REGISTERED, Why.NOT_READY, "the Node is not Ready"
    barred = [taint.key for taint in facts.taints if _is_bar(taint)]
    if barred:
        return NodeState.REGISTERED, Why.NOT_READY, f"it carries the taint {', '.join(barred)}"
    if pool.shape.devices and (facts.devices or 0) < pool.shape.devices:
        announced = "none announced" if facts.devices is None else f"{facts.devices} allocatable"
        wanted = f"{pool.shape.devices} {pool.shape.device_resource}"
        return NodeState.REGISTERED, Why.DEVICES_MISSING, f"{announced}, {wanted} wanted"
    missing = unproven_images(seen, pool)
    if missing:
        return NodeState.DEVICES, Why.IMAGES_MISSING, f"{len(missing)} of {len(pool.images)}: {', '.join(missing)}"
    if pool.models and seen.puller is not Puller.HOLDING:
        return NodeState.IMAGES, Why.MODELS_MISSING, f"{len(pool.models)} to fetch; the pulling pod is {seen.puller}"
    return NodeState.WARM, Why.PROVEN, f"{len(pool.images)} images, {facts.devices or 0} devices"


def _is_bar(taint: Taint) -> bool:
    return taint.key.startswith(_BARS) and taint.key != _CORDON and taint.effect != "PreferNoSchedule"


def unproven_images(seen: NodeSeen, pool: PoolSpec) -> tuple[str, ...]:
    """Return the images that nothing proves to be there: neither listed nor, where the list is cut off, mounted."""
    facts = seen.facts
    if facts is None or (seen.puller is Puller.HOLDING and not facts.lists_all_images):
        return ()
    return missing_images(facts, pool)


def missing_images(facts: NodeFacts, pool: PoolSpec) -> tuple[str, ...]:
    """Return the images that the node does not list, by digest where the pool names one: a moved tag is missing."""
    return tuple(image.pinned for image in pool.images if not (_names(image.pinned) & facts.images))


def _names(pinned: str) -> frozenset[str]:
    """Return the texts a kubelet may list an image under: short Docker names are spelled out, a bare name is latest."""
    head, slash, _ = pinned.partition("/")
    is_full = bool(slash) and ("." in head or ":" in head or head == "localhost")
    names = {pinned if is_full else f"docker.io/{pinned if slash else f'library/{pinned}'}", pinned}
    if "@" not in pinned and ":" not in pinned.rpartition("/")[2]:
        names |= {f"{name}:latest" for name in names}
    return frozenset(names)
