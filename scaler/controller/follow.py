"""Workloads of kinds that are not watched: their count and selector, asked of their scale subresource."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from fleet.clock import Clock
from fleet.errors import ApiError, DecodeError, NotFound
from fleet.loop import Rhythm, every
from scaler.controller import paths
from scaler.controller.actuator import Actuator
from scaler.controller.pods import Workload
from scaler.controller.selector import selector_from
from scaler.controller.world import World
from scaler.resource import TargetRef

log = logging.getLogger(__name__)

_RHYTHM = Rhythm(period_s=5.0, jitter_ratio=0.1, longest_backoff_s=30.0)
_AT_ONCE = 4


class Follower:
    """Asks for the scale of each such workload every 5 s."""

    def __init__(self, world: World, actuator: Actuator, clock: Clock) -> None:
        self._world = world
        self._actuator = actuator
        self._clock = clock
        self._followed: set[Workload] = set()
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            await every(_RHYTHM, self.turn, self._clock, name="workloads of other kinds")
        finally:
            asking = tuple(self._asking.values())
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    async def turn(self) -> None:
        """Ask for all of them once; a kind whose server is still silent is asked when it is done."""
        wanted: dict[Workload, TargetRef] = {}
        for autoscaler in self._world.autoscalers.values():
            workload = autoscaler.workload
            if autoscaler.spec is not None and workload is not None and workload.kind not in paths.BUILT_IN:
                wanted[workload] = autoscaler.spec.target
        for workload in self._followed - wanted.keys():
            self._world.pods.select(workload, None)
            self._world.remove_workload(workload)
        self._followed = set(wanted)
        kinds: dict[tuple[str, str], dict[Workload, TargetRef]] = {}
        for workload, target in wanted.items():
            kinds.setdefault((target.api_version, target.kind), {})[workload] = target
        for kind, members in kinds.items():
            if kind not in self._asking:
                self._asking[kind] = asyncio.create_task(self._ask_all(kind, members), name=f"scales of {kind[1]}")
        if self._asking:
            await asyncio.wait(self._asking.values(), timeout=_RHYTHM.period_s)

    async def _ask_all(self, kind: tuple[str, str], members: Mapping[Workload, TargetRef]) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def ask(workload: Workload, target: TargetRef) -> None:
            async with gate:
                await self._ask(workload, target)

        try:
            await asyncio.gather(*(ask(workload, target) for workload, target in members.items()))
        except Exception:
            # Broad on purpose: nobody else looks at this task.
            log.exception("the scales of %s could not be asked for", kind[1])
        finally:
            del self._asking[kind]

    async def _ask(self, workload: Workload, target: TargetRef) -> None:
        try:
            setting = await self._actuator.read(workload.namespace, target)
            selector = selector_from(setting.selector)
        except NotFound:
            self._world.remove_workload(workload)
            return
        except (ApiError, DecodeError) as error:
            # What is known stands until it is known better.
            log.warning("%s %s/%s: %s", workload.kind, workload.namespace, workload.name, error)
            return
        self._world.pods.select(workload, selector)
        self._world.set_target(
            workload,
            setting.replicas,
            self._clock.monotonic_s(),
            version=setting.version,
            tells_pods=selector is not None,
        )
