"""The planner process: leadership, watches, turns, and the HTTP address that says how it is."""

from __future__ import annotations

import asyncio
import gc
import logging
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from prometheus_client import CollectorRegistry

from binpack.config import RENAMED, PlannerSettings
from binpack.controller.allotter import Allotter
from binpack.controller.budget_feed import Budgets, watch_budgets
from binpack.controller.claim_feed import ClaimFeed, SliceListener
from binpack.controller.claims import Claims
from binpack.controller.deciding import Decider
from binpack.controller.group_feed import watch_groups
from binpack.controller.metrics import PlannerMetrics, WaitingCollector
from binpack.controller.mover import Mover
from binpack.controller.namespace_feed import watch_namespaces
from binpack.controller.pool_feed import watch_pools
from binpack.controller.proposer import Proposer
from binpack.controller.spares import Spares
from binpack.controller.turns import Turns
from binpack.controller.volume_feed import VolumeFeed
from binpack.controller.waiting import WaitingRoom
from binpack.controller.workloads import Workloads
from binpack.controller.world import World
from binpack.controller.writer import PodWriter
from binpack.controller.yard import Yard
from binpack.feed import Feed
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.server import parse_listen
from binpack.solver.process import SolverProcess
from fleet import labels
from fleet.clock import Clock, SystemClock, cpu_s
from fleet.config import read
from fleet.errors import ConfigError
from fleet.kube.claimer import Claimer
from fleet.kube.client import Client
from fleet.kube.credentials import Connection, connection
from fleet.kube.events import EventRecorder
from fleet.kube.lease import Elector, own_identity
from fleet.telemetry import serve_probes

log = logging.getLogger(__name__)

LEASE = "berthmaster-planner"


class Planner:
    """One planner replica: stands by, leads, plans."""

    def __init__(
        self, connection: Connection, clock: Clock, settings: PlannerSettings, registry: CollectorRegistry
    ) -> None:
        self.metrics = PlannerMetrics(registry)
        self._connection = connection
        self._clock = clock
        self._settings = settings
        self._world: World | None = None
        self._feed: Feed | None = None
        registry.register(WaitingCollector(lambda: self._world.waiting.counts() if self._world else {}))

    def not_ready(self) -> str:
        """Return why this replica does not do what it should, "" = it does: follow, or lead with complete watches."""
        is_behind = self._feed is not None and not self._feed.is_synced
        return "leading, but the cluster is not listed yet" if is_behind else ""

    async def run(self) -> None:
        """Campaign, lead while the lease lasts, campaign again; until cancelled."""
        async with Client(self._connection, self._clock, user_agent="berthmaster-planner") as client:
            elector = Elector(
                client, self._clock, namespace=self._settings.namespace, name=LEASE, identity=own_identity()
            )
            client.write_deadline_s = elector.write_deadline_s
            await elector.run(lambda: self._lead(client))

    def _skipped(self, kind: str, _: str) -> None:
        self.metrics.malformed.labels(kind).inc()

    async def _lead(self, client: Client) -> None:
        """Plan until the leadership is lost (cancelled). All state is made afresh from a quorum list."""
        self.metrics.is_leader.set(1)
        solver = SolverProcess(self._clock)
        try:
            ledger = Ledger()
            world = World(
                ledger,
                Index(),
                WaitingRoom(hand_over_after_s=self._settings.hand_over_after_s),
                self._clock.monotonic_s,
                Yard(set_id=f"planner-{uuid.uuid4().hex[:12]}"),
                cpu_s,
            )
            claims = Claims(Claimer(client, lambda: uuid.uuid4().hex))
            recorder = EventRecorder(client, self._clock, labels.DOMAIN + "/planner")
            budgets = Budgets()
            spares = Spares(
                world, budgets, client, recorder, self._clock, self.metrics, after_s=self._settings.spare_after_s
            )
            workloads, how = Workloads(client), self._settings.moves
            mover = Mover(
                world.moves,
                client,
                PodWriter(client),
                workloads,
                recorder,
                self._clock,
                self.metrics,
                may_move=how.mode == "act",
            )
            turns = Turns(
                world,
                PodWriter(client),
                recorder,
                Decider(solver, self._settings, self.metrics),
                self._clock,
                self._settings,
                self.metrics,
                claims,
                Allotter(client, world.desk, self._clock),
                budgets,
            )
            claim_feed = ClaimFeed(client, self._clock, world.desk, turns.wake, self._skipped)
            feed = Feed(
                client,
                self._clock,
                ledger,
                listener=world,
                slice_listener=SliceListener(world.desk),
                changed=turns.wake,
                skipped=self._skipped,
            )
            self._world, self._feed = world, feed
            async with asyncio.TaskGroup() as group:
                group.create_task(feed.run())
                # Planning goes on without it: a cluster may have no pools, or not let us see them.
                group.create_task(watch_pools(client, self._clock, world, turns.wake).run())
                group.create_task(claim_feed.run())
                group.create_task(watch_budgets(client, self._clock, budgets).run())
                group.create_task(watch_groups(client, self._clock, world, turns.wake).run())
                malformed = self.metrics.malformed.labels("namespace").inc
                group.create_task(watch_namespaces(client, self._clock, world, malformed).run())
                volumes = VolumeFeed(client, self._clock, world.lookups, turns.wake, self._skipped)
                group.create_task(volumes.run())
                await feed.refresh()
                await volumes.known()
                # What was listed lives long and goes in no cycles: the collector need not walk it again.
                gc.collect()
                gc.freeze()
                log.info("planning", extra={"nodes": len(ledger.names()), "gated_pods": len(world.pods)})
                group.create_task(turns.run())
                group.create_task(spares.run())
                group.create_task(mover.run())
                if how.mode != "off":
                    proposer = Proposer(
                        world,
                        budgets,
                        workloads,
                        mover,
                        recorder,
                        self._clock,
                        self.metrics,
                        how,
                        solves=self._settings.solve_s > 0,
                    )
                    group.create_task(proposer.run())
        finally:
            self._world = self._feed = None
            gc.unfreeze()
            self.metrics.is_leader.set(0)
            await solver.close()


async def run_planner(
    *,
    kubeconfig: str | None,
    listen: str,
    environment: Mapping[str, str],
    prefix: str,
    flags: Mapping[str, Any],
) -> None:
    """Run one replica until cancelled.

    Args:
        kubeconfig: Path; None = KUBECONFIG, else the cluster this process runs in.
        listen: HOST:PORT for probes and metrics.
        environment: Where settings with the prefix are read.
        prefix: Of those variables.
        flags: Settings by name that win over the environment; None = not given.

    Raises:
        ConfigError: The settings cannot be read or contradict each other, or the address cannot be listened on.
    """
    settings = read(PlannerSettings, prefix=prefix, environment=environment, flags=flags, renamed=RENAMED)
    address = parse_listen(listen)
    clock, registry = SystemClock(), CollectorRegistry()
    planner = Planner(connection(kubeconfig, clock=clock), clock, settings, registry)
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(serve_probes(address.host, address.port, registry, planner.not_ready))
        except OSError as error:
            raise ConfigError([f"cannot listen on {listen}: {error.strerror or error}"]) from error
        await planner.run()
