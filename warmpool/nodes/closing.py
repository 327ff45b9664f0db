"""Giving a node up without taking anybody's pod along: close it, look again, then let it go; undo if somebody came.

That a node was empty proves nothing until it is closed to pods and claims, and until what was under way has arrived
(kubernetes-sigs/karpenter#2724). The closing tests that there is no claim, as a claim tests that the node is open.
"""

from __future__ import annotations

from dataclasses import replace

from fleet.claim import read_claim, standing
from warmpool.nodes.action import Action, Evict, Forget, Release, Unclaim
from warmpool.nodes.limits import Limits
from warmpool.nodes.marks import is_shut, is_unopened, marks
from warmpool.nodes.seen import NodeSeen
from warmpool.values import NodeState, PoolNode, PoolSpec, Why


def close(seen: NodeSeen, node: PoolNode, now_s: float, limits: Limits) -> tuple[PoolNode, tuple[Action, ...]]:
    """Return the node on its way out, with the next thing to do; or as it was, where somebody came."""
    facts, why = seen.facts, node.close_why
    if why is None:
        return node, ()
    if node.release_told_s is None and _is_undone(node):
        return replace(node, close_why=None, closed_seen_s=None), ()
    node = replace(node, state=NodeState.RELEASING, why=why, detail=f"was {node.state.value}")
    if facts is not None:
        if not is_shut(facts):
            return replace(node, closed_seen_s=None), ()
        closed_seen_s = now_s if node.closed_seen_s is None else node.closed_seen_s
        node = replace(node, closed_seen_s=closed_seen_s)
        if node.pods:
            return node, (Evict(node=facts.name, pods=node.pods),)
        if now_s - closed_seen_s < limits.settle_s:
            return node, ()
    return _released(node, now_s, limits, must_look=facts is not None)


def given_up(
    seen: NodeSeen, node: PoolNode, pool: PoolSpec, now_s: float, limits: Limits
) -> tuple[PoolNode, tuple[Action, ...]]:
    """Return a failed or released node with what is left to do: close it, have it removed, forget it.

    One that came back to life under somebody's hands is theirs until they are gone.
    """
    facts = seen.facts
    if seen.machine is None and facts is None:
        return node, (Forget(name=node.name),)
    if node.is_placeholder or is_going(seen):
        return node, ()
    if facts is not None:
        if seen.pods or standing(read_claim(facts.claim), node.claim_seen_s, now_s):
            return node, ()
        if facts.claim:
            return node, (Unclaim(node=facts.name, uid=facts.uid, text=facts.claim, why=Why.CLAIM_LAPSED),)
        if not is_unopened(facts, pool):
            if not is_shut(facts):
                closing = replace(node, close_why=node.close_why or node.why, closed_seen_s=None)
                return closing, marks(facts, closing, pool)
            closed_seen_s = now_s if node.closed_seen_s is None else node.closed_seen_s
            node = replace(node, closed_seen_s=closed_seen_s)
            if now_s - closed_seen_s < limits.settle_s:
                return node, ()
    return _released(node, now_s, limits, must_look=facts is not None)


def is_going(seen: NodeSeen) -> bool:
    """Return True if the machine or its Node is being deleted, by whomever."""
    parts = (seen.machine, seen.facts)
    return any(part is not None and part.is_deleting for part in parts)


def _released(node: PoolNode, now_s: float, limits: Limits, *, must_look: bool) -> tuple[PoolNode, tuple[Action, ...]]:
    """Return the node with its release asked for, unless that was done a moment ago."""
    if node.release_told_s is not None and now_s - node.release_told_s < limits.retell_s:
        return node, ()
    release = Release(name=node.name, node=node.node_name, why=node.why, must_look=must_look)
    return replace(node, release_told_s=now_s), (release,)


def _is_undone(node: PoolNode) -> bool:
    """Return True if somebody came: a claim, or pods on a node that was not to be emptied."""
    if node.state is NodeState.CLAIMED:
        return True
    return node.state is NodeState.SERVING and not (node.close_why is Why.SPARE and node.is_spare)
