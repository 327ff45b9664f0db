"""The leader's work: load in second by second, decisions out, each endpoint at its own time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from fleet.clock import Clock
from scaler.balancer.values import BackendSecond
from scaler.controller.carrier import Carrier
from scaler.controller.census import Order, census
from scaler.controller.conditions import Picture
from scaler.controller.endpoint import Endpoint
from scaler.controller.facts import Kept
from scaler.controller.meters import Meters
from scaler.controller.metrics import ScalerMetrics
from scaler.controller.pods import Pod, Workload
from scaler.controller.ports import LoadSource
from scaler.controller.problems import signal_problem
from scaler.controller.status import kept_in
from scaler.controller.surge import surge_of, without_surge
from scaler.controller.teller import Teller
from scaler.controller.turns import each_second
from scaler.controller.world import Autoscaler, Claim, Key, World
from scaler.policy import Mode
from scaler.seen import Sample

log = logging.getLogger(__name__)

# An exporter needs some milliseconds to write its second down.
_AFTER_S = 0.1
# Endpoints between two breaths of the event loop: some milliseconds.
_BREATH = 25


class Rounds:
    """All endpoints of one term of leadership.

    Attributes:
        endpoints: By autoscaler; those that have a valid spec, now or before.
        sources: Balancers by name.
    """

    def __init__(
        self,
        world: World,
        sources: Mapping[str, LoadSource],
        meters: Mapping[str, Meters],
        carrier: Carrier,
        teller: Teller,
        clock: Clock,
        metrics: ScalerMetrics,
    ) -> None:
        """Prepare.

        Args:
            world: Kept up to date by the watches.
            sources: Balancers by name; may change, each second the newest are asked.
            meters: Prometheus servers by name; likewise.
            carrier: Carries decisions out.
            teller: Tells of them.
            clock: Time.
            metrics: Counts.
        """
        self.endpoints: dict[Key, Endpoint] = {}
        self._world = world
        self.sources = sources
        self._meters = meters
        self._carrier = carrier
        self._teller = teller
        self._clock = clock
        self._metrics = metrics
        self._claims: dict[Key, Claim] = {}
        self._staffed: dict[tuple[str, str], tuple[LoadSource | Meters, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Turn until cancelled."""
        async with asyncio.TaskGroup() as group:

            async def beat() -> float:
                self._staff(group)
                return await self._beat()

            group.create_task(self._each_second(beat, "the beat"))

    def autoscaler_seen(self, autoscaler: Autoscaler) -> None:
        """Take a new or changed autoscaler: its spec is in force from the next second on."""
        key, spec = autoscaler.key, autoscaler.spec
        endpoint = self.endpoints.get(key)
        if spec is not None and (endpoint is None or endpoint.spec.target != spec.target):
            self._carrier.forget(key)
            kept = kept_in(autoscaler.told) if endpoint is None else Kept()
            endpoint = Endpoint(key, spec, kept, self._clock.monotonic_s(), self._clock.now_s())
            self.endpoints[key] = endpoint
            self._recount(endpoint, autoscaler)
        elif spec is not None and endpoint is not None:
            endpoint.apply(spec)
        self._watch_queries(key, endpoint)
        self._tell(autoscaler)

    def autoscaler_gone(self, key: Key) -> None:
        """Forget an autoscaler; its workload keeps the count it has."""
        self.endpoints.pop(key, None)
        self._claims.pop(key, None)
        for meter in self._meters.values():
            meter.forget(key)
        self._carrier.forget(key)
        self._teller.forget(key)

    def pod_ready(self, pod: Pod, workloads: tuple[Workload, ...]) -> None:
        """Learn how long a start took."""
        if pod.ready_at_s is None:
            return
        scheduled_s = None if pod.scheduled_at_s is None else pod.scheduled_at_s - pod.since_s
        for workload in workloads:
            for key in self._world.claimants(workload):
                endpoint = self.endpoints.get(key)
                if endpoint is not None:
                    endpoint.starts = endpoint.starts.seen(pod.ready_at_s - pod.since_s, scheduled_s)

    def _staff(self, group: asyncio.TaskGroup) -> None:
        """Let each source that there is now have somebody who asks it, and none that is gone."""
        asked: dict[tuple[str, str], LoadSource | Meters] = {
            **{("balancer", name): source for name, source in self.sources.items()},
            **{("prometheus", name): meter for name, meter in self._meters.items()},
        }
        for what, (source, task) in list(self._staffed.items()):
            if asked.get(what) is not source:
                task.cancel()
                del self._staffed[what]
        for what, source in asked.items():
            if what in self._staffed:
                continue
            if isinstance(source, Meters):
                work = source.run(lambda: self.endpoints.values())
                for key, endpoint in self.endpoints.items():
                    self._watch_queries(key, endpoint)
            else:
                work = self._listen(what[1], source)
            self._staffed[what] = (source, group.create_task(work, name=" ".join(what)))

    async def _each_second(self, turn: Callable[[], Awaitable[float]], name: str) -> None:
        await each_second(turn, self._clock, name=name, failed=self._metrics.faults.inc)

    async def _listen(self, name: str, source: LoadSource) -> None:
        """Ask one balancer once a second and act on what it says at once; its silence delays nobody else's."""

        async def turn() -> float:
            begun_s, newest_s = self._clock.monotonic_s(), float("-inf")
            await source.poll()
            self._refresh()
            for number, endpoint in enumerate(self._of_source(name)):
                seconds = source.take(endpoint.spec.balancer.backend) if endpoint.spec.balancer else ()
                if seconds:
                    newest_s = max(newest_s, seconds[-1].at_s)
                    self._hear(endpoint, seconds)
                    self._turn(endpoint)
                if number % _BREATH == _BREATH - 1:
                    await self._clock.sleep(0)
            self._metrics.round_s.observe(self._clock.monotonic_s() - begun_s)
            # The next second will be there a moment after its end: asked for then, decisions are youngest.
            return newest_s + 1.0 + _AFTER_S

        await self._each_second(turn, f"balancer {name}")

    async def _beat(self) -> float:
        """Once a second: endpoints without news, those measured by Prometheus, and everything that is only due."""
        self._refresh()
        now_s, wall_s = self._clock.monotonic_s(), self._clock.now_s()
        for number, endpoint in enumerate(list(self.endpoints.values())):
            if endpoint.spec.balancer is None:
                with self._alone(endpoint):
                    sample = self._sample(endpoint, now_s)
                    endpoint.take(sample)
                    endpoint.counted(wall_s, sample.arrivals)
                self._turn(endpoint)
            elif endpoint.is_silent(now_s):
                with self._alone(endpoint):
                    endpoint.take(Sample(at_s=now_s, extra=self._extra(endpoint) if endpoint.policy.extra else {}))
                self._turn(endpoint)
            if number % _BREATH == _BREATH - 1:
                await self._clock.sleep(0)
        return float("-inf")

    def _turn(self, endpoint: Endpoint) -> None:
        """Decide, learn and look ahead where it is due."""
        autoscaler = self._world.autoscalers.get(endpoint.key)
        if autoscaler is None or self.endpoints.get(endpoint.key) is not endpoint:
            return  # while others had their turn it was deleted, or given another workload and begun anew
        is_due = True
        with self._alone(endpoint):
            now_s = self._clock.monotonic_s()
            is_due = self._decide_if_due(endpoint, autoscaler, now_s)
            is_due |= endpoint.learn_if_due(now_s) is not None
            endpoint.look_ahead_if_due(now_s, self._clock.now_s())
        if is_due:
            self._tell(autoscaler)

    def _hear(self, endpoint: Endpoint, seconds: Sequence[BackendSecond]) -> None:
        """Let an endpoint take what came."""
        with self._alone(endpoint):
            extra = self._extra(endpoint) if endpoint.policy.extra else None
            for second in seconds:
                endpoint.see(second, extra)
                endpoint.counted(self._clock.now_s() - self._clock.monotonic_s() + second.at_s, second.arrivals)

    @contextmanager
    def _alone(self, endpoint: Endpoint) -> Iterator[None]:
        """Let a fault with one endpoint cost that endpoint one turn, and nobody else anything."""
        try:
            yield
        except Exception:
            # Broad on purpose: see above.
            self._metrics.faults.inc()
            log.exception("a turn of %s failed", endpoint.key)

    def _decide_if_due(self, endpoint: Endpoint, autoscaler: Autoscaler, now_s: float) -> bool:
        if not endpoint.is_due(now_s):
            return False
        claim, _ = self._world.claim(autoscaler)
        before, self._claims[endpoint.key] = self._claims.get(endpoint.key), claim
        if claim is not Claim.OURS:
            endpoint.pause(now_s)
            return True
        if before is not Claim.OURS:
            endpoint.forget_orders()
        self._decide(endpoint, autoscaler, now_s)
        return True

    def _decide(self, endpoint: Endpoint, autoscaler: Autoscaler, now_s: float) -> None:
        sampled_s = endpoint.load.at_s
        decision = endpoint.decide(now_s)
        self._metrics.decided(decision, now_s - sampled_s)
        workload = autoscaler.workload
        if workload is None or endpoint.policy.mode is not Mode.ACT:
            return
        self._carrier.carry(endpoint, workload, decision)

    def _refresh(self) -> None:
        """Count anew where pods or orders have changed."""
        for workload in self._world.pods.changed():
            for key in self._world.claimants(workload):
                endpoint, autoscaler = self.endpoints.get(key), self._world.autoscalers.get(key)
                if endpoint is not None and autoscaler is not None:
                    self._recount(endpoint, autoscaler)

    def _recount(self, endpoint: Endpoint, autoscaler: Autoscaler) -> None:
        workload = autoscaler.workload
        if workload is None:
            return
        target = self._world.targets.get(workload)
        order = target.order if target else Order(replicas=None, at_s=self._clock.monotonic_s())
        # Who was in charge before may have set the surge: a fresh process takes it that it did.
        surge = self._world.surges.setdefault(workload, surge_of(autoscaler.annotations))
        order = without_surge(order, surge)
        endpoint.census = census(self._world.pods.of(workload).values(), order, self._world.hardware)
        endpoint.known.changed_at_s = target.changed_at_s if target else float("-inf")

    def _of_source(self, name: str) -> list[Endpoint]:
        return [
            endpoint
            for endpoint in self.endpoints.values()
            if endpoint.spec.balancer is not None and endpoint.spec.balancer.source == name
        ]

    def _meter(self, endpoint: Endpoint) -> Meters | None:
        return self._meters.get(endpoint.spec.queries.source) if endpoint.spec.queries else None

    def _watch_queries(self, key: Key, endpoint: Endpoint | None) -> None:
        for name, meter in self._meters.items():
            queries = endpoint.spec.queries if endpoint else None
            if queries is not None and queries.source == name:
                meter.watch(key, queries)
            else:
                meter.forget(key)

    def _sample(self, endpoint: Endpoint, now_s: float) -> Sample:
        meter = self._meter(endpoint)
        return meter.sample(endpoint.key, now_s) if meter else Sample(at_s=now_s)

    def _extra(self, endpoint: Endpoint) -> Mapping[str, float | None]:
        meter = self._meter(endpoint)
        return meter.sample(endpoint.key, self._clock.monotonic_s()).extra if meter else {}

    def _tell(self, autoscaler: Autoscaler) -> None:
        self._teller.consider(autoscaler.key, lambda: self.picture(autoscaler.key))

    def picture(self, key: Key) -> Picture | None:
        """Return what is to be told of an autoscaler now; None = it is gone."""
        autoscaler = self._world.autoscalers.get(key)
        if autoscaler is None:
            return None
        endpoint = self.endpoints.get(key)
        return Picture(
            autoscaler=autoscaler,
            endpoint=endpoint,
            claim=self._world.claim(autoscaler),
            signal_problem=signal_problem(endpoint, self.sources, self._meters) if endpoint else "",
            actuator_problem=self._carrier.problem(key),
        )
