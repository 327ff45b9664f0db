"""Tells people and other controllers: status, annotations and events, no more often than is worth a write."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from fleet import labels
from fleet.clock import Clock
from fleet.errors import ApiError, Invalid, NotFound, NotLeading
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.events import EventRecorder, Subject
from scaler.controller.conditions import Picture, conditions_of
from scaler.controller.desk import Desk
from scaler.controller.due import Told, is_due, told
from scaler.controller.endpoint import Endpoint
from scaler.controller.facts import Change
from scaler.controller.status import annotations_of, kept_text, status_of
from scaler.controller.world import Autoscaler, Key, World

log = logging.getLogger(__name__)

_AT_ONCE, _RATE_PER_S, _BURST = 4, 30.0, 60.0
_CALL_S = 5.0
_FORECAST_KEPT_S = 3600.0
_encode = msgspec.json.encode

Look = Callable[[], Picture | None]


class Teller:
    """Writes what is told of autoscalers, the newest per autoscaler."""

    def __init__(self, client: Client, recorder: EventRecorder, world: World, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._world = world
        self._clock = clock
        self._statuses: Desk[Key] = Desk(clock, at_once=_AT_ONCE, rate_per_s=_RATE_PER_S, burst=_BURST)
        self._events: Desk[tuple[Key, str]] = Desk(clock, at_once=2, rate_per_s=_RATE_PER_S, burst=_BURST)
        self._told: dict[Key, Told] = {}
        self._broken: dict[Key, frozenset[tuple[str, str]]] = {}
        self._forecasts: dict[Key, tuple[float, str]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        await self._statuses.run()

    async def run_events(self) -> None:
        """Say events until cancelled; apart from the statuses, which are worth more."""
        await self._events.run()

    def consider(self, key: Key, look: Look) -> None:
        """Write the status if it is worth it now; `look` is asked again when the turn comes."""
        if key in self._statuses:
            return
        picture = look()
        if picture is not None and is_due(self._told.get(key), picture, self._clock.monotonic_s()):
            self._statuses.put(key, lambda: self._tell(key, look))

    def changed(self, endpoint: Endpoint, change: Change) -> None:
        """Say that a count was set."""
        autoscaler = self._world.autoscalers.get(endpoint.key)
        if autoscaler is not None:
            reason = "ScaledUp" if change.after > change.before else "ScaledDown"
            note = f"{endpoint.spec.target}: {change.before} -> {change.after} ({change.reason}): {change.text}"
            self._say(autoscaler, reason, note, is_warning=False)

    def forget(self, key: Key) -> None:
        """Tell nothing more of an autoscaler that is gone."""
        self._statuses.drop(key)
        self._told.pop(key, None)
        self._broken.pop(key, None)
        self._forecasts.pop(key, None)

    async def _tell(self, key: Key, look: Look) -> None:
        picture = look()
        if picture is None:
            return
        autoscaler, endpoint = picture.autoscaler, picture.endpoint
        now_s, wall_s = self._clock.monotonic_s(), self._clock.now_s()
        status = status_of(picture, now_s=now_s, wall_s=wall_s, forecast=self._forecast(endpoint, now_s))
        body = [
            {"op": "test", "path": "/metadata/uid", "value": autoscaler.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            path = paths.autoscalers(key.namespace, key.name, "status")
            await self._client.json_patch(path, _encode(body), timeout_s=_CALL_S)
            if endpoint is not None:
                await self._annotate(autoscaler, endpoint)
        except (NotFound, Invalid) as error:
            log.info("status of %s not written: %s", key, error)
        except NotLeading:
            return
        except ApiError as error:
            log.warning("status of %s not written: %s", key, error)
            return
        self._told[key] = told(picture, now_s)
        self._warn(picture)

    async def _annotate(self, autoscaler: Autoscaler, endpoint: Endpoint) -> None:
        wanted = annotations_of(endpoint)
        if all(autoscaler.annotations.get(name) == value for name, value in wanted.items()):
            return
        body = {"metadata": {"uid": autoscaler.uid, "annotations": wanted}}
        path = paths.autoscalers(autoscaler.key.namespace, autoscaler.key.name)
        await self._client.merge_patch(path, _encode(body), timeout_s=_CALL_S)

    def _forecast(self, endpoint: Endpoint | None, now_s: float) -> str:
        if endpoint is None:
            return ""
        at_s, text = self._forecasts.get(endpoint.key, (float("-inf"), ""))
        if now_s - at_s >= _FORECAST_KEPT_S:
            text = kept_text(endpoint)
            self._forecasts[endpoint.key] = (now_s, text)
        return text

    def _warn(self, picture: Picture) -> None:
        """Say once of each condition that is broken since the last status."""
        key = picture.autoscaler.key
        broken = {(one.kind, one.reason): one for one in conditions_of(picture)[1:] if one.holds is False}
        before = self._broken.get(key, frozenset())
        for what, condition in broken.items():
            if what not in before:
                self._say(picture.autoscaler, condition.reason, condition.text, is_warning=True)
        self._broken[key] = frozenset(broken)

    def _say(self, autoscaler: Autoscaler, reason: str, note: str, *, is_warning: bool) -> None:
        about = Subject(
            kind=labels.AUTOSCALER_KIND,
            namespace=autoscaler.key.namespace,
            name=autoscaler.key.name,
            uid=autoscaler.uid,
            api_version=f"{labels.DOMAIN}/{labels.AUTOSCALER_VERSION}",
        )
        self._events.put(
            (autoscaler.key, reason),
            lambda: self._recorder.record(about, reason=reason, note=note, is_warning=is_warning, action="Scaling"),
        )
