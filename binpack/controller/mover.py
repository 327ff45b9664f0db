"""Carries moves out: reads how each stands, does the next step, says how it ended. Decides nothing.

It runs even where moves are switched off: what an earlier process began is then undone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import msgspec

from binpack.controller.metrics import PlannerMetrics
from binpack.controller.moves import Moves, Open, is_over
from binpack.controller.workloads import Workloads
from binpack.controller.writer import Outcome, PodWriter
from binpack.relocation.record import Way, WayKind, format_way
from binpack.relocation.steps import Do, Stage, Step, Surge, next_step, surge_of
from fleet import labels
from fleet.berths import format_candidates
from fleet.clock import Clock
from fleet.errors import ApiError, Conflict, Invalid, NotFound, NotLeading
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.events import EventRecorder
from fleet.kube.patches import notes_patch
from fleet.loop import Rhythm, every
from fleet.pod import Berth, Pod

log = logging.getLogger(__name__)

_PERIOD_S = 1.0
_CALL_S = 5.0
_UNDOING = frozenset(
    {
        Stage.WITHDRAWN,
        Stage.OVERRULED,
        Stage.OWNER_CHANGED,
        Stage.SUCCESSOR_MISSING,
        Stage.SUCCESSOR_LATE,
        Stage.OTHERS_LATE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A move to begin.

    Attributes:
        why: For people: what it is for, with the numbers.
    """

    pod: Pod
    target: Berth
    way: Way
    why: str


class Mover:
    """Looks at every open move each second while this planner leads."""

    def __init__(
        self,
        moves: Moves,
        client: Client,
        writer: PodWriter,
        workloads: Workloads,
        recorder: EventRecorder,
        clock: Clock,
        metrics: PlannerMetrics,
        *,
        may_move: bool,
    ) -> None:
        self._moves = moves
        self._client = client
        self._writer = writer
        self._workloads = workloads
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._may_move = may_move

    async def run(self) -> None:
        """Look until cancelled."""

        def failed(_: Exception) -> None:
            self._metrics.faults.labels("move").inc()

        await every(Rhythm(period_s=_PERIOD_S, jitter_ratio=0.0), self.turn, self._clock, name="moves", failed=failed)

    async def turn(self) -> None:
        """Look at all open moves once."""
        opened = self._moves.open(self._clock.monotonic_s())
        self._metrics.moves_open.set(len(opened))
        for move in opened:
            try:
                await self._look(move)
            except NotLeading:
                return
            except ApiError as error:
                log.info("the move of %s: %s", move.witness.key, error)
            except Exception:
                # Broad on purpose: one move that we fail on must not hold up all the others.
                self._metrics.faults.labels("move").inc()
                log.exception("the move of %s could not be dealt with", move.witness.key)

    async def begin(self, order: Order) -> bool:
        """Mark a pod, and with that begin its move; return False where that could not be written."""
        target = replace(order.target, choices=())  # its successor's claims are given devices once they are made
        marked = replace(order.pod, moving_to=target, moving_by=format_way(order.way))
        self._moves.begin(marked, self._clock.monotonic_s())
        notes = {labels.MOVING_TO: format_candidates([target]), labels.MOVING_BY: marked.moving_by}
        body = notes_patch(order.pod, notes, absent=[labels.MOVING_TO])
        try:
            await self._client.json_patch(paths.pod(order.pod.namespace, order.pod.name), body, timeout_s=_CALL_S)
        except ApiError as error:
            if error.status:  # where the answer was lost the mark may stand: its seat is kept until that is known
                self._moves.not_begun(order.pod.uid)
            log.info("the move of %s was not begun: %s", order.pod.key, error)
            return False
        note = f"moves to {order.target.node} ({order.why}), by {order.way.kind.value}"
        log.info("%s %s", order.pod.key, note)
        self._metrics.moves.labels("Begun").inc()
        await self._recorder.record(order.pod, reason="Moving", note=note, is_warning=False, action="Moving")
        return True

    # -- one move ------------------------------------------------------------------------------------------------

    async def _look(self, move: Open) -> None:
        now_s = self._clock.monotonic_s()
        if move.way is None:
            await self._do(move, None, Step(do=Do.CLEAR, stage=Stage.UNREADABLE))
            return
        if self._moves.is_cleared(move):
            await self._do(move, move.way, Step(do=Do.FINISH, stage=Stage.OVERRULED))
            return
        surge = Surge.ABSENT if move.is_out_of_turn else await self._surge(move, move.way)
        if surge is Surge.PRESENT and move.old is not None:  # whoever ordered it: an earlier process, or another move
            self._moves.surged(move.old)
        is_stale = await self._is_stale(move, move.way)
        facts = self._moves.facts(move, move.way, surge, now_s, is_wanted=self._may_move, is_stale=is_stale)
        step = next_step(facts)
        if self._moves.note(move, step, now_s):
            log.info("the move of %s: %s, %s", move.witness.key, step.stage.value, step.do.value)
        if step.stage in _UNDOING:
            step = replace(step, stage=self._moves.undo(move.uid, step.stage))
        await self._do(move, move.way, step)

    async def _surge(self, move: Open, way: Way) -> Surge:
        namespace, count, is_listed = move.witness.namespace, None, None
        try:
            if way.kind is WayKind.SCALE:
                count = await self._workloads.count(namespace, way.name)
                if count is None:
                    return Surge.OVERRULED  # there is no such Deployment any more
            elif way.kind is WayKind.AUTOSCALER:
                is_listed = move.uid in await self._workloads.listed(namespace, way.name)
        except ApiError as error:
            log.info("the count of %s could not be read: %s", move.witness.key, error)
        return surge_of(way, count=count, is_listed=is_listed)

    async def _is_stale(self, move: Open, way: Way) -> bool:
        """Return True if a roll-out began: asked only while there is something to undo."""
        if way.kind is WayKind.EVICTION or move.old is None or (move.successor and move.successor.is_ready):
            return False
        try:
            return await self._workloads.is_of_old_template(move.old)
        except ApiError:
            return False

    async def _do(self, move: Open, way: Way | None, step: Step) -> None:
        try:
            match step.do:
                case Do.SURGE if way is not None and move.old is not None:
                    self._moves.surged(move.old)
                    await self._workloads.surge(move.old, way)
                case Do.SETTLE if way is not None:
                    await self._workloads.settle(move.witness.namespace, move.uid, way)
                case Do.MARK if move.old is not None:
                    await self._mark(move.old)
                case Do.EVICT if move.old is not None:
                    await self._evict(move.old)
                case Do.CLEAR | Do.FINISH:
                    await self._unmark(move)
                case _:
                    pass
        except (Conflict, Invalid) as error:
            log.info("the move of %s: somebody was faster: %s", move.witness.key, error)
            return
        if is_over(step):
            await self._over(move, step)

    async def _mark(self, old: Pod) -> None:
        body = notes_patch(old, {labels.POD_DELETION_COST: labels.LEAVES_FIRST})
        await self._client.json_patch(paths.pod(old.namespace, old.name), body, timeout_s=_CALL_S)

    async def _evict(self, old: Pod) -> None:
        # Before the call: the watch may show that the pod is gone while its answer is still on the way.
        self._moves.expect(old.uid)
        self._moves.goes_first(old, self._clock.monotonic_s())
        outcome, detail = await self._writer.evict(old)
        if outcome is not Outcome.DONE:
            log.info("%s does not go yet: %s (%s)", old.key, outcome.value, detail)

    async def _unmark(self, move: Open) -> None:
        """Take the record off both: the old pod's first, so that a successor without one is never taken for none."""
        if move.old is not None and not move.old.is_terminating:
            names = [labels.MOVING_TO, labels.MOVING_BY]
            if move.old.deletion_cost == labels.LEAVES_FIRST:
                names.append(labels.POD_DELETION_COST)
            await self._take_off(move.old, names)
        if move.successor is not None:
            await self._take_off(move.successor, [labels.MOVING_BY])

    async def _take_off(self, pod: Pod, names: list[str]) -> None:
        body = msgspec.json.encode({"metadata": {"uid": pod.uid, "annotations": dict.fromkeys(names)}})
        try:
            await self._client.merge_patch(paths.pod(pod.namespace, pod.name), body, timeout_s=_CALL_S)
        except NotFound:
            return

    async def _over(self, move: Open, step: Step) -> None:
        self._moves.ended(move.uid, self._clock.monotonic_s())
        self._metrics.moves.labels(step.stage.value).inc()
        if step.stage is Stage.MOVED and move.successor is not None:
            note = f"serves on {move.successor.node_name} in place of the replica that moved"
            await self._recorder.record(move.successor, reason="Moved", note=note, is_warning=False, action="Moving")
            return
        note = f"its move is over: {_TEXTS.get(step.stage, step.stage.value)}"
        log.info("%s: %s", move.witness.key, note)
        is_warning = step.stage is not Stage.WITHDRAWN
        await self._recorder.record(
            move.witness, reason=step.stage.value, note=note, is_warning=is_warning, action="Moving"
        )


_TEXTS = {
    Stage.OTHER_WENT: "its controller dropped another replica; this one stays, and the count is as it was",
    Stage.WITHDRAWN: "moves were switched off",
    Stage.OVERRULED: "somebody else set the count of its workload",
    Stage.OWNER_CHANGED: "a roll-out began",
    Stage.SUCCESSOR_MISSING: "no successor took the berth that was kept for it",
    Stage.SUCCESSOR_LATE: "its successor did not become Ready in time",
    Stage.OTHERS_LATE: "other replicas did not become Ready in time",
    Stage.NOT_EVICTED: "its disruption budget did not let it go in time",
    Stage.UNREADABLE: "nobody can tell from its annotations what was begun",
}
