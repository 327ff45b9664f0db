"""The leader's work: each pool looked at when something of it changed, and at least every few seconds.

A pool is looked at by one task at a time: what was ordered is in its books before it is looked at again. Machines are
listed (a quorum read) before each look, so that an order that got through though its answer was lost is seen.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from fleet.clock import Clock
from fleet.errors import ApiError, NotLeading
from warmpool.config import WarmPoolSettings
from warmpool.controller.book import Book, by_state, is_same_rule
from warmpool.controller.carrier import Carrier
from warmpool.controller.conditions import Picture
from warmpool.controller.keeper import Keeper
from warmpool.controller.metrics import WarmPoolMetrics
from warmpool.controller.needs import nodes_needed
from warmpool.controller.sizing import Fixed
from warmpool.controller.teller import Teller
from warmpool.controller.turn import join, turn
from warmpool.controller.world import Pool, World
from warmpool.nodes.action import Release
from warmpool.nodes.puller import puller_name
from warmpool.nodes.reading import WarmNode, facts_from, puller_of
from warmpool.nodes.seen import NodeSeen, Puller
from warmpool.providers.breaker import Breakers
from warmpool.providers.provider import Machine, Provider, Refusal
from warmpool.resource import Spec
from warmpool.sizing import Rule, Size
from warmpool.starts.book import summary
from warmpool.values import Mode, NodeState, Offer, PoolNode, PoolSpec, ProviderKind, Static, Why

log = logging.getLogger(__name__)

_BEAT_S = 0.25
_SIZE_S = 15.0  # between two decisions on the size without news
_AT_ONCE = 8  # pools that are being looked at
_IN_FLIGHT = 16  # writes of one pool
_STORE_S = 10.0  # between two writes of what a pool remembers, where it learnt something
_STORE_IDLE_S = 300.0  # and where only time passed
_CLOUD_S = 0.5
_SHORTAGES = frozenset({Refusal.INSUFFICIENT_CAPACITY, Refusal.QUOTA})

RuleFor = Callable[[PoolSpec, bytes], Rule]


class Rounds:
    """All pools of one term of leadership.

    Attributes:
        books: By pool.
    """

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
        rule_for: RuleFor,
    ) -> None:
        """Prepare.

        Args:
            world: Kept up to date by the watches.
            providers: Those that may be asked for.
            carrier: Writes on nodes and pods.
            keeper: Keeps pools from going before their nodes, and their memory.
            teller: Tells of pools.
            clock: Time.
            settings: Periods and what is possible.
            metrics: Counts.
            rule_for: Makes the rule of the size from a spec and what was stored.
        """
        self.books: dict[str, Book] = {}
        self._world = world
        self._providers = providers
        self._carrier = carrier
        self._keeper = keeper
        self._teller = teller
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._rule_for = rule_for
        self._breakers: dict[ProviderKind, Breakers] = {}
        self._busy: set[str] = set()
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Turn until cancelled."""
        async with asyncio.TaskGroup() as group:
            for provider in self._providers.values():
                group.create_task(self._play(provider))
            group.create_task(self._store())
            while True:
                await self._beat(group)
                await self._clock.sleep(_BEAT_S)

    async def _beat(self, group: asyncio.TaskGroup) -> None:
        """Look at every pool that is due; at none whose machines could not be listed."""
        for name in [name for name in self.books if name not in self._world.pools and name not in self._busy]:
            self._forget(name)
        due = self._due()
        if not due:
            return
        kinds = {pool.spec.pool.provider for pool in due if pool.spec is not None}
        listed: dict[ProviderKind, Mapping[str, Machine] | str] = {}
        for kind in sorted(kinds):
            listed[kind] = await self._listed(kind)
        for pool in due:
            self._world.dirty.discard(pool.name)
            if pool.spec is None:
                self._teller.consider(pool.name, lambda pool=pool: self.picture(pool.name))  # type: ignore[misc]
                continue
            self._busy.add(pool.name)
            group.create_task(self._look_safely(pool.name, listed[pool.spec.pool.provider]))

    def _due(self) -> list[Pool]:
        now_s = self._clock.monotonic_s()
        found = []
        for name, pool in self._world.pools.items():
            if name in self._busy:
                continue
            book = self.books.get(name)
            is_late = book is None or now_s - book.looked_at_s >= self._settings.period_s
            if name in self._world.dirty or (is_late and pool.spec is not None):
                found.append(pool)
        return found

    async def _listed(self, kind: ProviderKind) -> Mapping[str, Machine] | str:
        """Return the machines of a kind's pools by name, or why they could not be listed."""
        provider = self._providers.get(kind)
        if provider is None:
            return f"provider {kind} is not enabled in this controller's settings"
        specs = [
            pool.spec.pool
            for pool in self._world.pools.values()
            if pool.spec is not None and pool.spec.pool.provider is kind
        ]
        try:
            return {machine.name: machine for machine in await provider.list(specs)}
        except NotLeading:
            raise
        except ApiError as error:
            return f"provider {kind}: {error}"[:500]

    async def _look_safely(self, name: str, listed: Mapping[str, Machine] | str) -> None:
        """Let a fault with one pool cost that pool one look, and nobody else anything."""
        begun_s = self._clock.monotonic_s()
        try:
            async with self._gate:
                await self._look(name, listed)
        except NotLeading:
            log.info("pool %s: not written any more, the lease ends", name)
        except Exception:
            # Broad on purpose: the one place where a fault of a whole look is caught.
            self._metrics.faults.inc()
            log.exception("a look at pool %s failed", name)
            book = self.books.get(name)
            if book is not None:
                book.looked_at_s = self._clock.monotonic_s()
        finally:
            self._busy.discard(name)
            self._metrics.look_s.observe(self._clock.monotonic_s() - begun_s)

    async def _look(self, name: str, listed: Mapping[str, Machine] | str) -> None:
        pool = self._world.pools.get(name)
        if pool is None or pool.spec is None:
            return
        book = await self._book(pool, pool.spec)
        if book is None:
            return
        now_s, wall_s = self._clock.monotonic_s(), self._clock.now_s()
        idle_before_s = book.ledger.sums(wall_s, 1).idle_s
        book.passed(wall_s, now_s)
        self._metrics.idle_s.labels(name).inc(max(0.0, book.ledger.sums(wall_s, 1).idle_s - idle_before_s))
        if isinstance(listed, str):
            book.problem = listed
            self._teller.consider(name, lambda: self.picture(name))
            return
        await self._turn(pool, book, listed, now_s, wall_s)
        self._show(name, book)
        self._teller.consider(name, lambda: self.picture(name))

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
        self, book: Book, actions: tuple[object, ...], provider: Provider, machines: Mapping[str, Machine]
    ) -> None:
        gate = asyncio.Semaphore(_IN_FLIGHT)

        def undone(release: Release) -> None:
            book.forget_release(release.name)

        async def one(action: object) -> None:
            async with gate:
                await self._carrier.carry(book.spec, action, provider, machines, undone)  # type: ignore[arg-type]

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

    def _alive(self, name: str, book: Book) -> Iterable[str]:
        """Return the pods whose draws could be counted a second time."""
        yield from (pod.uid for pod in self._world.pods.drawn(name))
        for node in book.nodes.values():
            yield from self._world.pods.on(node.node_name)
            yield from node.claim.pods if node.claim is not None else ()

    def _lead_s(self, book: Book) -> float:
        leads_s = book.times.leads_s
        return sum(leads_s) / len(leads_s) if leads_s else 600.0

    async def _book(self, pool: Pool, spec: Spec) -> Book | None:
        """Return the pool's book, opened with what earlier terms stored; None = that could not be read yet."""
        book = self.books.get(pool.name)
        if book is None:
            try:
                memory = await self._keeper.recall(pool.name)
            except ApiError as error:
                # Without it the size would be decided as if nothing had ever been seen.
                log.warning("what pool %s remembers could not be read: %s", pool.name, error)
                self._world.dirty.add(pool.name)
                await self._clock.sleep(_BEAT_S)
                return None
            book = self.books[pool.name] = Book(spec=spec, rule=self._new_rule(spec, memory.history if memory else b""))
            if memory is not None:
                book.remember(memory)
        elif book.spec != spec:
            is_same = is_same_rule(book.spec.pool.objective, spec.pool.objective)
            stored = book.rule.stored()
            book.apply(spec, None if is_same else self._new_rule(spec, stored))
        return book

    def _new_rule(self, spec: Spec, stored: bytes) -> Rule:
        if isinstance(spec.pool.objective, Static):
            return Fixed(spec.pool)
        return self._rule_for(spec.pool, stored)

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
        return NodeSeen(
            machine=machine,
            facts=facts_from(node, spec.pool, heartbeat=self._world.heartbeats.get(name, "")),
            pods=self._world.pods.on(name),
            puller=puller_of(current) if current is not None else Puller.NONE,
            age_s=self._world.age_s(created, self._clock.now_s()),
        )

    async def _play(self, provider: Provider) -> None:
        """Let a provider that plays the cloud itself do what is due."""
        if provider.kind is not ProviderKind.KWOK:
            return
        while True:
            try:
                await provider.turn()
            except ApiError as error:
                log.warning("provider %s: %s", provider.kind, error)
            await self._clock.sleep(_CLOUD_S)

    async def _store(self) -> None:
        """Write down what pools remember, now and then: what was not written is learnt again from what is there."""
        stored_s: dict[str, float] = {}
        while True:
            await self._clock.sleep(_STORE_S)
            for name, book in list(self.books.items()):
                pool, now_s = self._world.pools.get(name), self._clock.monotonic_s()
                is_due = book.is_changed or now_s - stored_s.get(name, float("-inf")) >= _STORE_IDLE_S
                if pool is None or pool.is_deleting or not is_due:
                    continue
                try:
                    await self._keeper.store(pool, book.memory(self._alive(name, book)))
                except NotLeading:
                    break
                except ApiError as error:
                    log.warning("what pool %s remembers could not be written: %s", name, error)
                    continue
                stored_s[name] = now_s
                book.is_changed = False

    def _show(self, name: str, book: Book) -> None:
        counts = by_state(book.nodes)
        for state in NodeState:
            self._metrics.nodes.labels(name, state.value).set(counts.get(state, 0))
        self._metrics.wanted.labels(name).set(book.plan.target if book.plan else 0)
        self._metrics.warm.labels(name).set(book.warm)

    def _forget(self, name: str) -> None:
        self.books.pop(name, None)
        self._teller.forget(name)
        self._metrics.forget(name)
        self._carrier.problems.pop(name, None)

    def picture(self, name: str) -> Picture | None:
        """Return what is to be told of a pool now; None = it is gone."""
        pool = self._world.pools.get(name)
        if pool is None:
            return None
        book = self.books.get(name)
        return Picture(
            pool=pool,
            book=book,
            puller_problem=self._carrier.problems.get(name, ""),
            strangers=self._world.strangers_of(pool),
            starts=summary(self._world.starts, name),
            lacks_fetcher=bool(pool.spec and pool.spec.pool.models and not self._settings.fetch_image),
        )
