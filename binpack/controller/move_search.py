"""Looks for moves beside the planner, in a copy of its process, and tells whether what was found still holds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from binpack.controller.aside import Aside, Lost
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.prospect import Terms, moves_towards, outdated
from binpack.controller.world import World
from binpack.repack.large import Solve
from binpack.repack.values import Goal, MovePlan
from fleet.clock import Clock

log = logging.getLogger(__name__)

_SOLVER_RATIO = 0.5  # of the time that is left: the search without the solver has the rest
_encoder = msgspec.msgpack.Encoder()
_plans = msgspec.msgpack.Decoder(MovePlan)


class MoveSearch:
    """One search at a time; it never raises."""

    def __init__(
        self,
        world: World,
        terms: Callable[[], Terms],
        clock: Clock,
        metrics: PlannerMetrics,
        solve: Solve | None,
        aside: Aside,
    ) -> None:
        """Begin.

        Args:
            world: The planner's; searched in a copy.
            terms: On what terms pods may be moved now.
            clock: The clock.
            metrics: The planner's.
            solve: The solver that may improve what is found, and proves how good it is; None = neither.
            aside: Where the search is done.
        """
        self._world = world
        self._terms = terms
        self._clock = clock
        self._metrics = metrics
        self._solve = solve
        self._aside = aside

    async def moves_for(self, goal: Goal, until_s: float) -> MovePlan | None:
        """Return the moves found, of the world as it is when this is called; None = there is no answer.

        Where a search with the solver brings none, the one without it may: its answer comes without a bound.

        Args:
            goal: What the moves are for.
            until_s: Monotonic; by then there is an answer, or none is waited for.
        """
        for solve in dict.fromkeys((self._solve, None)):
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0.0:
                break
            try:
                return await self._answer(goal, solve, left_s if solve is None else _SOLVER_RATIO * left_s)
            except (Lost, msgspec.DecodeError) as error:
                self._metrics.move_searches.labels("Lost").inc()
                log.warning("a search for moves brought no answer: %s", error)
        return None

    async def _answer(self, goal: Goal, solve: Solve | None, wall_s: float) -> MovePlan:
        started_s = self._clock.monotonic_s()
        self._world.refresh()
        work = partial(moves_towards, self._world, goal, self._terms(), started_s, solve)
        said = await self._aside(lambda: packed(work()), wall_s)
        self._metrics.move_search_s.observe(self._clock.monotonic_s() - started_s)
        return unpacked(said)

    def why_outdated(self, goal: Goal, plan: MovePlan) -> str:
        """Return why a plan does not hold in the world as it is now; "" = it does, and its figures are shown."""
        self._world.refresh()
        why_not = outdated(self._world, goal, plan, self._terms())
        if not why_not:
            self._metrics.show_moves(plan.objective, plan.bound, plan.gap_ratio)
        self._metrics.move_searches.labels("Outdated" if why_not else plan.verdict.value).inc()
        return why_not


def packed(plan: MovePlan) -> bytes:
    """Return a plan as it comes back from the search."""
    return _encoder.encode(plan)


def unpacked(said: bytes) -> MovePlan:
    """Return the plan of `packed`.

    Raises:
        msgspec.DecodeError: It is none.
    """
    return _plans.decode(said)
