"""Where a gated pod stands in a planner's world, and pods put there."""

from __future__ import annotations

from fleet.plan import Reason, Unplaced

OTHER_GATE = "example.com/later"


def places(world, uid):
    """Where a pod stands; more than one answer is a fault."""
    found = []
    if uid in world.queue:
        found.append("queue")
    if uid in world.away:
        found.append(world.away[uid].value)
    if not found and uid in world.waiting:
        found.append("waiting")
    return found


def miss(pod, reason=Reason.INSUFFICIENT, **words):
    return Unplaced(pod_uid=pod.uid, reason=reason, **words)


def waiting_for_room(world, *pods):
    """Let pods be decided and not placed."""
    for pod in pods:
        world.pod_seen(pod)
    for pod in world.take_batch(len(pods)):
        assert world.decided(pod) is not None
        world.wait(miss(pod))
