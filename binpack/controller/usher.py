"""Leads gangs and urgent pods to their seats: writes seats down, asks others to go, pins once they are gone.

Nothing is pinned before every member of a gang has its seat in the API, and nobody is asked to go for a seat that is
not in the API: whoever takes over finds the seats, counts them as held, and goes on from there. Seats of which that
cannot be said (only part of a gang has them, a node is gone) are taken back, and their pods are planned again.

The resource claims of a gang are given their devices before its first seat is written, all of them or none; where
others must go for that, before its first pin.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from binpack.controller.budget_feed import Budgets
from binpack.controller.carrier import FIRST_PAUSE_S, Carrier, backoff_s
from binpack.controller.evictor import Evictor
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.preempting import (
    gangs_due,
    has_lesser_tenants,
    keep_devices,
    plan_gang,
    preemptors,
    seat_by_preemption,
    seat_standings,
    unlisted,
)
from binpack.controller.proof import Proofs
from binpack.controller.rolls import call_rolls
from binpack.controller.together import GroupStep, Step
from binpack.controller.welcome import is_left_by_others, unwelcome
from binpack.controller.world import World
from binpack.controller.writer import Outcome, PodWriter, guarded
from binpack.gangs.place import Refusal
from binpack.gangs.roll import Key, key_of
from fleet.clock import Clock
from fleet.kube.events import EventRecorder
from fleet.plan import Placement, Plan, Reason, Unplaced, Violation
from fleet.pod import Berth, Pod

log = logging.getLogger(__name__)

_UNPROVEN_PAUSE_S = 5.0  # a search that was cut is costly, and little has changed a moment later
_FAULT_PAUSE_S = 10.0
_NOBODY_TO_GO_PAUSE_S = 10.0
_UNITS_PER_LOOK = 2
_PAUSE_PER_WORK = 4.0  # what seats cost takes a fifth of the time at most
_PAUSE_PER_EFFORT = 20.0  # what took long is not looked for again at once: everybody else waits meanwhile
# Gangs are planned, and seats seen to, without a break for so long at most: pins, watches and the lease wait meanwhile.
# The other gangs follow within a second; and all that wait take half of the time at most, so that each has its turn.
_LONGEST_LOOK_S = 1.0
_PAUSE_PER_EFFORT_OF_ALL = 2.0


class Usher:
    """Runs inside the planner's turns; what it starts goes on by itself and ends in the world.

    Args:
        world: The planner's.
        writer: For seats and evictions.
        carrier: For pins.
        budgets: Disruption budgets, as the watch shows them.
        start: Runs a coroutine by itself.
        wake: Asks for another turn.
        preempts: Whether others may be made to go at all.
        may_break: Whether budgets may be broken where nothing else makes room.
    """

    def __init__(
        self,
        world: World,
        writer: PodWriter,
        carrier: Carrier,
        recorder: EventRecorder,
        budgets: Budgets,
        clock: Clock,
        metrics: PlannerMetrics,
        start: Callable[[Awaitable[object]], None],
        wake: Callable[[], None],
        *,
        preempts: bool = True,
        may_break: bool = False,
    ) -> None:
        self._world = world
        self._writer = writer
        self._carrier = carrier
        self._evictor = Evictor(world, writer, recorder, clock, metrics, wake, may_break=may_break)
        self._budgets = budgets
        self._clock = clock
        self._metrics = metrics
        self._start = start
        self._wake = wake
        self._preempts = preempts
        self._may_break = may_break
        self._settles_at_s = self._preempts_at_s = float("-inf")
        self._seen_to_s: dict[str, float] = {}  # by the first pod of a group with seats: when it last was
        self._tries = Counter[Key]()  # to allocate the claims of a gang, in a row

    # -- decisions ---------------------------------------------------------------------------------------------

    def gangs(self, *, above: int | None = None) -> None:
        """Place gangs that are due; those alone that outrank the priority `above`, if it is given."""
        world = self._world
        call_rolls(world)
        began_s = self._clock.monotonic_s()
        for key in gangs_due(world, began_s):
            if self._clock.monotonic_s() - began_s >= _LONGEST_LOOK_S:
                break
            unit = world.together.roll.standing(key).unit
            if above is not None and min(pod.priority for pod in unit) < above:
                break
            world.together.due.discard(key)
            try:
                self._gang(key, unit)
            except Exception as error:
                # Broad on purpose: one gang, or one fault of the planner, must not stop all the others.
                self._metrics.faults.labels("gang").inc()
                log.exception("planning gang %s/%s failed", *key)
                self._leave_out(key, unit, Reason.PLANNER_FAULT, f"{type(error).__name__}: {error}"[:200])

    def _gang(self, key: Key, unit: Sequence[Pod]) -> None:
        self._world.refresh()  # what was decided a moment ago, for others or for another gang, is taken
        began_s = self._clock.monotonic_s()
        answer, violations = plan_gang(self._world, unit)
        now_s = self._clock.monotonic_s()
        self._note(violations, "a gang's berth was not used")
        if not isinstance(answer, Refusal):
            self._metrics.gangs.labels("seated").inc()
            berths = {placement.pod_uid: placement.berth for placement in answer}
            self._seat_unit([(pod, berths[pod.uid]) for pod in unit])
            return
        self._metrics.gangs.labels("without-room").inc()
        self._world.together.without_room.add(key)
        waiting = len(self._world.together.without_room | self._world.together.due)
        pause_s = max(_PAUSE_PER_EFFORT, _PAUSE_PER_EFFORT_OF_ALL * waiting) * (now_s - began_s)
        pause_s = max(0.0 if answer.is_proven else _UNPROVEN_PAUSE_S, pause_s)
        if pause_s > 1.0:
            self._world.together.rest(key, now_s + pause_s)
        for unplaced in answer.unplaced:
            self._world.wait(unplaced)
        # Members beyond those that the gang needs follow once these are placed, so they wait for the same reason.
        for pod in self._world.together.roll.standing(key).ready[len(unit) :]:
            if pod.seat is None and pod.uid not in self._world.away:
                self._world.wait(replace(answer.unplaced[0], pod_uid=pod.uid))

    def _note(self, violations: Sequence[Violation], what: str) -> None:
        for violation in violations:
            self._metrics.violations.inc()
            log.warning("%s: %s", what, violation.rule, extra={"where": violation.node})

    def _leave_out(self, key: Key, unit: Sequence[Pod], reason: Reason, detail: str) -> None:
        self._world.together.rest(key, self._clock.monotonic_s() + _FAULT_PAUSE_S)
        self._world.together.due.add(key)
        for pod in unit:
            self._world.wait(Unplaced(pod_uid=pod.uid, reason=reason, detail=detail))

    def preempt(self) -> None:
        """Look for seats for a few of those who wait and are more important than others who have theirs."""
        now_s = self._clock.monotonic_s()
        if not self._preempts or not self._budgets.is_known or now_s < self._preempts_at_s:
            return
        self._guarded(lambda: self._look_for_seats(now_s))
        self._preempts_at_s = self._after_work(now_s)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            # Broad on purpose: one seat, or one fault of the planner, must not stop pods that want none.
            self._metrics.faults.labels("seat").inc()
            log.exception("seats could not be dealt with")

    def _after_work(self, began_s: float) -> float:
        """Return when work that began then may be done again: others need the time, too."""
        now_s = self._clock.monotonic_s()
        return now_s + _PAUSE_PER_WORK * (now_s - began_s)

    def _look_for_seats(self, now_s: float) -> None:
        world = self._world
        looked = 0
        for unit in preemptors(world, now_s):
            if looked == _UNITS_PER_LOOK or not has_lesser_tenants(world, min(pod.priority for pod in unit)):
                return
            looked += 1
            world.refresh()
            began_s = self._clock.monotonic_s()
            proposal, violations = seat_by_preemption(world, unit, self._budgets.of, now_s, may_break=self._may_break)
            self._note(violations, "a seat was not proposed")
            if proposal is None:
                took_s = self._clock.monotonic_s() - began_s
                pause_s = max(_NOBODY_TO_GO_PAUSE_S, _PAUSE_PER_EFFORT * took_s)
                world.together.rest(_as_preemptor(unit), now_s + pause_s)
                continue
            self._metrics.preemptions.labels("seated").inc()
            log.info("%s: %d others are to go for it", unit[0].key, len(proposal.victims))
            self._seat(proposal.seats)

    def settle(self) -> None:
        """Do whatever is next for every seat that is kept."""
        world, now_s = self._world, self._clock.monotonic_s()
        if not world.together.seated or now_s < self._settles_at_s:
            return
        self._guarded(lambda: self._settle(now_s))
        self._settles_at_s = self._after_work(now_s)

    def _settle(self, now_s: float) -> None:
        world = self._world
        apart = unlisted(world)  # nobody else with claims is planned meanwhile
        found = seat_standings(world, self._budgets.of, now_s, may_break=self._may_break, apart=apart)
        keep_devices(world, found)
        proofs = Proofs(world, world.together.going(now_s), found)
        began_s = self._clock.monotonic_s()
        for step in self._in_turn(world.together.steps(found, {*world.away, *apart}, now_s)):
            seen_to_s = self._clock.monotonic_s()
            if seen_to_s - began_s >= _LONGEST_LOOK_S:
                break  # the others have their turn next time
            self._seen_to_s[step.pods[0].uid] = seen_to_s
            match step.step:
                case Step.PIN if (pod := unwelcome(world, step.pods)) is not None:
                    self._shut_out(step, pod)
                case Step.PIN:
                    self._pin(
                        [(pod, replace(pod.seat, choices=found[pod.uid].choices)) for pod in step.pods if pod.seat]
                    )
                case Step.GIVE_UP:
                    self._give_up(step)
                case Step.EVICT if self._preempts and self._budgets.is_known:
                    self._have_go(step, proofs, now_s)
                case _:
                    pass

    def _in_turn(self, steps: Iterable[GroupStep]) -> list[GroupStep]:
        """Return the steps, those first whose groups have waited the longest to be seen to."""
        by_first = {step.pods[0].uid: step for step in steps}
        self._seen_to_s = {uid: at_s for uid, at_s in self._seen_to_s.items() if uid in by_first}
        return sorted(by_first.values(), key=lambda step: self._seen_to_s.get(step.pods[0].uid, float("-inf")))

    def _have_go(self, step: GroupStep, proofs: Proofs, now_s: float) -> None:
        """Ask those to go who are due, if the seats of the group hold without all who are to go for it."""
        together = self._world.together
        violations = proofs.unproven_step(step.pods)
        self._note(violations, "nobody goes for a seat")
        if violations:
            why = f"the seat would not hold: {violations[0].rule}"
            self._give_up(replace(step, step=Step.GIVE_UP, detail=why, pause_s=_NOBODY_TO_GO_PAUSE_S))
            return
        together.begins(step.victims)
        for victim, preemptor in step.victims:
            if not together.may_ask(victim.uid, now_s):
                continue  # with its gang, for another seat
            together.asked(victim.uid, now_s)
            self._start(self._evictor.ask(victim, preemptor))

    def _pin(self, berths: Sequence[tuple[Pod, Berth]]) -> None:
        placements = tuple(Placement(pod_uid=pod.uid, berth=berth) for pod, berth in berths)
        violations = self._world.desk.violations(Plan(placements=placements), [pod for pod, _ in berths])
        self._note(violations, "a seat was not used")
        if violations and len(berths) == 1:
            return  # it is settled anew
        if violations:
            why = "its resource claims have not the devices any more with which it was planned"
            self._give_up(GroupStep(step=Step.GIVE_UP, pods=tuple(pod for pod, _ in berths), detail=why))
            return
        for pod, berth in berths:
            self._world.depart(pod, berth)
        if len(berths) > 1 and any(berth.choices for _, berth in berths):
            self._start(self._allot_and_pin(berths))
            return
        for pod, berth in berths:
            self._start(self._carrier.carry(pod, berth))

    async def _allot_and_pin(self, berths: Sequence[tuple[Pod, Berth]]) -> None:
        """Have the claims of a gang allocated for which others went, all of them or none, then pin its pods."""
        outcome, detail = await self._carrier.allot_unit(berths)
        if outcome is Outcome.DONE:
            await asyncio.gather(*(self._carrier.carry(pod, replace(berth, choices=())) for pod, berth in berths))
            return
        log.info("gang of %s did not get its devices: %s (%s)", berths[0][0].key, outcome.value, detail)
        await self._clock.sleep(FIRST_PAUSE_S)
        for pod, _ in berths:
            self._world.again(pod.uid)  # its seat is settled anew
        self._wake()

    def _shut_out(self, step: GroupStep, pod: Pod) -> None:
        """Wait while others leave whom a rule may be about; else take seats back that a rule forbids by now."""
        if pod.seat is None or is_left_by_others(self._world, pod.seat.node):
            return
        why = f"rules between pods keep {pod.name} from {pod.seat.node} by now"
        if (key := key_of(pod)) is not None:
            self._world.together.rest(key, self._clock.monotonic_s() + _NOBODY_TO_GO_PAUSE_S)
        self._give_up(GroupStep(step=Step.GIVE_UP, pods=step.pods, detail=why, pause_s=_NOBODY_TO_GO_PAUSE_S))

    # -- seats -------------------------------------------------------------------------------------------------

    def _seat_unit(self, seats: Sequence[tuple[Pod, Berth]]) -> None:
        """Keep seats for a gang's unit, with the devices that were chosen for its resource claims."""
        if not any(pod.resource_claims for pod, _ in seats):
            self._seat(seats)
            return
        for pod, berth in seats:
            self._world.keep_seat(pod, berth)
            self._world.desk.assume(pod.uid, berth.choices)  # whoever shares the claim goes where its devices are
        self._start(self._allot_and_seat(seats))

    async def _allot_and_seat(self, seats: Sequence[tuple[Pod, Berth]]) -> None:
        """Have a unit's claims allocated, then write its seats; where that fails, plan all of them again."""
        world = self._world
        outcome, detail = await self._carrier.allot_unit(seats)
        first = seats[0][0]
        key: Key = (first.namespace, first.gang)
        if outcome is Outcome.DONE:
            self._tries.pop(key, None)
            await self._write_seats([(pod, replace(berth, choices=())) for pod, berth in seats])
            return
        log.info("gang of %s did not get its devices: %s (%s)", first.key, outcome.value, detail)
        self._tries[key] += 1
        for gone in [one for one in self._tries if one != key and not world.together.roll.members(one)]:
            del self._tries[gone]
        world.together.rest(key, self._clock.monotonic_s() + backoff_s(FIRST_PAUSE_S, self._tries[key]))
        for pod, _ in seats:
            world.again(pod.uid)
        self._wake()

    def _seat(self, seats: Sequence[tuple[Pod, Berth]]) -> None:
        for pod, berth in seats:
            self._world.keep_seat(pod, berth)
        self._start(self._write_seats([(pod, replace(berth, choices=())) for pod, berth in seats]))

    async def _write_seats(self, seats: Sequence[tuple[Pod, Berth]]) -> None:
        """Write the seats of a unit down; where one cannot be, take back the others: no partial hold."""
        written = await asyncio.gather(*(self._write_seat(pod, berth) for pod, berth in seats))
        if all(written):
            for pod, berth in seats:
                self._world.seat_written(pod.uid, berth)
            self._wake()
            return
        self._metrics.seats_given_up.inc()
        key = key_of(seats[0][0])
        if key is not None:
            self._world.together.rest(key, self._clock.monotonic_s() + FIRST_PAUSE_S)
        for (pod, berth), is_written in zip(seats, written, strict=True):
            if is_written:
                self._world.seat_written(pod.uid, berth)
            else:
                self._world.again(pod.uid)
        self._wake()  # `settle` takes the seats of a torn gang back

    async def _write_seat(self, pod: Pod, berth: Berth) -> bool:
        """Write one seat; return whether the API has it now, once that is known."""
        outcome, detail = await guarded(lambda: self._writer.seat(pod, berth), pod.key, self._metrics)
        if outcome is Outcome.DONE:
            return True
        log.info("the seat of %s was not written: %s (%s)", pod.key, outcome.value, detail)
        fresh = await self._read(pod) if outcome is not Outcome.GONE else None
        if fresh is None:
            return False
        if fresh.uid in self._world.pods:
            self._world.pods[fresh.uid] = fresh
        return fresh.seat == berth

    async def _read(self, pod: Pod) -> Pod | None:
        tries = 0
        while True:
            found, fresh = await self._writer.read(pod)
            if found is not Outcome.FAILED:
                return fresh
            tries += 1
            await self._clock.sleep(backoff_s(FIRST_PAUSE_S, tries))

    def _give_up(self, step: GroupStep) -> None:
        self._metrics.seats_given_up.inc()
        self._world.together.rest(_as_preemptor(step.pods), self._clock.monotonic_s() + step.pause_s)
        log.info("seats of %s and %d others are given up: %s", step.pods[0].key, len(step.pods) - 1, step.detail)
        for pod in step.pods:
            if pod.seat is not None:
                self._world.keep_seat(pod, pod.seat)
                self._start(self._take_back(pod))

    async def _take_back(self, pod: Pod) -> None:
        tries = 0
        while True:
            outcome, detail = await guarded(partial(self._writer.unseat, pod), pod.key, self._metrics)
            if outcome is Outcome.DONE:
                break
            fresh = await self._read(pod)
            if fresh is None or fresh.seat is None:
                break
            pod, tries = fresh, tries + 1
            log.info("the seat of %s was not taken back: %s (%s)", pod.key, outcome.value, detail)
            await self._clock.sleep(backoff_s(FIRST_PAUSE_S, tries))
        self._world.seat_written(pod.uid, None)
        self._wake()


def _as_preemptor(unit: Sequence[Pod]) -> object:
    """Return the name under which a unit rests from preemption."""
    return unit[0].uid if not unit[0].gang else ("preempt", key_of(unit[0]))
