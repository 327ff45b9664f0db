"""One run: a cluster of a seed, planners that lead one after the other, and what happens to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from prometheus_client import CollectorRegistry

from binpack.config import MovesSettings, PlannerSettings
from binpack.controller import service
from binpack.controller.service import Planner
from binpack.controller.waiting import CAPACITY
from binpack.controller.world import World
from binpack.ledger import Ledger
from binpack.solver.instance import Budget
from binpack.solver.question import Answer, Question
from binpack.solver.solve import solve
from fleet import loop
from fleet.kube import paths, reflector
from fleet.kube.decode import node_from
from fleet.pod import Pod
from tests.support.builders import node_object, slice_object
from tests.support.clock import ManualClock, settle
from tests.support.storm.api import CLAIMS, DEPLOYMENTS, Key, StormApi
from tests.support.storm.cluster import Cluster, decoded
from tests.support.storm.makings import Makings
from tests.support.storm.referee import Referee


async def _here(work: Callable[[], bytes], wall_s: float) -> bytes:
    return work()


class _Thinker:
    """The solver in this very process; while it thinks the cluster goes on."""

    def __init__(self, rng: Random, clock: ManualClock) -> None:
        self._rng = rng
        self._clock = clock

    async def solve(self, question: Question, budget: Budget) -> Answer:
        answer = solve(question, budget)
        await self._clock.sleep(self._rng.choice((0.0, 0.1, 2.0)))
        return answer

    async def close(self) -> None:
        """Nothing to close."""


class _Crashes(logging.Handler):
    """Keeps every exception that somebody caught and logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] is not None:
            self.texts.append(f"{record.getMessage()}: {record.exc_info[1]!r}")
        elif record.levelno >= logging.ERROR:
            self.texts.append(record.getMessage())


class Storm:
    """A cluster and its planner; `step` lets something happen, `calm` waits until all is settled."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = ManualClock()
        self.api = StormApi(self.clock, self.rng)
        self.cluster = Cluster(self.api, self.clock, self.rng)
        self.referee = Referee(self.api)
        self.makings = Makings(self.cluster, self.rng)
        self.referee.forged = self.makings.forged
        self.said: list[str] = []
        self.settings = PlannerSettings(
            solve_s=self.rng.choice((0.0, 0.0, 0.05)),
            hand_over_after_s=10_000.0,
            preempts_past_budgets=self.rng.random() < 0.2,
            moves=MovesSettings(mode=self.rng.choice(("off", "act", "act")), waits_s=5.0, every_s=20.0),
        )
        self._crashes = _Crashes()
        # A run must be had again: moves are looked for in this very process, and pauses are drawn from the seed.
        seeded = SimpleNamespace(Random=lambda _: Random(seed))
        self._patches = [
            patch.object(service, "Proposer", partial(service.Proposer, aside=_here, solves=False)),
            patch.object(service, "SolverProcess", partial(_Thinker, self.rng)),
            patch.object(reflector, "random", seeded),
            patch.object(loop, "random", seeded),
        ]
        self._registry = CollectorRegistry()
        self._planner: Planner | None = None
        self._lead: asyncio.Task[Any] | None = None

    # -- planners --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Storm:
        logging.getLogger().addHandler(self._crashes)
        for one in self._patches:
            one.start()
        self.makings.begin()
        await self.lead()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.resign()
        for one in self._patches:
            one.stop()
        logging.getLogger().removeHandler(self._crashes)

    async def lead(self) -> None:
        """Let a fresh planner lead."""
        self._registry = CollectorRegistry()
        self._planner = Planner(cast(Any, None), self.clock, self.settings, self._registry)
        self._lead = asyncio.ensure_future(self._planner._lead(cast(Any, self.api)))
        await settle(200)

    async def resign(self) -> None:
        """End the planner where it stands."""
        if self._lead is not None:
            self._lead.cancel()
            with suppress(asyncio.CancelledError):
                await self._lead
            await settle()
        self.referee.crews.leader_died()
        self.api.forget_planner()

    @property
    def world(self) -> World:
        """Return what the planner knows."""
        assert self._planner is not None
        world = self._planner._world
        assert world is not None
        return world

    async def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.advance(seconds)
        await settle(60)

    # -- what happens ----------------------------------------------------------------------------------------------

    async def step(self) -> None:
        """Let one thing happen, and some time pass."""
        rng, api = self.rng, self.api
        roll = rng.random()
        if roll < 0.03:
            self._note("restart")
            await self.resign()
            await self.pass_s(rng.choice((0.0, 1.0)))
            await self.lead()
        elif roll < 0.06:
            self._note("watches break")
            api.break_watches(rng.choice(("", paths.PODS, paths.NODES)), is_expired=rng.random() < 0.3)
        elif roll < 0.55:
            self._note(self.makings.happen())
        if rng.random() < 0.7:
            self.cluster.beat()
        if rng.random() < 0.8:
            api.deliver(rng.choice(("", "", paths.PODS, paths.NODES, CLAIMS)), rng.choice((1, 3, 1000)))
        self.referee.placed = []
        await self.pass_s(rng.choice((0.0, 0.0, 0.03, 0.25, 1.0, 6.0)))
        if not (api.trouble or api.is_lagging):
            self.referee.spread()
        self.check()

    def _note(self, text: str) -> None:
        self.said.append(f"{self.clock.monotonic_s():.2f} {text}")

    def check(self) -> None:
        """See that nothing was wrong so far."""
        thrown_away = self._registry.get_sample_value("berthmaster_plan_violations_total")
        assert not thrown_away, "\n".join([*self.said[-25:], f"{thrown_away} violations of plans"])
        assert self._lead is not None
        if self._lead.done():
            self._lead.result()
        wrong = [*self.referee.found, *self._crashes.texts]
        assert not wrong, "\n".join([*self.said[-25:], *wrong])

    async def calm(self) -> None:
        """Let the weather be fine until everybody has done what there is to do, and see that all is well."""
        self._note("calm")
        self.api.trouble, self.api.is_lagging = 0.0, False
        self.api.deliver()
        for _ in range(60):
            self.cluster.beat()
            await self.pass_s(2.5)
            self.check()
        for _ in range(200):
            if not list(self.world.moves.open(self.clock.monotonic_s())):
                break
            self.cluster.beat()
            await self.pass_s(20.0)
            self.check()
        before = self.referee.writes
        await self.pass_s(60.0)
        idle = self.referee.writes - before
        assert idle < 100, f"{idle} writes in a minute in which nothing happened"
        stuck = [*self._stuck(), *self._apart(), *self._half_gangs(), *self._unfinished()]
        stuck += self.referee.crews.at_rest()
        assert not stuck, "\n".join([*self.said[-40:], *stuck])

    def _stuck(self) -> list[str]:
        """Return the pods that wait though a node has room for them as they are."""
        world, found = self.world, []
        for obj in self.api.objects[paths.PODS].values():
            pod = decoded(obj)
            if not pod.gates or pod.is_terminating or pod.problems or not pod.is_live or len(pod.gates) > 1:
                continue
            record = world.waiting.get(pod.uid)
            if record is None:
                found.append(f"{pod.key} is gated and does not wait: {self._whereabouts(pod)}")
            elif record.reason in CAPACITY and not _is_beyond(pod) and (place := self._place(world.pods[pod.uid])):
                found.append(f"{pod.key} waits ({record.reason.value}: {record.text}) and {place} has room")
        return found

    def _whereabouts(self, pod: Pod) -> str:
        world, key = self.world, (pod.namespace, pod.gang)
        known, together = world.pods.get(pod.uid), world.together
        is_due, is_called = key in together.due, key in together.called
        standing = together.standing_of(pod)
        return (
            f"known {known is not None}, queued {pod.uid in world.queue}, away {world.away.get(pod.uid)}, "
            f"due {is_due}, called {is_called}, {standing.call if standing else None}, "
            f"ready {[one.name for one in standing.ready] if standing else None}, gates {pod.gates}"
        )

    def _forged(self) -> list[Key]:
        return [key for key in self.makings.forged if key in self.api.objects[paths.PODS]]

    def _place(self, pod: Pod) -> str:
        """Return a node with room for the pod."""
        for _, name in sorted(self.api.objects[paths.NODES]):
            state = self.world.ledger.state(name)
            is_closed = pod.ask is not None and (state is None or state.blocked)
            is_forged = any(decoded(self.api.objects[paths.PODS][key]).node_name == name for key in self._forged())
            if not (is_closed or is_forged) and self.referee.is_free(pod, name):
                return name
        return ""

    def _apart(self) -> list[str]:
        """Return in what the planner's books are not those of one that starts now."""
        fresh, world = Ledger(), self.world
        slices = [slice_object(one) for one in self.api.objects[paths.RESOURCE_SLICES].values()]
        for obj in self.api.objects[paths.NODES].values():
            name = obj["metadata"]["name"]
            fresh.set_node(node_from(node_object(obj), [one for one in slices if one.spec.node_name == name]))
        for obj in self.api.objects[paths.PODS].values():
            fresh.set_pod(decoded(obj))
        found: list[str] = []
        if fresh.picture() != world.ledger.picture():
            mine, theirs = fresh.picture(), world.ledger.picture()
            found += [f"ledger: {a}\n  not {b}" for a, b in zip(theirs.states, mine.states, strict=False) if a != b]
            found.append(f"ledger: {theirs.homeless} {theirs.warnings} not {mine.homeless} {mine.warnings}")
        if world.away:
            found.append(f"away: {world.away}")
        for name in fresh.names():
            state, known = world.node(name), world.ledger.state(name)
            if state is not None and known is not None and state.free != known.free:
                found.append(f"index: {name} {state.free} not {known.free}")
        return found

    def _unfinished(self) -> list[str]:
        """Return what is left of moves: marks, and replicas beyond those that people asked for."""
        found = [
            f"{key[1]} is still marked: {pod.moving_to} {pod.moving_by}"
            for key, obj in self.api.objects[paths.PODS].items()
            if ((pod := decoded(obj)).moving_to or pod.moving_by) and pod.is_live and key not in self.makings.forged
        ]
        for key, service_ in self.api.objects[DEPLOYMENTS].items():
            if service_["spec"]["replicas"] != self.makings.wanted[key]:
                found.append(f"{key[1]} has {service_['spec']['replicas']} of {self.makings.wanted[key]} replicas")
        return found

    def _half_gangs(self) -> list[str]:
        """Return gangs of which some are placed and others wait, though nobody took any member away."""
        gangs: dict[tuple[str, str], list[Pod]] = {}
        for obj in self.api.objects[paths.PODS].values():
            pod = decoded(obj)
            if pod.gang and not pod.is_terminating:
                gangs.setdefault((pod.namespace, pod.gang), []).append(pod)
        return [
            f"gang {name}: {sum(not pod.gates for pod in pods)} of {pods[0].gang_size} placed"
            for (_, name), pods in gangs.items()
            if name not in self.makings.torn | self.referee.torn
            and 0 < sum(not pod.gates for pod in pods) < pods[0].gang_size <= len(pods)
        ]


def _is_beyond(pod: Pod) -> bool:
    """Return True for a pod of which the referee cannot tell where it may go."""
    guest = pod.guest
    has_rules = guest.affinity or any(spread.is_hard for spread in guest.spreads)
    return bool(pod.gang or pod.resource_claims or pod.claims or has_rules or pod.seat)
