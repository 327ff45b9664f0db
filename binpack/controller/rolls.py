"""Looks at gangs that changed: which are due, which wait for members, which need nobody any more. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from binpack.controller.waiting import CAPACITY
from binpack.controller.world import World
from binpack.gangs.roll import Call, Standing
from fleet.plan import Reason, Unplaced
from fleet.pod import Pod


def call_rolls(world: World) -> None:
    """Sort the gangs that changed since the last call, and their members."""
    for gang in world.together.take_called():
        world.together.due.discard(gang.key)
        world.together.without_room.discard(gang.key)
        world.together.short.discard(gang.key)
        ready = [pod for pod in gang.ready if pod.uid in world.pods and pod.uid not in world.away and not pod.seat]
        if ready:
            _sort(world, gang, ready)


def _sort(world: World, gang: Standing, ready: Sequence[Pod]) -> None:
    lacking = {pod.uid: lack for pod in ready if (lack := world.lookups.lacks(pod))}
    for uid, lack in lacking.items():
        world.wait(Unplaced(pod_uid=uid, reason=Reason.VOLUME, detail=lack))
    late = [pod.name for pod in ready if pod.uid in lacking]
    ready = [pod for pod in ready if pod.uid not in lacking]
    if gang.call is Call.ENOUGH:  # the gang stands: whoever comes now is planned alone
        for pod in ready:
            record = world.waiting.get(pod.uid)
            if record is None or record.reason not in CAPACITY:
                world.queue[pod.uid] = pod
        return
    for pod in ready:
        world.queue.pop(pod.uid, None)
    if gang.call is Call.WHOLE and not lacking:
        world.together.due.add(gang.key)
        return
    world.together.short.add(gang.key)
    text = gang.text if gang.call is not Call.WHOLE else f"{gang.text}, and {', '.join(late[:3])} cannot be placed yet"
    for pod in ready:
        world.wait(Unplaced(pod_uid=pod.uid, reason=Reason.GANG_INCOMPLETE, detail=text))


def gangs_without_room(world: World) -> Iterator[tuple[Pod, ...]]:
    """Return the members of gangs that were tried and did not fit, gang by gang."""
    for key in sorted(world.together.without_room):
        unit = world.together.roll.standing(key).unit
        if unit and all(pod.uid in world.pods and pod.uid not in world.away for pod in unit):
            yield tuple(unit)
