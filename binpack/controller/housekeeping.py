"""What the planner does once a second, whether anything happened or not. The shell; rules live elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from binpack.controller.carrier import CANDIDATES, LONGEST_PAUSE_S, Carrier
from binpack.controller.herald import Herald
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.retrying import look_again
from binpack.controller.rolls import call_rolls
from binpack.controller.triage import can_be_handed_over
from binpack.controller.usher import Usher
from binpack.controller.world import World
from fleet.clock import Clock
from fleet.loop import Rhythm, every

_EVERY_S = 1.0
# Reasons are renewed now and then: numbers grow old, and what a missed event hid comes to light.
_LOOK_AGAIN_S = 30.0
_LOOK_AGAIN_WISHES = 25


class Housekeeping:
    """Hands over, mends, frees, looks again and lets seats be seen to: whatever time alone makes due."""

    def __init__(
        self,
        world: World,
        carrier: Carrier,
        usher: Usher,
        herald: Herald,
        clock: Clock,
        metrics: PlannerMetrics,
        start: Callable[[Awaitable[object]], None],
        wake: Callable[[], None],
    ) -> None:
        self._world = world
        self._carrier = carrier
        self._usher = usher
        self._herald = herald
        self._clock = clock
        self._metrics = metrics
        self._start = start
        self._wake = wake

    async def run(self) -> None:
        """Keep house until cancelled; a fault ends nothing."""

        def failed(_: Exception) -> None:
            self._metrics.faults.labels("housekeeping").inc()

        await every(
            Rhythm(period_s=_EVERY_S, jitter_ratio=0.0, longest_backoff_s=LONGEST_PAUSE_S),
            self._look_around,
            self._clock,
            name="housekeeping",
            failed=failed,
        )

    async def _look_around(self) -> None:
        now_s, world = self._clock.monotonic_s(), self._world
        for uid in world.waiting.due_for_hand_over(now_s):
            pod = world.pods.get(uid)
            if pod is not None and uid not in world.away and can_be_handed_over(pod):
                world.depart(pod, None)
                self._start(self._carrier.hand_over(pod))
        for claim in world.take_loose():
            self._start(self._carrier.free(claim))
        for repair in world.unbound.repairs(now_s):
            self._start(self._carrier.repair(repair))
        for pod, candidates in world.unbound.steered_anew(now_s, CANDIDATES):
            world.ledger.assume(pod, candidates[0])
            world.refresh()
            self._start(self._carrier.steer_anew(pod, candidates))
        world.forgive()
        if world.refresh():
            self._wake()
        look_again(world, now_s, most_wishes=_LOOK_AGAIN_WISHES, older_than_s=_LOOK_AGAIN_S)
        world.together.forget_past(now_s)
        world.together.called |= world.together.short
        call_rolls(world)
        self._usher.settle()
        self._usher.preempt()
        if world.queue or world.together.due:
            self._wake()
        self._herald.tell()
