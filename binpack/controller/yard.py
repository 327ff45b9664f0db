"""The pools' nodes as the planner keeps them: serving ones among all others, warm ones apart, closed ones nowhere.

Pure but for its memory: everything in it can be read again from the API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace

from binpack.controller.waiting import CAPACITY
from binpack.demand import price_left_out
from binpack.planner import verified
from binpack.state import NodeState
from binpack.warm.nodes import WarmNodes, untainted
from binpack.warm.pools import Pools
from binpack.warm.standing import Standing, standing
from fleet.claim import read_claim
from fleet.draw import Draw, MissReason, hit, miss
from fleet.node import Node
from fleet.plan import Plan, Reason, Unplaced
from fleet.pod import Pod

_SHUN_S = 10.0


class Yard:
    """Sorts pools' nodes, draws warm ones for pods that would wait, and knows whose miss it is if there is none.

    Args:
        set_id: Names this leadership: claims with it are its own.
    """

    def __init__(self, set_id: str = "planner") -> None:
        self.set_id = set_id
        self.pools = Pools()
        self.warm = WarmNodes(self.pools)
        self.draws: dict[str, Draw] = {}
        self._set_ids = {set_id}
        self._standings: dict[str, tuple[str, Standing]] = {}
        self._counts: Counter[tuple[str, Standing]] = Counter()
        self._shown: dict[str, tuple[NodeState, NodeState | None]] = {}
        self._shunned: dict[str, tuple[tuple[str, ...], float]] = {}

    # -- nodes ---------------------------------------------------------------------------------------------------

    def sort(self, state: NodeState, gated: Container[str], *, may_adopt: bool) -> NodeState | None:
        """Take a pool's node and return its state as pods may see it; None = nobody may go there now.

        Args:
            state: As the ledger has it.
            gated: UIDs of the pods that wait to be planned.
            may_adopt: Whether the claims of a planner that is gone may be taken over, for the pods they name. True for
                what a new leader found when it began: whoever led before writes no more.
        """
        node, name = state.node, state.node.name
        shown = self._shown.get(name)
        if shown is not None and shown[0] is state:
            return shown[1]
        if may_adopt:
            self._adopt(node, gated)
        kind = standing(node, frozenset(self._set_ids))
        is_shunned = self._is_shunned(node)  # asked of every state, so that a change in between is noticed
        if kind in _WARM and is_shunned:
            kind = Standing.CLAIMED
        self.pools.saw(node)
        self._count(name, (node.pool, kind))
        result = None if kind in _OUT_OF_REACH else untainted(state)
        self._shown[name] = (state, result)
        if result is not None and kind in _WARM:
            self.warm.set_node(result, is_ours=kind is Standing.OURS)
        else:
            self.warm.remove_node(name)
        return result

    def drop(self, name: str) -> None:
        """Forget a node that is gone, or no pool's any more."""
        if name in self._standings:
            self._count(name, None)
            self._shown.pop(name, None)
            self._shunned.pop(name, None)
            self.warm.remove_node(name)

    def names(self, kind: Standing) -> tuple[str, ...]:
        """Return the pools' nodes of one kind, sorted."""
        return tuple(sorted(name for name, (_, standing) in self._standings.items() if standing is kind))

    def is_warm(self, name: str) -> bool:
        """Return True if going to this node takes a claim."""
        return name in self.warm

    def shun(self, node: Node, now_s: float) -> None:
        """Leave a node alone that could not be claimed, until it shows a change or ten seconds have passed."""
        self._shunned[node.name] = (_claim_view(node), now_s + _SHUN_S)
        self._shown.pop(node.name, None)

    def forgiven(self, now_s: float) -> tuple[str, ...]:
        """Return nodes that were left alone for long enough; they are to be sorted again."""
        names = tuple(name for name, (_, until_s) in self._shunned.items() if until_s <= now_s)
        for name in names:
            del self._shunned[name]
            self._shown.pop(name, None)
        return names

    def set_id_of(self, node: Node) -> str:
        """Return the set to claim a node for: the one that holds it, where that is ours or was taken over."""
        claim = read_claim(node.claim)
        return claim.set_id if claim is not None and claim.set_id in self._set_ids else self.set_id

    def _count(self, name: str, now: tuple[str, Standing] | None) -> None:
        """Count a node as this from now on; None = it is gone."""
        before = self._standings.pop(name, None)
        if before is not None:
            self._counts[before] -= 1
            if not self._counts[before]:
                del self._counts[before]
        if now is not None:
            self._standings[name] = now
            self._counts[now] += 1

    def _adopt(self, node: Node, gated: Container[str]) -> None:
        claim = read_claim(node.claim)
        if claim is not None and claim.set_id and any(uid in gated for uid in claim.pods):
            self._set_ids.add(claim.set_id)

    def _is_shunned(self, node: Node) -> bool:
        known = self._shunned.get(node.name)
        if known is None:
            return False
        if known[0] == _claim_view(node):
            return True
        del self._shunned[node.name]
        return False

    # -- pods ----------------------------------------------------------------------------------------------------

    def drawn(self, plan: Plan, pods: Sequence[Pod]) -> Plan:
        """Return the plan with pods that would wait placed on warm nodes, as far as these go."""
        if not len(self.warm):
            return plan
        by_uid = {pod.uid: pod for pod in pods}
        waiting = [by_uid[one.pod_uid] for one in plan.unplaced if one.reason in CAPACITY]
        placements = self.warm.placements(waiting, plan.placements, by_uid)
        if not placements:
            return plan
        placed = {placement.pod_uid for placement in placements}
        theirs = [pod for pod in waiting if pod.uid in placed]
        states = self.warm.states({placement.berth.node for placement in placements})
        sound = verified([Plan(placements=placements)], theirs, states).plan.placements
        placed = {placement.pod_uid for placement in sound}
        unplaced = tuple(one for one in plan.unplaced if one.pod_uid not in placed)
        saved = price_left_out(pods, plan.unplaced) - price_left_out(pods, unplaced)
        return replace(
            plan,
            placements=(*plan.placements, *sound),
            unplaced=unplaced,
            objective=plan.objective - saved + sum(placement.score for placement in sound),
            bound=None,
        )

    def note_hit(self, pod: Pod, node: Node) -> None:
        """Note that a pod's draw found a warm node, unless it had found none before."""
        if not pod.has_drawn:
            self.draws.setdefault(pod.uid, hit(node.pool, node.name))

    def judged(self, pod: Pod, unplaced: Unplaced) -> Unplaced:
        """Return why a pod waits: a pool that serves it and orders nodes owns its miss. The miss is noted once."""
        if unplaced.reason is Reason.NO_NODES and self._standings:
            text = f"all {len(self._standings)} nodes are warm pools', and none is open to it"
            unplaced = replace(unplaced, reason=Reason.NO_NODE_ALLOWED, detail=text)
        # A new node helps wherever room is wanted, and against all company but that of pods which are not there.
        is_a_miss = unplaced.reason in CAPACITY and unplaced.reason is not Reason.POD_AFFINITY
        pool = self.pools.owner(pod) if is_a_miss else None
        if pool is None:
            return unplaced
        why, text = self._lack(pool.name)
        if not pod.has_drawn:
            self.draws.setdefault(pod.uid, miss(pool.name, why))
        if not pool.is_acting:
            return unplaced
        return replace(
            unplaced, reason=Reason.NO_WARM_NODE, detail=f"no room, and no warm node in pool {pool.name} ({text})"
        )

    def take_back_hit(self, uid: str) -> None:
        """Note that a pod does not go to the node that it drew after all; a miss stays one."""
        draw = self.draws.get(uid)
        if draw is not None and draw.is_hit:
            del self.draws[uid]

    def forget(self, uid: str) -> None:
        """Forget a pod's draw: it is written, or the pod is gone."""
        self.draws.pop(uid, None)

    def _lack(self, pool: str) -> tuple[MissReason, str]:
        count = self._counts
        open_ones = count[pool, Standing.OPEN] + count[pool, Standing.OURS]
        claimed, serving = count[pool, Standing.CLAIMED], count[pool, Standing.SERVING]
        closed = count[pool, Standing.CLOSED]
        text = f"{open_ones} open, {claimed} claimed, {serving} serving, {closed} not warm yet"
        if open_ones:
            return MissReason.NO_ROOM, text
        if claimed or serving:
            return MissReason.ALL_CLAIMED, text
        return (MissReason.ON_THEIR_WAY, text) if closed else (MissReason.NO_NODES, "it has no nodes yet")


def _claim_view(node: Node) -> tuple[str, ...]:
    return (node.uid, node.warm, node.claim)


_WARM = frozenset({Standing.OPEN, Standing.OURS})
_OUT_OF_REACH = frozenset({Standing.CLAIMED, Standing.CLOSED})
