"""One look at one pool: machines, Nodes and pods in, the pure turn in the middle, writes and orders out."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import replace

from fleet.claim import read_claim
from fleet.clock import Clock
from fleet.errors import ApiError, NotLeading
from warmpool.config import WarmPoolSettings
from warmpool.controller.book import Book, by_state
from warmpool.controller.carrier import Carrier
from warmpool.controller.keeper import Keeper
from warmpool.controller.metrics import WarmPoolMetrics
from warmpool.controller.needs import nodes_needed
from warmpool.controller.teller import Teller
from warmpool.controller.turn import join, turn
from warmpool.controller.world import Pool, World
from warmpool.nodes.action import Action, Release
from warmpool.nodes.puller import puller_name
from warmpool.nodes.reading import WarmNode, facts_from, puller_of
from warmpool.nodes.seen import NodeSeen, Puller
from warmpool.providers.breaker import Breakers
from warmpool.providers.provider import Machine, Provider, Refusal
from warmpool.resource import Spec
from warmpool.sizing import Size
from warmpool.values import Mode, NodeState, Offer, PoolNode, ProviderKind, Why

log = logging.getLogger(__name__)

_SIZE_S = 15.0  # between two decisions on the size without news
_IN_FLIGHT = 16  # writes of one pool
_SHORTAGES = frozenset({Refusal.INSUFFICIENT_CAPACITY, Refusal.QUOTA})


class Looker:
    """Looks at pools; each by one task at a time."""

    def __init__(
        self,
        world: World,
        providers: Mapping[ProviderKind, Provider],
        carrier: Carrier,
        keeper: Keeper,
        teller: Teller,
        clock: Clock,
        settings: WarmPoolSettings,
        metrics: WarmPoolMetrics,
    ) -> None:
        self._world = world
        self._providers = providers
        self._carrier = carrier
        self._keeper = keeper
        self._teller = teller
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._breakers: dict[ProviderKind, Breakers] = {}

    def forget(self, pool: str) -> None:
        """Remember nothing more of a pool that is gone."""
        self._carrier.problems.pop(pool, None)
        self._metrics.forget(pool)

    async def look(self, pool: Pool, book: Book, listed: Mapping[str, Machine] | str) -> None:
        """Look once.

        Args:
            pool: As read.
            book: Its own.
            listed: Machines of its provider by name, listed just now; a text: why they could not be.

        Raises:
            NotLeading: Nothing more may be written.
        """
        name = pool.name
        now_s, wall_s = self._clock.monotonic_s(), self._clock.now_s()
        self._metrics.idle_s.labels(name).inc(book.passed(wall_s, now_s))
        if isinstance(listed, str):
            book.problem = listed
            return
        await self._turn(pool, book, listed, now_s, wall_s)
        self._show(name, book)

    async def _turn(self, pool: Pool, book: Book, listed: Mapping[str, Machine], now_s: float, wall_s: float) -> None:
        spec, provider = book.spec, self._providers[book.spec.pool.provider]
        is_acting = self._may_act(pool, book)
        machines = {name: machine for name, machine in listed.items() if machine.pool == pool.name}
        nodes = list(self._world.nodes_of(pool.name))
        sighting = join(
            machines.values(),
            nodes,
            book.nodes,
            lambda machine, node: self._see(spec, machine, node),
            lambda name: now_s - self._world.node_seen_s.get(name, now_s),
        )
        size = self._decide(pool, book, now_s, wall_s)
        book.backlog = self._world.backlog(pool)
        looked = turn(
            spec.pool,
            book.nodes,
            sighting,
            # Who missed gets a node of its own: otherwise it would be taken from those kept for others.
            size.target + book.backlog,
            now_s,
            times=book.times,
            breakers=self._breakers.get(spec.pool.provider, Breakers()),
            capabilities=provider.capabilities(),
            is_acting=is_acting,
            is_retiring=pool.is_deleting,
        )
        self._breakers[spec.pool.provider] = looked.breakers
        book.take(looked)
        for lead_s in looked.leads_s:
            self._metrics.lead_s.labels(pool.name).observe(lead_s)
        for node in looked.failures:
            self._metrics.failures.labels(pool.name, node.why.value).inc()
            self._teller.failed(pool, node)
        draws, misses = book.draw(looked.draws, self._world.pods.drawn(pool.name), wall_s)
        if draws:
            self._metrics.draws.labels(pool.name, "hit").inc(draws - misses)
            self._metrics.draws.labels(pool.name, "miss").inc(misses)
            book.sized_at_s = float("-inf")  # the size follows a draw at once
            self._world.dirty.add(pool.name)
        if not is_acting:
            return
        if not pool.is_kept and not pool.is_deleting:
            await self._keeper.hold(pool)
            self._world.dirty.add(pool.name)
            return  # nothing is ordered or marked before the pool is sure to see to its end
        await self._carry(book, looked.actions, provider, machines)
        await self._order(book, provider)
        if pool.is_deleting and not any(node.state is not NodeState.RELEASED for node in book.nodes.values()):
            await self._keeper.let_go(pool)

    async def _carry(
        self, book: Book, actions: tuple[Action, ...], provider: Provider, machines: Mapping[str, Machine]
    ) -> None:
        gate = asyncio.Semaphore(_IN_FLIGHT)

        def undone(release: Release) -> None:
            book.forget_release(release.name)

        async def one(action: Action) -> None:
            async with gate:
                await self._carrier.carry(book.spec, action, provider, machines, undone)

        await asyncio.gather(*(one(action) for action in actions))
        await self._sweep(book)

    async def _sweep(self, book: Book) -> None:
        """Take away our own pods from nodes that somebody uses, that go, or that are to hold other images."""
        name = book.spec.pool.name
        by_node = {node.node_name: node for node in book.nodes.values() if node.node_name}
        for puller in list(self._world.pods.of_pool(name)):
            if puller.pod.metadata.deletion_timestamp is not None:
                continue
            node = by_node.get(puller.node)
            is_wanted = node is not None and (node.is_idle or node.state is NodeState.CLAIMED)
            if is_wanted and puller.pod.metadata.name == puller_name(book.spec.pool, puller.node):
                continue
            try:
                await self._carrier.drop_puller(puller)
            except NotLeading:
                raise
            except ApiError as error:
                log.warning("pod %s of pool %s stays: %s", puller.pod.metadata.name, name, error)

    async def _order(self, book: Book, provider: Provider) -> None:
        plan, pool = book.plan, book.spec.pool
        if plan is None:
            return
        book.problem = ""
        try:
            if plan.resize is not None:
                await provider.resize(pool, plan.resize)
            for offer, count in plan.orders:
                await self._order_of(book, provider, offer, count)
        except NotLeading:
            raise
        except ApiError as error:
            book.problem = f"provider {pool.provider}: {error}"[:500]
            log.warning("pool %s: %s", pool.name, book.problem)

    async def _order_of(self, book: Book, provider: Provider, offer: Offer, count: int) -> None:
        pool, kind = book.spec.pool, book.spec.pool.provider
        ordered_at_s = self._clock.monotonic_s()
        breakers = self._breakers.get(kind, Breakers())
        self._breakers[kind] = breakers.ordered(pool.shape, offer, ordered_at_s)
        self._metrics.orders.labels(pool.name).inc(count)
        try:
            receipt = await provider.provision(pool, offer, count, secrets.token_hex(4))
        except NotLeading:
            raise
        except ApiError as error:
            # Whether it got through is seen at the next look; asked again at once, a broken provider would be flooded.
            self._refuse(book, offer, ordered_at_s, Why.REFUSED, str(error))
            raise
        now_s = self._clock.monotonic_s()
        for name in receipt.names:
            node = PoolNode.ordered(name, offer, ordered_at_s)
            book.nodes[name] = replace(node, shape=pool.shape.fingerprint)
        self._world.dirty.add(pool.name)
        if receipt.names:
            self._teller.ordered(pool.name, len(receipt.names), offer, now_s)
        if receipt.refusal is not None:
            why = Why.INSUFFICIENT_CAPACITY if receipt.refusal in _SHORTAGES else Why.REFUSED
            self._refuse(book, offer, ordered_at_s, why, receipt.detail)

    def _refuse(self, book: Book, offer: Offer, ordered_at_s: float, why: Why, detail: str) -> None:
        pool, now_s = book.spec.pool, self._clock.monotonic_s()
        breakers = self._breakers.get(pool.provider, Breakers())
        self._breakers[pool.provider] = breakers.failed(pool.shape, offer, ordered_at_s, now_s, why, detail)
        self._metrics.refusals.labels(pool.name, why.value).inc()

    def _decide(self, pool: Pool, book: Book, now_s: float, wall_s: float) -> Size:
        """Return the size, decided anew where that is due: at draws, and every now and then."""
        if book.size is not None and now_s - book.sized_at_s < _SIZE_S:
            return book.size
        serving = book.count(NodeState.SERVING) + book.count(NodeState.CLAIMED)
        book.rule.pass_to(wall_s, serving, is_known=True)
        horizon_s = book.size.horizon_s if book.size and book.size.horizon_s else self._lead_s(book)
        coming = nodes_needed(self._world.needs_of(pool), wall_s, horizon_s)
        book.size, book.sized_at_s = book.rule.size(wall_s, coming), now_s
        self._metrics.decisions.labels(pool.name, book.size.reason).inc()
        return book.size

    def _lead_s(self, book: Book) -> float:
        leads_s = book.times.leads_s
        return sum(leads_s) / len(leads_s) if leads_s else 600.0

    def _may_act(self, pool: Pool, book: Book) -> bool:
        spec = book.spec.pool
        if spec.models and not self._settings.fetch_image:
            return False
        # A pool that acted once and is deleted sees to its end in either mode.
        return spec.mode is Mode.ACT or (pool.is_deleting and pool.is_kept)

    def _see(self, spec: Spec, machine: Machine | None, node: WarmNode | None) -> NodeSeen:
        if node is None:
            return NodeSeen(machine=machine)
        name = node.metadata.name
        pullers = [puller.pod for puller in self._world.pods.pulling(spec.pool.name, name)]
        wanted = puller_name(spec.pool, name)
        current = next((pod for pod in pullers if pod.metadata.name == wanted), None)
        created = node.metadata.creation_timestamp
        sliced = self._world.slices.devices(name)
        facts = facts_from(node, spec.pool, heartbeat=self._world.heartbeats.get(name, ""), sliced=sliced)
        claim = read_claim(facts.claim)
        return NodeSeen(
            machine=machine,
            facts=facts,
            gone=self._world.pods.gone(claim.pods) if claim is not None else frozenset(),
            pods=self._world.pods.on(name),
            puller=puller_of(current) if current is not None else Puller.NONE,
            age_s=self._world.age_s(created, self._clock.now_s()),
        )

    def _show(self, name: str, book: Book) -> None:
        counts = by_state(book.nodes)
        for state in NodeState:
            self._metrics.nodes.labels(name, state.value).set(counts.get(state, 0))
        self._metrics.wanted.labels(name).set(book.plan.target if book.plan else 0)
        self._metrics.warm.labels(name).set(book.warm)
