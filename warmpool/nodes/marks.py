"""The marks a node should carry in its state, and the patches that give it those it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fleet import labels
from fleet.constraints import Taint
from warmpool.nodes.action import Action, Mark, Tell
from warmpool.nodes.seen import NodeFacts
from warmpool.values import COMING, NodeState, PoolNode, PoolSpec, Why

_USED = frozenset({NodeState.CLAIMED, NodeState.SERVING})


def marks(facts: NodeFacts, node: PoolNode, pool: PoolSpec) -> tuple[Action, ...]:
    """Return the writes that bring the Node's taints, cordon, annotations and condition to what its state wants."""
    added, removed = _taints(facts, node, pool)
    cordon = _cordon(facts, node)
    mark = Mark(
        node=facts.name,
        uid=facts.uid,
        why=node.why,
        added=added,
        removed=removed,
        has_taints=bool(facts.taints),
        unschedulable=cordon if cordon != facts.is_unschedulable else None,
        annotations=_annotations(facts, node, pool),
        claim_read=facts.claim,
        has_annotations=facts.has_annotations,
    )
    actions: tuple[Action, ...] = () if mark.is_empty else (mark,)
    is_warm = node.state in _USED or node.is_claimable
    message = "" if node.state in _USED else node.detail  # the seconds that a claim has left would be a write per tick
    if facts.condition != ("True" if is_warm else "False", node.why.value, message):
        actions += (Tell(node=facts.name, uid=facts.uid, is_warm=is_warm, why=node.why, message=message),)
    return actions


def mark_patch(mark: Mark) -> bytes:
    """Return the JSON patch for a Mark: nothing of it happens unless uid, claim and taints are as they were read."""
    operations = [_test("/metadata/uid", mark.uid)]
    if mark.has_annotations:
        operations.append(_test(f"/metadata/annotations/{_escaped(labels.CLAIM)}", mark.claim_read or None))
    elif mark.annotations:
        operations += [_test("/metadata/annotations", None), _add("/metadata/annotations", {})]
    for position, key in sorted(mark.removed, reverse=True):
        path = f"/spec/taints/{position}"
        operations += [_test(f"{path}/key", key), {"op": "remove", "path": path}]
    if mark.added and not mark.has_taints:
        operations += [_test("/spec/taints", None), _add("/spec/taints", [])]
    operations += [_add("/spec/taints/-", _object(taint)) for taint in mark.added]
    if mark.unschedulable is not None:
        operations.append(_add("/spec/unschedulable", mark.unschedulable))
    for name, text in mark.annotations:
        path = f"/metadata/annotations/{_escaped(name)}"
        operations.append({"op": "remove", "path": path} if text is None else _add(path, text))
    return msgspec.json.encode(operations)


def tell_patch(tell: Tell, at: str) -> bytes:
    """Return the strategic merge patch of /status that sets the condition berthmaster.dev/Warm, `at` in RFC 3339."""
    condition = {
        "type": labels.WARM_CONDITION,
        "status": "True" if tell.is_warm else "False",
        "reason": tell.why.value,
        "message": tell.message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }
    return msgspec.json.encode({"metadata": {"uid": tell.uid}, "status": {"conditions": [condition]}})


def is_shut(facts: NodeFacts) -> bool:
    """Return True if neither pods nor claims can come to a node that is being given up."""
    return bool(facts.closing) and facts.is_unschedulable and not facts.warm and not facts.claim


def is_unopened(facts: NodeFacts, pool: PoolSpec) -> bool:
    """Return True if the node is not open yet: it carries the readiness taint and cannot be claimed."""
    return pool.readiness_taint in facts.taints and not facts.warm and not facts.claim


def warm_text(pool: PoolSpec) -> str:
    """Return the text of the `warm` annotation: the images that are proven, or the pool's name where it names none."""
    return ",".join(image.pinned for image in pool.images) or pool.name


def _taints(facts: NodeFacts, node: PoolNode, pool: PoolSpec) -> tuple[tuple[Taint, ...], tuple[tuple[int, str], ...]]:
    """Return taints to add and to remove: the pool's is permanent, the readiness taint stays until proven warm."""
    readiness = pool.readiness_taint
    added = [taint for taint in (pool.pool_taint,) if taint not in facts.taints]
    is_closing = node.state in (NodeState.RELEASING, NodeState.FAILED)  # these keep what they have
    if node.state in COMING and readiness not in facts.taints:
        added.append(readiness)
    removed = tuple(
        (position, taint.key)
        for position, taint in enumerate(facts.taints)
        if (taint.key == readiness.key and node.state not in COMING and not is_closing)
        or (taint.key == labels.POOL and taint.effect == pool.pool_taint.effect and taint != pool.pool_taint)
    )
    return tuple(added), removed


def _cordon(facts: NodeFacts, node: PoolNode) -> bool:
    """Return whether to be cordoned: while it is closed by us; never lifted where somebody else had cordoned it."""
    if node.close_why is not None:
        return facts.is_unschedulable or not facts.claim
    if facts.closing and facts.closing != Why.USELESS.value:
        return False
    return facts.is_unschedulable


def _annotations(facts: NodeFacts, node: PoolNode, pool: PoolSpec) -> tuple[tuple[str, str | None], ...]:
    """Return annotations to change. A claim that still stands there, lapsed or not, goes before the node closes."""
    is_open = node.is_claimable or (node.state is NodeState.CLAIMED and bool(facts.warm))
    is_closing = node.close_why is not None
    wanted: Mapping[str, str] = {
        labels.WARM: warm_text(pool) if is_open else "",
        labels.CLOSING: node.close_why.value if node.close_why is not None and not facts.claim else "",
        labels.DO_NOT_DISRUPT: "true" if node.state in _USED else "",
    }
    found = {
        labels.WARM: facts.warm,
        labels.CLOSING: facts.closing,
        labels.DO_NOT_DISRUPT: "true" if facts.is_protected else "",
    }
    if is_closing and facts.claim:
        wanted = {**wanted, labels.WARM: facts.warm, labels.CLOSING: facts.closing}
    return tuple((name, text or None) for name, text in sorted(wanted.items()) if text != found[name])


def _object(taint: Taint) -> dict[str, str]:
    return {name: text for name, text in (("key", taint.key), ("value", taint.value), ("effect", taint.effect)) if text}


def _test(path: str, value: Any) -> dict[str, Any]:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
