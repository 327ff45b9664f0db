"""The leader's work: each pool looked at when something of it changed, and at least every few seconds.

A pool is looked at by one task at a time: what was ordered is in its books before it is looked at again. Machines are
listed (a quorum read) before each look, so that an order that got through though its answer was lost is seen.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping

from fleet.clock import Clock
from fleet.errors import ApiError, NotLeading
from warmpool.config import WarmPoolSettings
from warmpool.controller.book import Book, is_same_rule
from warmpool.controller.conditions import Picture
from warmpool.controller.keeper import Keeper
from warmpool.controller.look import Looker
from warmpool.controller.metrics import WarmPoolMetrics
from warmpool.controller.past import PastDraws
from warmpool.controller.sizing import rule_for
from warmpool.controller.teller import Teller
from warmpool.controller.world import Pool, World
from warmpool.providers.provider import Machine, Provider
from warmpool.resource import Spec
from warmpool.sizing import Rule
from warmpool.starts.book import summary
from warmpool.values import PoolSpec, ProviderKind

log = logging.getLogger(__name__)

_BEAT_S = 0.25
_LEAST_S = 0.5  # between two looks at one pool
_SOON_S = 2.0  # and the longest while something of it is to happen by the clock alone, that no watch tells of
_AT_ONCE = 8  # pools that are being looked at
_STORE_S = 5.0  # between two writes of what a pool remembers, where it learnt something
_STORE_IDLE_S = 300.0  # and where only time passed
_CLOUD_S = 0.5

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
        looker: Looker,
        keeper: Keeper,
        teller: Teller,
        clock: Clock,
        settings: WarmPoolSettings,
        metrics: WarmPoolMetrics,
        *,
        rule_for: RuleFor = rule_for,
        puller_problem: Callable[[str], str] = lambda pool: "",
        past: PastDraws | None = None,
    ) -> None:
        """Prepare.

        Args:
            world: Kept up to date by the watches.
            providers: Those that may be asked for.
            looker: Looks at one pool.
            keeper: Keeps what pools remember.
            teller: Tells of pools.
            clock: Time.
            settings: Periods and what is possible.
            metrics: Counts.
            rule_for: Makes the rule of the size from a spec and what was stored.
            puller_problem: Tells why no pod of a pool can pull; "" = one can.
            past: Where draws of the time before a pool can be asked for; None = nowhere.
        """
        self.books: dict[str, Book] = {}
        self._world = world
        self._providers = providers
        self._looker = looker
        self._keeper = keeper
        self._teller = teller
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._rule_for = rule_for
        self._puller_problem = puller_problem
        self._past = past
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
            quiet_s = now_s - book.looked_at_s if book is not None else math.inf
            period_s = self._settings.period_s
            most_s = min(_SOON_S, period_s) if book is not None and book.waits else period_s
            is_late = quiet_s >= most_s and pool.spec is not None
            if is_late or (name in self._world.dirty and quiet_s >= _LEAST_S):
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
        if book is not None:
            await self._looker.look(pool, book, listed)
            self._teller.consider(name, lambda: self.picture(name))

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
            rule = self._rule_for(spec.pool, memory.history if memory else b"")
            if spec.history_query and not (memory and memory.history):
                await self._ask_past(pool, spec.history_query, rule)
            book = self.books[pool.name] = Book(spec=spec, rule=rule)
            if memory is not None:
                book.remember(memory)
        elif book.spec != spec:
            is_same = is_same_rule(book.spec.pool.objective, spec.pool.objective)
            stored = book.rule.stored()
            book.apply(spec, None if is_same else self._rule_for(spec.pool, stored))
        return book

    async def _ask_past(self, pool: Pool, query: str, rule: Rule) -> None:
        """Let the rule of a pool of which nothing is remembered live through what was drawn before."""
        found = await self._past.ask(query) if self._past else "the controller knows no Prometheus (prometheus_url)"
        if isinstance(found, str):
            log.warning("pool %s: its past could not be asked for: %s", pool.name, found)
            self._teller.past(pool, f"history.query gave nothing to learn from: {found}", is_warning=True)
            return
        await asyncio.to_thread(rule.recall, found.minute, found.by_minute)
        days = found.known_min / 1440
        text = f"learnt from {found.total} draws of {days:.1f} days, as history.query tells"
        self._teller.past(pool, text, is_warning=False)

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

    def _alive(self, name: str, book: Book) -> Iterable[str]:
        """Return the pods whose draws could be counted a second time."""
        yield from (pod.uid for pod in self._world.pods.drawn(name))
        for node in book.nodes.values():
            yield from self._world.pods.on(node.node_name)
            yield from node.claim.pods if node.claim is not None else ()

    def _forget(self, name: str) -> None:
        self.books.pop(name, None)
        self._teller.forget(name)
        self._looker.forget(name)

    def picture(self, name: str) -> Picture | None:
        """Return what is to be told of a pool now; None = it is gone."""
        pool = self._world.pools.get(name)
        if pool is None:
            return None
        book = self.books.get(name)
        return Picture(
            pool=pool,
            book=book,
            puller_problem=self._puller_problem(name),
            strangers=self._world.strangers_of(pool),
            starts=summary(self._world.starts, name),
            lacks_fetcher=bool(pool.spec and pool.spec.pool.models and not self._settings.fetch_image),
        )
