"""Turns what the planner's world has to tell into words: who waits and why, who no longer does, what cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from binpack.controller.metrics import PlannerMetrics
from binpack.controller.speaker import Speaker, Word
from binpack.controller.triage import can_be_handed_over
from binpack.controller.waiting import HANDED_OVER
from binpack.controller.world import World
from fleet import labels
from fleet.clock import Clock
from fleet.draw import format_draw
from fleet.kube.events import EventRecorder

log = logging.getLogger(__name__)


class Herald:
    """Empties the world's lists of what is to be said: conditions through the speaker, events of nodes by itself."""

    def __init__(
        self,
        world: World,
        speaker: Speaker,
        recorder: EventRecorder,
        clock: Clock,
        metrics: PlannerMetrics,
        start: Callable[[Awaitable[object]], None],
    ) -> None:
        self._world = world
        self._speaker = speaker
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._start = start

    def tell(self) -> None:
        """Say all that is new."""
        self._of_waiting()
        world = self._world
        to_unsay, world.unbound.to_unsay = world.unbound.to_unsay, {}
        for pod in to_unsay.values():
            self._speaker.say(Word(pod=pod, status=False, reason="Placed", text="has a berth"))
        malformed, world.malformed = world.malformed, []
        for pod in malformed:
            self._metrics.malformed.labels("pod").inc()
            log.warning("pod %s cannot be read: %s", pod.key, "; ".join(pod.problems))
        to_warn, world.nodes.to_warn = world.nodes.to_warn, {}
        for name, warnings in to_warn.items():
            self._warn(name, warnings)

    def _of_waiting(self) -> None:
        world = self._world
        to_say, world.to_say = world.to_say, {}
        for uid in to_say:
            pod, record = world.pods.get(uid), world.waiting.get(uid)
            if pod is None or record is None:
                continue
            text = record.text
            if record.reason in HANDED_OVER and not can_be_handed_over(pod):
                text += "; shares and chosen devices cannot be handed over to a node autoscaler"
            world.waiting.said(uid, self._clock.monotonic_s())
            draw = world.yard.draws.get(uid)
            notes = {labels.DRAW: format_draw(draw)} if draw is not None else {}
            self._speaker.say(
                Word(pod=pod, status=True, reason=record.reason.value, text=text, is_warning=True, notes=notes)
            )

    def _warn(self, name: str, warnings: Sequence[str]) -> None:
        """Say of a node what people should look at: devices that may not be given, records that cannot be true."""
        self._metrics.malformed.labels("node").inc(len(warnings))
        log.warning("node %s: %s", name, "; ".join(warnings))
        state = self._world.node(name)
        if state is not None:
            reason = "DevicesClosed" if state.blocked else "DevicesDoubtful"
            note = "; ".join(warnings)
            self._start(self._recorder.record(state.node, reason=reason, note=note, is_warning=True))
