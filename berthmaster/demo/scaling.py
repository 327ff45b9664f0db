"""The second act: one endpoint under real traffic, from a wrong guess to a learnt limit, a tenfold step, and sleep.

Everything is real but the model: kube-apiserver, the scaler, HAProxy, replicas as processes, an open-loop load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berthmaster.autoscaler_object import Autoscaler, autoscaler_of
from berthmaster.local.cluster import Cluster
from berthmaster.traffic.arrivals import poisson, steps
from berthmaster.traffic.generator import run_load
from berthmaster.traffic.ground import EndpointPlan, Ground
from berthmaster.traffic.tally import Tally, nearest_rank
from fleet.clock import Clock
from fleet.errors import ApiError, LocalClusterError
from fleet.kube.client import Client

ENDPOINT = "chat"
NAMESPACE = "traffic"
KNEE = 9
_LOOK_EVERY_S = 1.0
_ASLEEP_WITHIN_S = 120.0
_WAKING = 20
# The start is wrong on purpose: a target of 2 where a replica is good for about 9. The windows are short so that the
# way down fits into a demo; the defaults are 300 s.
SPEC: dict[str, Any] = {
    "minReplicas": 0,
    "maxReplicas": 24,
    "targetConcurrency": {"initial": 2},
    "slo": {"latencySeconds": 0.3},
    "behavior": {"scaleDown": {"lookBackSeconds": 20}, "toZeroAfterSeconds": 15, "startTimeSeconds": 5},
}
PLAN = EndpointPlan(name=ENDPOINT, namespace=NAMESPACE, spec=SPEC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of the load: from when, how much, and what for."""

    from_s: float
    rate_rps: float
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The load from its start to its end."""

    phases: tuple[Phase, ...] = (
        Phase(from_s=0, rate_rps=20, about="steady: the limit per replica is learnt"),
        Phase(from_s=60, rate_rps=200, about="ten times as much at once"),
        Phase(from_s=150, rate_rps=10, about="quiet again: replicas drain and go"),
    )
    end_s: float = 210.0
    seed: int = 42

    def at(self, elapsed_s: float) -> Phase:
        """Return the phase at a time."""
        return [phase for phase in self.phases if phase.from_s <= elapsed_s][-1]

    def schedule(self) -> tuple[float, ...]:
        """Return when requests are sent."""
        levels = [(phase.from_s, phase.rate_rps) for phase in self.phases]
        most = max(phase.rate_rps for phase in self.phases)
        return poisson(steps(*levels), until_s=self.end_s, most_rps=most, seed=self.seed)


@dataclass(slots=True)
class Moment:
    """What is seen once a second."""

    elapsed_s: float
    about: str
    rate_rps: float
    autoscaler: Autoscaler
    serving: int
    tally: Tally


@dataclass(slots=True)
class Outcome:
    """How the act ended.

    Attributes:
        most_serving: Replicas at the highest.
        step_s: From the tenfold step until as many replicas served as at the highest.
        learnt: Requests in progress per replica at the end, None = nothing was learnt.
        first_target: Where the target started.
        target: Where it ended.
        asleep_s: From the last request until no replica was left; None = it did not fall asleep.
        woken: What became of the requests sent to the sleeping endpoint.
        woken_s: When the last of them was answered, None = none was.
    """

    tally: Tally
    most_serving: int = 0
    step_s: float | None = None
    learnt: float | None = None
    first_target: float = 0.0
    target: float | None = None
    asleep_s: float | None = None
    woken: Tally = field(default_factory=Tally)
    woken_s: float | None = None
    late_ratio: float | None = None

    @property
    def lost(self) -> int:
        """Return how many requests got no good answer, the waking ones included."""
        return self.tally.due - self.tally.good + self.woken.due - self.woken.good


Show = Callable[[Moment], None]


async def perform(
    local: Cluster,
    client: Client,
    clock: Clock,
    directory: Path,
    story: Story,
    show: Show,
    *,
    plan: EndpointPlan = PLAN,
) -> Outcome:
    """Play the story and return how it ended.

    Args:
        local: With a scaler, and a node that takes pods.
        client: As somebody who may create namespaces, Deployments and autoscalers.
        clock: Time.
        directory: For sockets and logs.
        story: The load.
        show: Told once a second.
        plan: The endpoint.

    Raises:
        LocalClusterError: A part did not start, or the endpoint did not fall asleep.
        ApiError: The API server refused something.
    """
    outcome = Outcome(tally=Tally(), first_target=float(plan.spec["targetConcurrency"]["initial"]))
    async with Ground(local, client, clock, directory, plan) as ground:
        scene = _Scene(ground, client, clock, story, show, outcome)
        load = asyncio.ensure_future(run_load(ground.url, story.schedule(), clock, tally=outcome.tally))
        try:
            await scene.watch(load.done)
            load.result()
            await scene.fall_asleep()
            await scene.wake()
        finally:
            load.cancel()
            with suppress(asyncio.CancelledError):
                await load
    return outcome


class _Scene:
    """Looks once a second and keeps what is worth telling at the end."""

    def __init__(
        self, ground: Ground, client: Client, clock: Clock, story: Story, show: Show, outcome: Outcome
    ) -> None:
        self._ground = ground
        self._client = client
        self._clock = clock
        self._story = story
        self._show = show
        self._outcome = outcome
        self._started_s = clock.monotonic_s()

    async def watch(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            elapsed_s = self._elapsed_s
            phase = self._story.at(min(elapsed_s, self._story.end_s))
            await self._look(phase.about, phase.rate_rps if elapsed_s < self._story.end_s else 0.0)
        self._outcome.late_ratio = late_ratio(self._outcome.tally)

    async def fall_asleep(self) -> None:
        since_s = self._elapsed_s
        while self._ground.kubelet.pods:
            if self._elapsed_s - since_s > _ASLEEP_WITHIN_S:
                raise LocalClusterError(f"{ENDPOINT} did not fall asleep within {_ASLEEP_WITHIN_S:.0f} s")
            await self._look("no request: falling asleep", 0.0)
        self._outcome.asleep_s = self._elapsed_s - since_s

    async def wake(self) -> None:
        schedule = [0.05 * number for number in range(_WAKING)]
        load = asyncio.ensure_future(run_load(self._ground.url, schedule, self._clock, tally=self._outcome.woken))
        try:
            while not load.done():
                await self._look(f"{_WAKING} requests for a sleeping endpoint", 0.0)
            load.result()
        finally:
            load.cancel()
        self._outcome.woken_s = nearest_rank(sorted(self._outcome.woken.latencies_s), 1.0)

    async def _look(self, about: str, rate_rps: float) -> None:
        await self._clock.sleep(_LOOK_EVERY_S)
        try:
            seen = autoscaler_of(await self._client.get(self._ground.autoscaler_path))
        except ApiError:
            return
        serving, outcome, elapsed_s = self._ground.kubelet.serving, self._outcome, self._elapsed_s
        if serving > outcome.most_serving:
            outcome.most_serving = serving
            step_at_s = self._story.phases[1].from_s
            outcome.step_s = elapsed_s - step_at_s if elapsed_s > step_at_s else None
        if seen.status.target is not None:
            outcome.target = seen.status.target.concurrency
            outcome.learnt = seen.status.target.learnt
        self._show(
            Moment(
                elapsed_s=elapsed_s,
                about=about,
                rate_rps=rate_rps,
                autoscaler=seen,
                serving=serving,
                tally=outcome.tally,
            )
        )

    @property
    def _elapsed_s(self) -> float:
        return self._clock.monotonic_s() - self._started_s


def late_ratio(tally: Tally, within_s: float = 2.0) -> float | None:
    """Return the share of answered requests that took longer than `within_s`, None where none was answered."""
    if not tally.latencies_s:
        return None
    return sum(latency_s > within_s for latency_s in tally.latencies_s) / len(tally.latencies_s)
