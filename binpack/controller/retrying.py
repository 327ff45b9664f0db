"""Which waiting pods are planned again: where something happened that may help them, and now and then anyhow. Pure."""

from __future__ import annotations

from dataclasses import replace

from binpack.controller.sorting import wish
from binpack.controller.waiting import CAPACITY
from binpack.controller.world import World
from binpack.fit import mismatch, missing
from binpack.state import NodeState
from fleet.plan import Placement, Reason, Unplaced
from fleet.pod import Pod

_MANY_NODES = 32


def requeue_waiting(world: World) -> None:
    """Queue every waiting pod that fits on a node where room appeared since the last call.

    The others need not be planned again: what could not take them before has not grown. Where many nodes grew at once,
    all are queued: planning them is cheaper than looking at every pair.
    """
    occasion = world.news.take()
    world.together.due |= world.together.without_room
    if occasion.has_claim_room:
        _requeue_claimants(world)
    is_many = len(occasion.grown) > _MANY_NODES
    known: dict[tuple[object, ...], bool] = {}
    for pod in world.waiting_for_room():
        kind = wish(pod)
        if kind not in known:
            has_place = (_has_place(world, pod, state) for state in occasion.grown)
            known[kind] = is_many or pod.guest in occasion.joined or any(has_place)
        if known[kind]:
            world.queue[pod.uid] = pod


def _requeue_claimants(world: World) -> None:
    """Queue every pod that waits for its resource claims: devices became free, or claims came."""
    for uid, pod in world.pods.items():
        # Gangs that wait are due whenever anything happened: their members are never planned one by one.
        record = world.waiting.get(uid) if pod.resource_claims and world.together.is_alone(pod) else None
        if record is None or uid in world.away:
            continue
        if record.reason in CAPACITY or record.reason is Reason.CLAIM_PENDING:
            world.queue[uid] = pod


def _has_place(world: World, pod: Pod, state: NodeState) -> bool:
    if mismatch(pod, state.node) is not None or missing(pod, state):
        return False
    return world.is_welcome(pod, state.node.name)


def look_again(world: World, now_s: float, *, most_wishes: int, older_than_s: float) -> None:
    """Renew the numbers of pods whose reason was found long ago; queue those that fit after all."""
    world.to_say.update(world.waiting.unsaid(now_s))
    answers: dict[tuple[object, ...], Placement | Unplaced] = {}
    for pod in world.waiting_for_room():
        record = world.waiting.get(pod.uid)
        if record is None or now_s - record.found_at_s < older_than_s:
            continue
        kind = wish(pod)
        if kind not in answers:
            if len(answers) >= most_wishes:
                continue
            answers[kind] = world.index.place(pod)
        answer = answers[kind]
        if isinstance(answer, Placement):
            world.queue[pod.uid] = pod
        else:
            world.wait(replace(answer, pod_uid=pod.uid))


def kinds_waiting(world: World) -> tuple[Pod, ...]:
    """Return the pods that wait for room, one of each kind."""
    return tuple({wish(pod): pod for pod in world.waiting_for_room()}.values())
