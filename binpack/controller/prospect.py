"""Which moves would lead to a goal in the world as it is, and whether they still would a moment later. Pure.

The search takes a second or two, and the cluster goes on meanwhile: what it found is judged again, by the verifier,
against what is known then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from binpack.check_moves import check_moves
from binpack.config import MovesSettings
from binpack.controller.sorting import wish
from binpack.controller.world import World
from binpack.relocation.candidates import allowed_at_a_time, movables
from binpack.repack.large import Solve
from binpack.repack.propose import propose
from binpack.repack.values import FreeDevices, Goal, MakeRoom, Movable, MoveBudget, MovePlan, PastMove
from fleet.budget import DisruptionBudget
from fleet.pod import Pod

Wanted = MakeRoom | FreeDevices


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms pods may be moved.

    Attributes:
        settings: What the operator allows.
        budgets_of: Which disruption budgets cover a pod.
        barred: Services that could not be moved a moment ago.
        past: Moves of the last hour, and those under way.
    """

    settings: MovesSettings
    budgets_of: Callable[[Pod], Sequence[DisruptionBudget]]
    barred: Collection[str] = ()
    past: tuple[PastMove, ...] = ()


def moves_towards(world: World, goal: Goal, terms: Terms, now_s: float, solve: Solve | None) -> MovePlan:
    """Return moves that lead to the goal; the world is left as it was.

    Args:
        world: Refreshed.
        goal: What for.
        terms: See `Terms`.
        now_s: On the clock of the past moves.
        solve: The solver; None = without, and without a bound.
    """
    states = world.nodes.serving()
    may_move = movables(world.tenants, states, terms.budgets_of, terms.barred, claimed=world.desk.held_alone)
    budget = _budget(may_move, terms)
    return propose(world.index, states, may_move, goal, budget, now_s, past=terms.past, solve=solve)


def outdated(world: World, goal: Goal, plan: MovePlan, terms: Terms) -> str:
    """Return what has changed so that a plan of moves does not hold any more; "" = it holds.

    Args:
        world: As it is now, refreshed.
        goal: What the plan is for.
        plan: Made of the world as it was.
        terms: As they are now.
    """
    if not plan.moves:
        return ""
    waiting = goal.pods if isinstance(goal, MakeRoom) else ()
    for one in waiting:
        if not _waits(world, one):
            return f"{one.key} waits no more, or for something else"
    names = {berth.node for move in plan.moves for berth in (move.source, move.target)}
    names |= {placement.berth.node for placement in plan.placements}
    serving = world.nodes.serving()
    states = {name: serving[name] for name in names if name in serving}
    pods = [pod for move in plan.moves if (pod := world.tenants.get(move.pod_uid)) is not None]
    may_move = movables(pods, states, terms.budgets_of, terms.barred, claimed=world.desk.held_alone)
    published = world.desk.published(names)
    violations = check_moves(states, may_move, waiting, plan, _budget(may_move, terms), published)
    if not violations:
        return ""
    first = violations[0]
    return f"{first.rule} for {first.pod_uid} on {first.node}"


def still_wanted(world: World, goal: Wanted) -> Wanted | None:
    """Return a goal without those who wait no more; None = nobody is left, or a gang is not whole."""
    if not isinstance(goal, MakeRoom):
        return goal
    pods = tuple(pod for pod in goal.pods if _waits(world, pod))
    is_over = not pods or (goal.is_gang and len(pods) < len(goal.pods))
    return None if is_over else replace(goal, pods=pods)


def _waits(world: World, pod: Pod) -> bool:
    now = world.pods.get(pod.uid)
    return now is not None and pod.uid not in world.away and wish(now) == wish(pod)


def _budget(may_move: Sequence[Movable], terms: Terms) -> MoveBudget:
    settings = terms.settings
    return MoveBudget(
        pods_per_hour=settings.pods_per_hour,
        per_service=settings.per_service,
        per_node=settings.per_node,
        allowed=allowed_at_a_time(may_move, terms.budgets_of),
    )
