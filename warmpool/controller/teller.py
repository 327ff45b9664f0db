"""Tells people and other controllers of pools: status and events, no more often than is worth a write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from fleet import labels
from fleet.clock import Clock
from fleet.errors import ApiError, Invalid, NotFound, NotLeading
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.events import EventRecorder, Subject
from warmpool.controller.conditions import Picture, conditions_of
from warmpool.controller.keeper import API_VERSION
from warmpool.controller.status import counts_of, status_of
from warmpool.controller.world import Pool, World
from warmpool.values import Offer, PoolNode

log = logging.getLogger(__name__)

_LEAST_S = 1.0  # between two statuses of one pool
_MOST_S = 60.0  # after which a status is written whose numbers changed a little
_BEAT_S = 0.25
_AT_ONCE = 4
_MOST_EVENTS = 1000
_CALL_S = 5.0
_encode = msgspec.json.encode

Look = Callable[[], Picture | None]


@dataclass(frozen=True, slots=True)
class _Told:
    at_s: float
    core: Any
    status: Any


class Teller:
    """Writes the newest per pool."""

    def __init__(self, client: Client, recorder: EventRecorder, world: World, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._world = world
        self._clock = clock
        self._looks: dict[str, Look] = {}
        self._told: dict[str, _Told] = {}
        self._broken: dict[str, frozenset[tuple[str, str]]] = {}
        self._events: asyncio.Queue[tuple[Subject, str, str, bool]] = asyncio.Queue(_MOST_EVENTS)

    async def run(self) -> None:
        """Write statuses until cancelled."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str, look: Look) -> None:
            async with gate:
                await self._tell(name, look)

        while True:
            now_s = self._clock.monotonic_s()
            due = [name for name in self._looks if now_s - self._at_s(name) >= _LEAST_S]
            await asyncio.gather(*(one(name, self._looks.pop(name)) for name in due))
            await self._clock.sleep(_BEAT_S)

    async def run_events(self) -> None:
        """Say events until cancelled; apart from the statuses, which are worth more."""
        while True:
            about, reason, note, is_warning = await self._events.get()
            await self._recorder.record(about, reason=reason, note=note, is_warning=is_warning, action="Warming")

    def consider(self, name: str, look: Look) -> None:
        """Write the status if it is worth it; `look` is asked when the turn comes."""
        self._looks[name] = look

    def ordered(self, name: str, count: int, offer: Offer, now_s: float) -> None:
        """Say that nodes were ordered."""
        pool = self._world.pools.get(name)
        if pool is not None:
            self._say(pool, "Ordered", f"{count} nodes ordered as {offer}", is_warning=False)

    def failed(self, pool: Pool, node: PoolNode) -> None:
        """Say that a node was given up."""
        self._say(pool, node.why.value, f"node {node.name} given up: {node.detail}", is_warning=True)

    def past(self, pool: Pool, text: str, *, is_warning: bool) -> None:
        """Say what became of asking for the time before the pool."""
        self._say(pool, "HistoryUnread" if is_warning else "HistoryRead", text, is_warning=is_warning)

    def forget(self, name: str) -> None:
        """Tell nothing more of a pool that is gone."""
        self._looks.pop(name, None)
        self._told.pop(name, None)
        self._broken.pop(name, None)

    def _at_s(self, name: str) -> float:
        told = self._told.get(name)
        return told.at_s if told is not None else float("-inf")

    async def _tell(self, name: str, look: Look) -> None:
        picture = look()
        if picture is None:
            return
        now_s = self._clock.monotonic_s()
        core = core_of(picture)
        told = self._told.get(name)
        if told is not None and told.core == core and now_s - told.at_s < _MOST_S:
            return
        sized_s = picture.book.sized_at_s if picture.book is not None else now_s
        wall_s = self._clock.now_s()
        status = status_of(picture, wall_s=wall_s, sized_wall_s=wall_s - min(3600.0, max(0.0, now_s - sized_s)))
        if told is None or told.status != status:
            body = [
                {"op": "test", "path": "/metadata/uid", "value": picture.pool.uid},
                {"op": "add", "path": "/status", "value": status},
            ]
            path = paths.custom(API_VERSION, labels.POOL_PLURAL, name=name, subresource="status")
            try:
                await self._client.json_patch(path, _encode(body), timeout_s=_CALL_S)
            except NotLeading:
                return
            except (NotFound, Invalid) as error:
                log.info("status of pool %s not written: %s", name, error)
            except ApiError as error:
                log.warning("status of pool %s not written: %s", name, error)
                return
        self._told[name] = _Told(now_s, core, status)
        self._warn(picture)

    def _warn(self, picture: Picture) -> None:
        """Say once of each condition that is broken since the last status."""
        name = picture.pool.name
        broken = {(one.kind, one.reason): one for one in conditions_of(picture)[1:] if one.holds is False}
        before = self._broken.get(name, frozenset())
        for what, condition in broken.items():
            if what not in before:
                self._say(picture.pool, condition.reason, condition.text, is_warning=True)
        self._broken[name] = frozenset(broken)

    def _say(self, pool: Pool, reason: str, note: str, *, is_warning: bool) -> None:
        about = Subject(kind=labels.POOL_KIND, namespace="", name=pool.name, uid=pool.uid, api_version=API_VERSION)
        try:
            self._events.put_nowait((about, reason, note, is_warning))
        except asyncio.QueueFull:
            log.debug("an event of pool %s was dropped: %s", pool.name, reason)


def core_of(picture: Picture) -> Any:
    """Return what of a picture is worth a status at once: counts, conditions and the reason."""
    book = picture.book
    conditions = tuple((one.kind, one.holds, one.reason) for one in conditions_of(picture))
    if book is None:
        return picture.pool.generation, conditions
    reason = book.size.reason if book.size else ""
    counts = tuple(counts_of(book).items())
    draws = book.ledger.sums(0.0, 10**9)
    return picture.pool.generation, conditions, counts, reason, draws.draws, draws.misses
