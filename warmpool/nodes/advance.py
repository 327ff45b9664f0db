"""One node of the pool, one tick: what is seen goes in, the node's state and what to do about it come out.

Level-triggered: taint, condition and claimability follow what is proven at this tick, with no memory of having been
written once (kubernetes-sigs/karpenter#1772, openkruise/kruise#1419). A claimed or serving node is never given up here.
"""

from __future__ import annotations

from dataclasses import replace

from fleet.claim import read_claim, standing
from warmpool.nodes.action import Action, Drawn, Lead, Outcome, Pull, Step, Unclaim
from warmpool.nodes.closing import close, given_up, is_going
from warmpool.nodes.limits import Limits
from warmpool.nodes.marks import marks
from warmpool.nodes.proof import proof, unproven_images
from warmpool.nodes.seen import NodeSeen, Puller
from warmpool.providers.provider import MachinePhase, Refusal
from warmpool.values import COMING, GONE, NodeState, PoolNode, PoolSpec, Why

_ORDER = tuple(NodeState)
_SHORTAGES = frozenset({Refusal.INSUFFICIENT_CAPACITY, Refusal.QUOTA})

Advanced = tuple[PoolNode, tuple[Action, ...]]


def advance(seen: NodeSeen, node: PoolNode, pool: PoolSpec, now_s: float, limits: Limits) -> Advanced:
    """Return the node after this tick, and what to do.

    Args:
        seen: The node now.
        node: As the last tick left it; `PoolNode.found` at its first sight.
        pool: What is wanted of it.
        now_s: Own monotonic clock.
        limits: Time-outs.
    """
    before = node
    node = _noted(seen, node, pool, now_s)
    if node.state in GONE:
        return given_up(seen, node, pool, now_s, limits)
    ended = _ended(seen, before, node)
    if ended is not None:
        return _leave(seen, node, pool, now_s, limits, ended)

    node, actions = _used(seen, _proven(seen, node, pool, now_s, limits), now_s, limits)
    node = _entered(node, before.state, now_s)
    overdue = _overdue(node, now_s, limits)
    if overdue is not None:
        return _leave(seen, node, pool, now_s, limits, (NodeState.FAILED, *overdue))
    actions += _news(before, node, now_s)
    if node.warm_at_s is None and node.state is NodeState.WARM:
        node = replace(node, warm_at_s=now_s)
    if node.is_idle and node.lost_since_s is not None and now_s - node.lost_since_s > limits.lost_s:
        node = replace(node, close_why=node.close_why or Why.VANISHED)
    if node.close_why is not None:
        node, more = close(seen, node, now_s, limits)
        node = _entered(node, before.state, now_s)
        actions += more
    actions += _pulls(seen, node, pool, now_s, limits)
    is_leaving = node.release_told_s == now_s
    if seen.facts is not None and not seen.facts.is_deleting and not is_leaving:
        # In order: a mark relies on the claim that was read, or on its having been removed just before.
        is_unclaimed = any(isinstance(action, Unclaim) for action in actions)
        actions += marks(replace(seen.facts, claim="") if is_unclaimed else seen.facts, node, pool)
    return node, actions


def _noted(seen: NodeSeen, node: PoolNode, pool: PoolSpec, now_s: float) -> PoolNode:
    """Return the node with what is merely to be read off: facts, and on our own clock when they changed."""
    machine, facts = seen.machine, seen.facts
    if machine is not None:
        node = replace(
            node,
            offer=machine.offer,
            shape=machine.shape or node.shape,
            node_name=machine.node_name or node.node_name,
            is_placeholder=machine.is_placeholder,
            lost_since_s=None,
            is_orphan=False,
        )
    elif node.lost_since_s is None:
        is_new = node.node_since_s is None and not node.is_ordered_here
        node = replace(node, lost_since_s=now_s, is_orphan=is_new)
    expires_at_s = None if pool.expire_after_s is None else node.born_at_s + pool.expire_after_s
    if facts is None:
        return replace(node, pods=(), expires_at_s=expires_at_s)
    is_holding = seen.puller is Puller.HOLDING
    claim = read_claim(facts.claim)
    is_same = facts.claim == node.claim_text
    arrived = frozenset(claim.pods if claim is not None else ()) & frozenset(seen.pods)
    return replace(
        node,
        node_name=facts.name,
        uid=facts.uid,
        shape=node.shape or facts.shape,
        node_since_s=now_s if node.node_since_s is None else node.node_since_s,
        expires_at_s=expires_at_s,
        devices=facts.devices,
        claim=claim,
        claim_text=facts.claim,
        claim_seen_s=node.claim_seen_s if is_same else now_s,
        arrived=arrived | node.arrived if is_same else arrived,
        pods=seen.pods,
        heartbeat=facts.heartbeat,
        heartbeat_seen_s=node.heartbeat_seen_s if facts.heartbeat == node.heartbeat else now_s,
        pulled_since_s=(node.pulled_since_s if node.pulled_since_s is not None else now_s) if is_holding else None,
        is_cordoned=facts.is_unschedulable and not facts.closing and node.close_why is None,
        is_kept=facts.is_kept,
        is_spare=facts.is_spare,
        # Only a process that sees the node for the first time learns it from there: the others know what they want.
        close_why=node.close_why or (_why_of(facts.closing) if node.node_since_s is None else None),
    )


def _why_of(closing: str) -> Why | None:
    """Return why a node was being closed before a restart; a text of another version still means that it was."""
    if not closing:
        return None
    return Why(closing) if closing in Why.__members__.values() else Why.SURPLUS


def _ended(seen: NodeSeen, before: PoolNode, node: PoolNode) -> tuple[NodeState, Why, str] | None:
    """Return the state, reason and numbers of a node that is no more, or will not be; None = it goes on."""
    machine, facts = seen.machine, seen.facts
    if facts is None and (machine is None or before.node_since_s is not None):
        if node.release_told_s is not None or node.is_placeholder:
            return NodeState.RELEASED, node.close_why or node.why, "gone"
        return NodeState.FAILED, Why.VANISHED, f"gone while {node.state.value}"
    if machine is not None and machine.phase is MachinePhase.FAILED:
        why = Why.INSUFFICIENT_CAPACITY if machine.refusal in _SHORTAGES else Why.REFUSED
        return NodeState.FAILED, why, machine.detail
    if is_going(seen) and node.close_why is None:
        if node.is_coming:
            return NodeState.FAILED, Why.VANISHED, f"somebody else removes it while {node.state.value}"
        return NodeState.RELEASING, Why.GOING, "somebody else removes it"
    return None


def _proven(seen: NodeSeen, node: PoolNode, pool: PoolSpec, now_s: float, limits: Limits) -> PoolNode:
    state, why, detail = proof(seen, node, pool, now_s, limits)
    if state is NodeState.WARM and node.is_cordoned:
        why, detail = Why.CORDONED, "somebody closed it to pods"
    return replace(node, state=state, why=why, detail=detail)


def _used(seen: NodeSeen, node: PoolNode, now_s: float, limits: Limits) -> tuple[PoolNode, tuple[Action, ...]]:
    """Return the node as it is used: what pods and claims say comes before what is proven."""
    facts, claim = seen.facts, node.claim
    if facts is None:
        return node, ()
    # Pods that are no more will not come; one that was just made may not have been seen yet.
    gone = seen.gone if now_s - node.claim_seen_s >= limits.settle_s else frozenset()
    is_spent = claim is not None and bool(claim.pods) and set(claim.pods) - gone <= node.arrived
    is_over = claim is not None and (is_spent or not standing(claim, node.claim_seen_s, now_s))
    unclaim: tuple[Action, ...] = ()
    if is_over:
        why = Why.CLAIM_SPENT if is_spent else Why.CLAIM_LAPSED
        unclaim = (Unclaim(node=facts.name, uid=facts.uid, text=facts.claim, why=why),)
    if node.pods:
        node = replace(node, state=NodeState.SERVING, why=Why.PODS_HERE, detail=f"{len(node.pods)} pods")
        return node, unclaim if not facts.warm else ()  # once nobody can claim the node anew
    if claim is None or is_over:
        return node, unclaim
    if not claim.is_firm and node.state is not NodeState.WARM:
        return node, (Unclaim(node=facts.name, uid=facts.uid, text=facts.claim, why=Why.CLAIM_VOID),)
    left_s = node.claim_seen_s + claim.seconds - now_s
    detail = f"{claim.kind} claim for {len(claim.pods)} pods, {left_s:.0f} s left"
    return replace(node, state=NodeState.CLAIMED, why=Why.CLAIM_STANDS, detail=detail), ()


def _entered(node: PoolNode, old: NodeState, now_s: float) -> PoolNode:
    """Return the node with its clocks wound: a state begins when it changes."""
    if node.state is old:
        return node
    coming_since_s = now_s if node.state in COMING and old not in COMING else node.coming_since_s
    return replace(node, state_since_s=now_s, coming_since_s=coming_since_s)


def _news(before: PoolNode, node: PoolNode, now_s: float) -> tuple[Action, ...]:
    """Return what this tick brought: launched, a step taken, warm, drawn.

    Of a machine that was found after a restart nobody knows when it was ordered, and of a Node seen for the first time
    nobody knows since when its pods are there.
    """
    news: list[Action] = []
    if node.is_ordered_here:
        if before.state in COMING and _rank(node.state) > _rank(before.state):
            news.append(Step(state=before.state, duration_s=now_s - before.state_since_s))
        if before.state is NodeState.ORDERED and node.state is not NodeState.ORDERED:
            news.append(Outcome(offer=node.offer, ordered_at_s=node.ordered_at_s, why=None))
        if node.state is NodeState.WARM and node.warm_at_s is None:
            news.append(Lead(offer=node.offer, duration_s=now_s - node.ordered_at_s))
    if before.node_since_s is not None and not before.pods:
        known = _spoken_for(before)
        new = tuple(pod for pod in _spoken_for(node) if pod not in known)
        if new:
            news.append(Drawn(node=node.node_name, pods=new, was_warm=before.warm_at_s is not None))
    return tuple(news)


def _spoken_for(node: PoolNode) -> tuple[str, ...]:
    """Return the pods that have drawn the node; a soft claim is not a draw yet."""
    firm = node.claim.pods if node.claim is not None and node.claim.is_firm else ()
    return tuple(dict.fromkeys((*node.pods, *firm)))


def _rank(state: NodeState) -> int:
    return _ORDER.index(state)


def _overdue(node: PoolNode, now_s: float, limits: Limits) -> tuple[Why, str] | None:
    """Return why a coming node is given up; None = it is in time. Nobody else times these steps out."""
    if not node.is_coming or node.is_placeholder or node.close_why is not None:
        return None
    coming_s, step_s = now_s - node.coming_since_s, now_s - node.state_since_s
    if coming_s > limits.warm_timeout_s:
        return Why.WARM_TIMEOUT, f"not warm after {coming_s:.0f} s of {limits.warm_timeout_s:.0f}: {node.why.value}"
    if step_s > limits.step_s(node.state):
        bound_s = limits.step_s(node.state)
        return Why.STEP_TIMEOUT, f"{node.state.value} for {step_s:.0f} s of {bound_s:.0f}: {node.why.value}"
    return None


def _leave(
    seen: NodeSeen, node: PoolNode, pool: PoolSpec, now_s: float, limits: Limits, to: tuple[NodeState, Why, str]
) -> Advanced:
    """Return the node in a state it will not come back from, out of the count at once."""
    state, why, detail = to
    news: tuple[Action, ...] = ()
    if state is NodeState.FAILED and node.state in COMING:
        news = (Step(state=node.state, duration_s=now_s - node.state_since_s),)
        if node.node_since_s is None:  # what fails on a node that registered says nothing about the offer
            news += (Outcome(offer=node.offer, ordered_at_s=node.ordered_at_s, why=why, detail=detail),)
    node = _entered(replace(node, state=state, why=why, detail=detail), node.state, now_s)
    if state not in GONE:
        return node, news
    node, more = given_up(seen, node, pool, now_s, limits)
    return node, (*news, *more)


def _pulls(seen: NodeSeen, node: PoolNode, pool: PoolSpec, now_s: float, limits: Limits) -> tuple[Action, ...]:
    """Return the pull to start: as soon as there is a kubelet, and for as long as nobody uses the node.

    A pod that holds the images keeps them from garbage collection, so it is wanted even where all are there.
    """
    facts = seen.facts
    if facts is None or not facts.is_ready or not node.is_idle or node.close_why is not None:
        return ()
    if not pool.images and not pool.models:
        return ()
    missing = unproven_images(seen, pool)
    pull = Pull(node=facts.name, uid=facts.uid, missing=missing)
    if seen.puller is Puller.NONE:
        return (pull,)
    held_s = 0.0 if node.pulled_since_s is None else now_s - node.pulled_since_s
    if seen.puller is Puller.ENDED or (missing and held_s > limits.image_lag_s):
        return (replace(pull, is_again=True),)
    return ()
