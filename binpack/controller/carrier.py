"""Carries decisions to the API and goes on from whatever becomes of each write: confirmed, changed, gone or lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from binpack.controller.allot_unit import allot_unit
from binpack.controller.allotter import Allotter
from binpack.controller.claims import Claims
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.repair import Repair
from binpack.controller.speaker import Speaker, Word
from binpack.controller.triage import Handling, handling
from binpack.controller.world import World
from binpack.controller.writer import NO_AID, Aid, Outcome, PodWriter, guarded
from fleet import labels
from fleet.clock import Clock
from fleet.dra import ResourceClaim
from fleet.draw import Draw, format_draw
from fleet.errors import ApiError
from fleet.kube.claimer import Held
from fleet.kube.events import EventRecorder
from fleet.node import Node
from fleet.plan import Reason
from fleet.pod import Berth, Pod
from fleet.pool import tolerations_for

log = logging.getLogger(__name__)

CANDIDATES = 16
LONGEST_PAUSE_S = 30.0
FIRST_PAUSE_S = 1.0
# A failed patch is tried again: at once where the pod had merely changed, else after a pause that doubles.
_CHANGED_PAUSE_S = 0.1
_PATCHES_IN_FLIGHT = 32
_DELETIONS_IN_FLIGHT = 4


class Carrier:
    """Writes what was decided, one coroutine per pod; never loses a pod, whatever the API answers."""

    def __init__(
        self,
        world: World,
        writer: PodWriter,
        speaker: Speaker,
        recorder: EventRecorder,
        clock: Clock,
        metrics: PlannerMetrics,
        wake: Callable[[], None],
        claims: Claims | None = None,
        allotter: Allotter | None = None,
    ) -> None:
        self._world = world
        self._claims = claims
        self._allotter = allotter
        self._writer = writer
        self._speaker = speaker
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._wake = wake
        self._patches = asyncio.Semaphore(_PATCHES_IN_FLIGHT)
        self._deletions = asyncio.Semaphore(_DELETIONS_IN_FLIGHT)

    async def carry(self, pod: Pod, berth: Berth) -> bool:
        """Write a departed pod's pin or candidates; return True if the API has taken them."""
        if pod.resource_claims and not await self._allotted(pod, berth):
            return False
        return await (self._steer if handling(pod) is Handling.STEER else self._pin)(pod, berth)

    async def _allotted(self, pod: Pod, berth: Berth) -> bool:
        """Write the devices chosen for the pod's claims; return True if it may go there, else it is tried again."""
        if self._allotter is None:
            return True
        async with self._patches:
            outcome, detail = await guarded(partial(self._allotter.allot, pod, berth), pod.key, self._metrics)
        self._metrics.allotments.labels(outcome.value).inc()
        if outcome is Outcome.DONE and self._world.ledger.node(berth.node) is None:
            outcome, detail = Outcome.CHANGED, f"node {berth.node} went meanwhile"
        if outcome is Outcome.DONE:
            return True
        log.info("%s did not get its devices: %s (%s)", pod.key, outcome.value, detail)
        tries = self._world.rest(pod.uid, is_written=False)
        self._wake()
        await self._clock.sleep(backoff_s(_CHANGED_PAUSE_S if outcome is Outcome.CHANGED else FIRST_PAUSE_S, tries))
        self._world.again(pod.uid)
        self._wake()
        return False

    async def allot_unit(self, seats: Sequence[tuple[Pod, Berth]]) -> tuple[Outcome, str]:
        """Write the devices chosen for the claims of all these pods, or of none; DONE = all of them have theirs."""
        if self._allotter is None:
            return Outcome.DONE, ""
        about = f"{len(seats)} pods, of which the first is {seats[0][0].key},"
        allot = partial(allot_unit, self._allotter, self._world.desk, seats, self._patches)
        outcome, detail = await guarded(allot, about, self._metrics)
        self._metrics.allotments.labels(outcome.value).inc()
        return outcome, detail

    async def free(self, claim: ResourceClaim) -> None:
        """Take the devices of a claim back whose gated pods found no room beside them."""
        if self._allotter is not None:
            self._world.desk.releasing.add(claim.uid)
            outcome, detail = Outcome.FAILED, ""
            try:
                about = f"claim {claim.key}"
                outcome, detail = await guarded(partial(self._allotter.release, claim), about, self._metrics)
            finally:
                if outcome is not Outcome.DONE:
                    self._world.desk.releasing.discard(claim.uid)
            log.info("claim %s was given back: %s %s", claim.key, outcome.value, detail)
            self._wake()

    async def draw(self, node: Node, placed: Sequence[tuple[Pod, Berth]]) -> None:
        """Claim a warm node for departed pods, then write their pins: nobody goes there without a claim.

        Where the node is not to be had, the pods are planned again, and the node is left alone for a while.
        """
        held = await self._claimed(node, [pod.uid for pod, _ in placed])
        if held is None:
            self._metrics.draws.labels(node.pool, "lost").inc()
            self._world.shun(node.name)
            for pod, _ in placed:
                self._world.again(pod.uid)
            self._wake()
            return
        for pod, _ in placed:
            self._world.yard.note_hit(pod, node)
        await asyncio.gather(*(self.carry(pod, berth) for pod, berth in placed))
        if self._claims is not None and not any(self._goes_to(node.name, pod) for pod, _ in placed):
            await self._claims.give_back(held)
            self._world.yard.warm.end(node.name)

    async def _claimed(self, node: Node, uids: Sequence[str]) -> Held | None:
        if self._claims is None:
            return None
        try:
            return await self._claims.secure(node, self._world.yard.set_id_of(node), uids)
        except ApiError as error:
            log.warning("node %s of pool %s could not be claimed: %s", node.name, node.pool, error)
        except Exception:
            # Broad on purpose: the pods must come back into the queue, whatever went wrong.
            self._metrics.faults.labels("claim").inc()
            log.exception("claiming node %s failed", node.name)
        return None

    def _goes_to(self, name: str, pod: Pod) -> bool:
        berth = self._world.ledger.berth_of(pod.uid)
        return berth is not None and berth.node == name

    async def _pin(self, pod: Pod, berth: Berth) -> bool:
        draw = self._world.yard.draws.get(pod.uid)
        if not await self._write(pod, lambda: self._writer.pin(pod, berth, self._aid(pod, (berth,))), "pinned"):
            return False
        self._note_placed(pod, "pinned", draw)
        return True

    async def _steer(self, pod: Pod, berth: Berth) -> bool:
        """Write the candidates, the planned berth first."""

        async def write() -> tuple[Outcome, str]:
            self._world.refresh()
            # A pod with a seat has it alone: the others of its gang count on that, and others went for it.
            most = CANDIDATES if pod.seat is None else 0
            others = (option.berth for option in self._world.index.options(pod, most))
            candidates = (berth, *(other for other in others if other.node != berth.node))
            return await self._writer.steer(pod, candidates, self._aid(pod, candidates))

        draw = self._world.yard.draws.get(pod.uid)
        if not await self._write(pod, write, "steered"):
            return False
        self._note_placed(pod, "steered", draw)
        if pod.unmodelled:
            text = f"steered by candidates, never pinned: {', '.join(pod.unmodelled)} cannot be planned yet"
            self._speaker.say(Word(pod=pod, status=False, reason=Reason.UNMODELLED_CONSTRAINT.value, text=text))
        return True

    def _aid(self, pod: Pod, berths: Sequence[Berth]) -> Aid:
        """Return the tolerations that these berths take, and what is to be noted of the pod's draw."""
        states = (self._world.ledger.state(berth.node) for berth in berths)
        tolerations = dict.fromkeys(
            t for state in states if state is not None for t in tolerations_for(pod, state.node)
        )
        draw = self._world.yard.draws.get(pod.uid)
        notes = {labels.DRAW: format_draw(draw)} if draw is not None else {}
        if pod.moved_from:
            notes |= {labels.MOVED_FROM: pod.moved_from, labels.MOVING_BY: pod.moving_by}
        return Aid(tolerations=tuple(tolerations), notes=notes) if tolerations or notes else NO_AID

    def _note_placed(self, pod: Pod, how: str, draw: Draw | None) -> None:
        self._metrics.placed.labels(how).inc()
        if draw is not None:
            self._metrics.draws.labels(draw.pool, "hit" if draw.is_hit else "miss").inc()
        self._metrics.wait_s.observe(max(0.0, self._clock.now_s() - pod.created_at_s))

    async def _write(self, pod: Pod, write: Callable[[], Awaitable[tuple[Outcome, str]]], how: str) -> bool:
        """Write a departed pod's patch; return True if the API has taken it, else see to it that it is tried again."""
        async with self._patches:
            outcome, detail = await guarded(write, pod.key, self._metrics)
        self._metrics.patches.labels(outcome.value).inc()
        if outcome is Outcome.DONE:
            self._speaker.drop(pod.uid)
            self._world.arrived(pod.uid)
            return True
        log.info("%s was not %s: %s (%s)", pod.key, how, outcome.value, detail)
        if outcome is Outcome.GONE:
            self._world.ledger.forget(pod.uid)
            self._world.pod_gone(pod.uid)
        else:
            await self._recover(pod, outcome)
        self._wake()
        return False

    async def _recover(self, pod: Pod, outcome: Outcome) -> None:
        """Read a pod whose patch failed until it is known how it stands, and go on from there.

        A patch whose answer was lost may be written all the same: until the pod has been read its berth stays counted,
        so that nobody else is sent there.
        """
        world = self._world
        first_pause_s = _CHANGED_PAUSE_S if outcome is Outcome.CHANGED else FIRST_PAUSE_S
        tries = world.rest(pod.uid, is_written=outcome is Outcome.FAILED)
        self._wake()
        if outcome is not Outcome.CHANGED or tries > 1:
            await self._clock.sleep(backoff_s(first_pause_s, tries))
        while True:
            found, fresh = await self._writer.read(pod)
            if found is not Outcome.FAILED:
                break
            tries += 1
            await self._clock.sleep(backoff_s(FIRST_PAUSE_S, tries))
        if fresh is None:
            world.ledger.forget(pod.uid)
            world.pod_gone(pod.uid)
        elif handling(fresh) is Handling.NONE:
            # The watch will say where it is; until then what it shows may be older than what was read.
            if pod.uid in world.away and (fresh.pinned_node or fresh.candidates):
                world.ledger.assume(pod, _recorded_berth(fresh))
            self._speaker.drop(pod.uid)
            world.arrived(pod.uid)
        else:
            world.read_again(fresh)

    async def hand_over(self, pod: Pod) -> None:
        """Let a node autoscaler see the pod: un-gate it un-pinned, and say so."""
        record = self._world.waiting.get(pod.uid)
        why = record.text if record else "no room"
        text, reason = f"{why}; handed over un-pinned, so that a node autoscaler can order a node", "HandedOver"
        if record is not None and record.reason is Reason.LEFT_TO_SCHEDULER:
            text, reason = why, record.reason.value
        if await self._write(pod, lambda: self._writer.ungate(pod), "handed over"):
            self._metrics.handed_over.inc()
            self._speaker.say(Word(pod=pod, status=True, reason=reason, text=text, is_warning=False))

    async def steer_anew(self, pod: Pod, candidates: Sequence[Berth]) -> None:
        """Give a steered pod other candidates."""
        async with self._patches:
            outcome, detail = await self._writer.renew_candidates(pod, candidates)
        self._metrics.patches.labels(outcome.value).inc()
        if outcome is not Outcome.DONE:
            log.info("%s was not steered anew: %s (%s)", pod.key, outcome.value, detail)
            if outcome is not Outcome.FAILED:  # else it may be written all the same
                self._world.ledger.forget(pod.uid)

    async def repair(self, repair: Repair) -> None:
        """Delete a pinned pod that can never start, and tell its owner's people why."""
        pod = repair.pod
        async with self._deletions:
            outcome, detail = await self._writer.delete(repair)
        log.warning(
            "%s pinned to %s is given up (%s): %s %s",
            pod.key,
            pod.pinned_node,
            repair.reason.value,
            outcome.value,
            detail,
        )
        if outcome is Outcome.DONE:
            self._metrics.repairs.labels(repair.reason.value).inc()
            note = (
                f"pinned to {pod.pinned_node}, where it can never start; deleted so that its controller makes a new one"
            )
            await self._recorder.record(pod, reason=repair.reason.value, note=note, is_warning=True)


def backoff_s(first_s: float, tries: int) -> float:
    """Return the pause before try number `tries` + 1."""
    stretched_s: float = min(LONGEST_PAUSE_S, first_s * 2.0 ** min(tries - 1, 16))
    return stretched_s


def _recorded_berth(pod: Pod) -> Berth:
    if pod.pinned_node:
        return Berth(node=pod.pinned_node, devices=pod.devices or ())
    return pod.candidates[0]
