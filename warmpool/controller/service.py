"""The controller process: leadership, watches, rounds, and the HTTP address that says how it is."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from prometheus_client import CollectorRegistry

from fleet import labels
from fleet.clock import Clock, SystemClock
from fleet.config import host_and_port, read
from fleet.errors import ConfigError
from fleet.http import Http
from fleet.kube.client import Client
from fleet.kube.credentials import Connection, connection
from fleet.kube.events import EventRecorder
from fleet.kube.lease import Elector, own_identity
from fleet.prom import Prometheus
from fleet.telemetry import Counts, serve_probes
from warmpool.config import WarmPoolSettings
from warmpool.controller.carrier import Carrier
from warmpool.controller.feed import Feed
from warmpool.controller.keeper import Keeper
from warmpool.controller.look import Looker
from warmpool.controller.metrics import WarmPoolMetrics
from warmpool.controller.past import PastDraws
from warmpool.controller.rounds import Rounds
from warmpool.controller.teller import Teller
from warmpool.controller.world import World
from warmpool.providers.adopt import AdoptProvider
from warmpool.providers.capacitybuffer import CapacityBufferProvider
from warmpool.providers.karpenter import KarpenterProvider
from warmpool.providers.kwok import KwokProvider
from warmpool.providers.machinedeployment import MachineDeploymentProvider
from warmpool.providers.provider import Provider
from warmpool.starts.book import StartBook
from warmpool.values import ProviderKind

log = logging.getLogger(__name__)

LEASE = "berthmaster-warmpool"


class WarmPools:
    """One controller replica: stands by, leads, warms.

    Attributes:
        metrics: Counts.
    """

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        settings: WarmPoolSettings,
        registry: CollectorRegistry,
    ) -> None:
        self.metrics = WarmPoolMetrics(registry)
        self._connection = connection
        self._clock = clock
        self._settings = settings
        self._feed: Feed | None = None
        self._carrier: Carrier | None = None
        self._world: World | None = None
        prefix = "berthmaster_warmpool_"
        registry.register(Counts(f"{prefix}writes", "Writes on nodes and pods.", ["outcome"], self._writes))
        self.metrics.orphans.set_function(lambda: len(self._world.orphans()) if self._world else 0)

    def not_ready(self) -> str:
        """Return why this replica does not do what it should, "" = it does: follow, or lead with complete watches."""
        is_behind = self._feed is not None and not self._feed.is_synced
        return "leading, but the cluster is not listed yet" if is_behind else ""

    async def run(self) -> None:
        """Campaign, lead while the lease lasts, campaign again; until cancelled."""
        async with Client(self._connection, self._clock, user_agent=LEASE) as client, Http() as http:
            elector = Elector(
                client, self._clock, namespace=self._settings.namespace, name=LEASE, identity=own_identity()
            )
            client.write_deadline_s = elector.write_deadline_s
            await elector.run(lambda: self._lead(client, http))

    async def _lead(self, client: Client, http: Http) -> None:
        """Warm until the leadership is lost (cancelled); all state is made afresh from the cluster."""
        self.metrics.is_leader.set(1)
        clock, settings = self._clock, self._settings
        world = World(starts=StartBook(told=self.metrics.started))
        carrier = Carrier(
            client,
            world,
            clock,
            has_image_volumes=settings.has_image_volumes,
            fetch_image=settings.fetch_image,
            moves_per_hour=settings.moves_per_hour,
        )
        teller = Teller(client, EventRecorder(client, clock, f"{labels.DOMAIN}/warmpool"), world, clock)
        providers, keeper = self._providers(client), Keeper(client, settings.store_namespace)
        rounds = Rounds(
            world,
            providers,
            Looker(world, providers, carrier, keeper, teller, clock, settings, self.metrics),
            keeper,
            teller,
            clock,
            settings,
            self.metrics,
            puller_problem=lambda pool: carrier.problems.get(pool, ""),
            past=self._past(http),
        )
        feed = Feed(client, clock, world, lambda kind, _: self.metrics.malformed.labels(kind).inc())
        self._feed, self._carrier, self._world = feed, carrier, world
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(feed.run())
                await feed.synced()
                # What was listed lives long and goes in no cycles: the collector need not walk it again.
                gc.collect()
                gc.freeze()
                log.info("warming", extra={"pools": len(world.pools), "nodes": len(world.nodes)})
                group.create_task(teller.run())
                group.create_task(teller.run_events())
                group.create_task(rounds.run())
        finally:
            self._feed = self._carrier = self._world = None
            gc.unfreeze()
            self.metrics.is_leader.set(0)

    def _past(self, http: Http) -> PastDraws | None:
        url, token_file = self._settings.prometheus_url, self._settings.prometheus_token_file or None
        return PastDraws(Prometheus(url, http, token_file=token_file), self._clock) if url else None

    def _providers(self, client: Client) -> dict[ProviderKind, Provider]:
        providers: list[Provider] = [
            AdoptProvider(client),
            CapacityBufferProvider(client),
            KarpenterProvider(client),
            MachineDeploymentProvider(client),
        ]
        if self._settings.kwok.is_enabled:
            cloud = self._settings.kwok.cloud
            providers.append(KwokProvider(client, self._clock, cloud, namespace=self._settings.store_namespace))
        return {provider.kind: provider for provider in providers}

    def _writes(self) -> Mapping[tuple[str, ...], float]:
        return {(outcome,): count for outcome, count in self._carrier.counts.items()} if self._carrier else {}


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
        listen: HOST:PORT for probes and metrics.
        environment: Where settings with the prefix are read.
        prefix: Of those variables.
        flags: Settings by name that win over the environment; None = not given.
        clock: Time; the machine's own by default.
        started: Told the port listened on.

    Raises:
        ConfigError: The settings cannot be read or contradict each other, or the address cannot be listened on.
    """
    settings = read(WarmPoolSettings, prefix=prefix, environment=environment, flags=flags)
    host, port = host_and_port(listen)
    clock, registry = clock or SystemClock(), CollectorRegistry()
    pools = WarmPools(connection(kubeconfig, clock=clock), clock, settings, registry)
    async with AsyncExitStack() as stack:
        try:
            bound = await stack.enter_async_context(serve_probes(host, port, registry, pools.not_ready))
        except OSError as error:
            raise ConfigError([f"cannot listen on {listen}: {error.strerror or error}"]) from error
        started(bound)
        await pools.run()
