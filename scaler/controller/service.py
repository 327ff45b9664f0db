"""The controller process: leadership, watches, sources, rounds, and the HTTP address that says how it is."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from prometheus_client import CollectorRegistry

from fleet import labels
from fleet.clock import Clock, SystemClock
from fleet.config import host_and_port, read
from fleet.errors import ConfigError
from fleet.http import TokenFile
from fleet.kube.client import Client
from fleet.kube.credentials import Connection, connection
from fleet.kube.events import EventRecorder
from fleet.kube.lease import Elector, own_identity
from fleet.telemetry import Counts, probes
from scaler.balancer.server import Listener
from scaler.config import ScalerSettings, SourcesFile
from scaler.controller.actuator import Actuator
from scaler.controller.carrier import Carrier
from scaler.controller.feed import Feed
from scaler.controller.follow import Follower
from scaler.controller.metrics import ScalerMetrics
from scaler.controller.rounds import Rounds
from scaler.controller.server import add_history
from scaler.controller.supply import Supply
from scaler.controller.teller import Teller
from scaler.controller.world import Key, World
from scaler.recorded import Recorded, to_json

log = logging.getLogger(__name__)

LEASE = "berthmaster-scaler"


class Scaler:
    """One controller replica: stands by, leads, scales.

    Attributes:
        metrics: Counts.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        settings: ScalerSettings,
        sources: SourcesFile,
        registry: CollectorRegistry,
    ) -> None:
        self.metrics = ScalerMetrics(registry)
        self._connection = connection
        self._clock = clock
        self._settings = settings
        self._sources = sources
        self._world: World | None = None
        self._feed: Feed | None = None
        self._rounds: Rounds | None = None
        self._actuator: Actuator | None = None
        self._register(registry)

    def not_ready(self) -> str:
        """Return why this replica does not do what it should, "" = it does: follow, or lead with complete watches."""
        is_behind = self._feed is not None and not self._feed.is_synced
        return "leading, but the cluster is not listed yet" if is_behind else ""

    def history(self, key: Key, from_ago_s: float, to_ago_s: float) -> bytes | None:
        """Return a part of an endpoint's last hour as JSON; None where nothing is known of it here."""
        endpoint = self._rounds.endpoints.get(key) if self._rounds else None
        autoscaler = self._world.autoscalers.get(key) if self._world else None
        if endpoint is None or autoscaler is None:
            return None
        now_s = self._clock.monotonic_s()
        history = endpoint.ring.history(now_s - from_ago_s, now_s - to_ago_s)
        recorded = Recorded(autoscaler=str(key), spec=autoscaler.raw_spec, history=history)
        return to_json(recorded, self._clock.now_s() - now_s)

    async def run(self) -> None:
        """Campaign, lead while the lease lasts, campaign again; until cancelled."""
        async with Client(self._connection, self._clock, user_agent="berthmaster-scaler") as client:
            elector = Elector(
                client, self._clock, namespace=self._settings.namespace, name=LEASE, identity=own_identity()
            )
            client.write_deadline_s = elector.write_deadline_s
            await elector.run(lambda: self._lead(client))

    async def _lead(self, client: Client) -> None:
        """Scale until the leadership is lost (cancelled). All state is made afresh from the cluster and its status."""
        self.metrics.is_leader.set(1)
        clock = self._clock
        async with AsyncExitStack() as stack:
            supply = await stack.enter_async_context(
                Supply(self._sources, clock, self.metrics.malformed.labels("sources").inc)
            )
            world, actuator = World(), Actuator(client)
            teller = Teller(client, EventRecorder(client, clock, labels.DOMAIN + "/scaler"), world, clock)
            carrier = Carrier(
                world,
                actuator,
                clock,
                sets_deletion_cost=self._settings.sets_deletion_cost,
                changed=teller.changed,
            )
            rounds = Rounds(world, supply.balancers, supply.meters, carrier, teller, clock, self.metrics)
            feed = Feed(client, clock, world, rounds, lambda kind, _: self.metrics.malformed.labels(kind).inc())
            self._world, self._feed, self._rounds, self._actuator = world, feed, rounds, actuator
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(feed.run())
                    await feed.synced()
                    # What was listed lives long and goes in no cycles: the collector need not walk it again.
                    gc.collect()
                    gc.freeze()
                    log.info("scaling", extra={"autoscalers": len(world.autoscalers), "pods": len(world.pods)})
                    group.create_task(carrier.run())
                    group.create_task(teller.run())
                    group.create_task(teller.run_events())
                    group.create_task(Follower(world, actuator, clock).run())
                    group.create_task(rounds.run())
                    group.create_task(supply.run())
            finally:
                self._world = self._feed = self._rounds = self._actuator = None
                gc.unfreeze()
                self.metrics.is_leader.set(0)

    def _register(self, registry: CollectorRegistry) -> None:
        prefix = "berthmaster_scaler_"

        def writes() -> Mapping[tuple[str, ...], float]:
            return {(outcome,): count for outcome, count in self._actuator.counts.items()} if self._actuator else {}

        def rejected() -> Mapping[tuple[str, ...], float]:
            found: dict[tuple[str, ...], float] = {}
            for endpoint in self._rounds.endpoints.values() if self._rounds else ():
                parts = endpoint.rejected
                for why, count in (
                    ("unusable", parts.unusable + endpoint.track.rejected),
                    ("ghost", parts.ghost),
                    ("duplicate", parts.duplicate),
                    ("unmatched", parts.unmatched),
                ):
                    found[(why,)] = found.get((why,), 0.0) + count
            return found

        def failures() -> Mapping[tuple[str, ...], float]:
            return dict(self._source_failures())

        registry.register(Counts(f"{prefix}scale_writes", "Writes to workloads and pods.", ["outcome"], writes))
        registry.register(Counts(f"{prefix}rejected_samples", "What was dropped of samples.", ["why"], rejected))
        registry.register(Counts(f"{prefix}source_failures", "Answers that did not come.", ["source"], failures))
        self.metrics.endpoints.set_function(lambda: len(self._rounds.endpoints) if self._rounds else 0)

    def _source_failures(self) -> Iterator[tuple[tuple[str, ...], float]]:
        for name, source in self._rounds.sources.items() if self._rounds else ():
            yield (f"balancer/{name}",), float(sum(state.failures for state in source.states()))


async def run_controller(
    *,
    kubeconfig: str | None,
    listen: str,
    environment: Mapping[str, str],
    prefix: str,
    flags: Mapping[str, Any],
    clock: Clock | None = None,
    started: Callable[[int], None] = lambda port: None,
) -> None:
    """Run one replica until cancelled.

    Args:
        kubeconfig: Path; None = KUBECONFIG, else the cluster this process runs in.
        listen: HOST:PORT for probes, metrics and the history.
        environment: Where settings with the prefix are read.
        prefix: Of those variables.
        flags: Settings by name that win over the environment; None = not given.
        clock: Time; the machine's own by default.
        started: Told the port listened on.

    Raises:
        ConfigError: The settings cannot be read or contradict each other, or the address cannot be listened on.
    """
    settings = read(ScalerSettings, prefix=prefix, environment=environment, flags=flags)
    sources = SourcesFile(settings.sources)
    host, port = host_and_port(listen)
    token = TokenFile(settings.history_token) if settings.history_token else None
    if token is not None:
        token.read()
    clock, registry = clock or SystemClock(), CollectorRegistry()
    scaler = Scaler(connection(kubeconfig, clock=clock), clock, settings, sources, registry)
    app = probes(registry, scaler.not_ready)
    add_history(app, token, scaler.history)
    async with AsyncExitStack() as stack:
        try:
            listener = await stack.enter_async_context(Listener(app, host, port))
        except OSError as error:
            raise ConfigError([f"cannot listen on {listen}: {error.strerror or error}"]) from error
        started(listener.port)
        await scaler.run()
