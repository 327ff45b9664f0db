"""Tells people about pods: conditions and events, a few at a time, the newest word per pod, never two at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from binpack.controller.writer import Outcome, PodWriter
from fleet.clock import Clock
from fleet.condition import stamp
from fleet.kube.events import EventRecorder
from fleet.pod import Pod

log = logging.getLogger(__name__)

_AT_ONCE = 4
_MOST_TRIES = 6
_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What is to be said of one pod.

    Attributes:
        status: The waiting condition's status.
        reason: Its reason, and the event's.
        text: Its message, and the event's.
        is_warning: Whether the event is a warning; None = no event, the condition alone.
        notes: Annotations to set with the condition.
    """

    pod: Pod
    status: bool
    reason: str
    text: str
    is_warning: bool | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    tries: int = 0


class Speaker:
    """Says words until cancelled. A newer word about a pod replaces one that was not said yet."""

    def __init__(self, writer: PodWriter, recorder: EventRecorder, clock: Clock) -> None:
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._words: dict[str, Word] = {}
        self._busy: dict[str, Word] = {}
        self._void: set[str] = set()
        self._resting: dict[str, Word] = {}
        self._group: asyncio.TaskGroup | None = None
        self._something = asyncio.Event()

    def __len__(self) -> int:
        return len(self._words) + len(self._busy) + len(self._resting)

    def say(self, word: Word) -> None:
        """Say this as soon as it is its turn."""
        self._resting.pop(word.pod.uid, None)
        self._words[word.pod.uid] = word
        self._something.set()

    def drop(self, uid: str) -> None:
        """Do not say any more that this pod waits; that it waits no longer is still said.

        The watch may show a pin before the answer to its patch is here, so the word that corrects an earlier one can
        be older than this call.
        """
        for words in (self._words, self._resting):
            word = words.get(uid)
            if word is not None and word.status:
                del words[uid]
        busy = self._busy.get(uid)
        if busy is not None and busy.status:
            self._void.add(uid)

    async def run(self) -> None:
        """Say words until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for _ in range(_AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            word = self._next()
            if word is None:
                self._something.clear()
                await self._something.wait()
                continue
            uid = word.pod.uid
            self._busy[uid] = word
            try:
                await self._utter(word)
            except Exception:
                # Broad on purpose: what cannot be said of one pod must not silence all the others.
                log.exception("nothing could be said of %s", word.pod.key)
            finally:
                del self._busy[uid]
                self._void.discard(uid)
                self._something.set()

    def _next(self) -> Word | None:
        uid = next((uid for uid in self._words if uid not in self._busy), None)
        return None if uid is None else self._words.pop(uid)

    async def _utter(self, word: Word) -> None:
        outcome, detail = await self._writer.say(
            word.pod,
            status=word.status,
            reason=word.reason,
            message=word.text,
            at=stamp(self._clock.now_s()),
            notes=word.notes,
        )
        if outcome in (Outcome.FAILED, Outcome.NOT_LEADING):
            self._say_later(word, detail)
        elif outcome is Outcome.DONE and word.is_warning is not None:
            await self._recorder.record(word.pod, reason=word.reason, note=word.text, is_warning=word.is_warning)

    def _say_later(self, word: Word, detail: str) -> None:
        """Try again after a pause, unless it is void by now or was tried often enough."""
        if word.tries + 1 >= _MOST_TRIES:
            log.warning("condition %s of %s could not be written: %s", word.reason, word.pod.key, detail)
        elif word.pod.uid not in self._void and self._group is not None:
            self._group.create_task(self._wait_and_say(replace(word, tries=word.tries + 1)))

    async def _wait_and_say(self, word: Word) -> None:
        uid = word.pod.uid
        self._resting[uid] = word
        await self._clock.sleep(min(_LONGEST_PAUSE_S, _PAUSE_S * 2 ** (word.tries - 1)))
        if self._resting.get(uid) is word:
            del self._resting[uid]
            self._words.setdefault(uid, word)
            self._something.set()
