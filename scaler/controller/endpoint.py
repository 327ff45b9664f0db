"""One endpoint: what is remembered of it, fed second by second, asked for decisions and lessons. It awaits nothing."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet.errors import DecodeError
from scaler.balancer.values import BackendSecond
from scaler.controller.census import Order, census
from scaler.controller.cycle import CycleRows
from scaler.controller.join import Rejected, Row, join
from scaler.controller.world import Key
from scaler.decision import Decision, Lesson, Sizing
from scaler.forecast.outlook import Outlook, OutlookState, look
from scaler.forecast.report import Minute, Report, account
from scaler.forecast.series import History
from scaler.forecast.stored import from_bytes, to_bytes
from scaler.horizontal.decide import decide
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.survivors import Survivors
from scaler.horizontal.track import Track
from scaler.policy import ForecastMode, Policy
from scaler.resource import Spec
from scaler.ring import Ring
from scaler.seen import Sample
from scaler.starts import StartTimes
from scaler.vertical.learn import learn
from scaler.vertical.learner import Learner
from scaler.vertical.lesson import sizing as sizing_of
from scaler.vertical.survivors import survivors

LEARN_EVERY_S = 30.0
FORECAST_EVERY_S = 60.0
# A source speaks once a second, and waits up to 2 s for one of several balancers: after twice that it is silent.
SILENT_AFTER_S = 5.0
_NOBODY = census((), Order(replicas=None, at_s=0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What outlives the process, in the autoscaler's status; None or empty = nothing was kept.

    Attributes:
        learnt: L.
        service_s: S.
        start_times_s: From order to Ready, newest last.
        forecast: The minutes of the last days, as `forecast.stored` writes them.
    """

    learnt: float | None = None
    service_s: float | None = None
    start_times_s: tuple[float, ...] = ()
    forecast: bytes = b""


@dataclass(slots=True)
class Load:
    """The last second, for people; None = not known."""

    at_s: float = float("-inf")
    in_flight: float | None = None
    queued: float | None = None
    rate_rps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The last decision that changed the count."""

    at_s: float
    before: int
    after: int
    reason: str
    text: str


@dataclass(slots=True)
class Known:
    """What the controller knows besides load, as of now.

    Attributes:
        changed_at_s: When the pod template was seen to change; -inf = never.
        metrics: Ratios by pod and name.
    """

    changed_at_s: float = float("-inf")
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Endpoint:
    """Memory of one endpoint.

    Attributes:
        key: Of its autoscaler.
        spec: In force.
        census: Replicas as last counted.
        sizing: What one replica may hold.
        starts: How long starts take.
        decision: The last; None = none yet.
        change: The last that changed the count.
        lesson: The last of the vertical axis; None = none yet, or nothing is learnt.
        outlook: The last forecast; None = none yet, or it is off.
        report: What the forecast would have changed.
        load: The last second.
        servers: The balancer's name of each pod, as last seen.
        rejected: What was dropped.
        is_unmatched: The last second's servers were none of the Ready pods.
        ring: The last hour.
    """

    def __init__(self, key: Key, spec: Spec, kept: Kept, now_s: float, wall_s: float) -> None:
        self.key = key
        self.spec = spec
        self.census = _NOBODY
        self.starts = StartTimes(prior_s=self.policy.behavior.start_time_s, ready_s=kept.start_times_s[-64:])
        self.decision: Decision | None = None
        self.change: Change | None = None
        self.lesson: Lesson | None = None
        self.outlook: Outlook | None = None
        self.report = Report()
        self.load = Load()
        self.servers: dict[str, str] = {}
        self.in_flight: dict[str, float] = {}
        self.rejected = Rejected()
        self.is_unmatched = False
        self.ring = Ring(now_s)
        self.known = Known()
        self.track = Track(self.policy, now_s, kept.service_s)
        self._state: HorizontalState | None = None
        self._learner = _learner(self.policy, kept.learnt)
        self.sizing = _sizing(self.policy, self._learner)
        self._survivors: Survivors | None = None
        self._rows = CycleRows(now_s)
        self._history = _restored(kept.forecast, wall_s) if self.policy.forecast is not ForecastMode.OFF else History()
        self._outlook_state = OutlookState()
        self._late = self._requests = 0.0
        self._phase = (zlib.crc32(str(key).encode()) % 10_000) / 10_000
        self._decided = self._turn(now_s, self.policy.behavior.period_s)
        self._learnt = self._turn(now_s, LEARN_EVERY_S)
        self._looked = self._turn(now_s, FORECAST_EVERY_S)

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.spec.policy

    def apply(self, spec: Spec) -> None:
        """Go on under another spec, keeping what was learnt as far as its bounds allow."""
        before, self.spec = self.policy, spec
        policy = spec.policy
        if policy == before:
            return
        if policy.behavior.start_time_s != before.behavior.start_time_s:
            self.starts = StartTimes(
                prior_s=policy.behavior.start_time_s, ready_s=self.starts.ready_s, scheduled_s=self.starts.scheduled_s
            )
        if policy.target != before.target:
            self._learner = _learner(policy, self._learner.limit if before.target.is_learnt else None)
            self.sizing = _sizing(policy, self._learner)
            self.lesson = None
        self.track.resize(policy, self.sizing)
        self._decided = -1

    def see(self, second: BackendSecond, extra: Mapping[str, float | None] | None = None) -> None:
        """Take one second of the balancer, with the further signals of now."""
        joined = join(second, self.census, self.rejected, extra or {})
        self.is_unmatched = joined.is_unmatched
        self.servers = {row.pod: row.server for row in joined.rows}
        self.in_flight = {row.pod: row.in_flight for row in joined.rows}
        self.take(joined.sample, joined.rows)

    def take(self, sample: Sample, rows: Sequence[Row] = ()) -> None:
        """Take one sample, with the rows of the replicas that it was summed from."""
        self.track.see(sample, self.census.fleet)
        self.ring.see(sample, self.census.fleet)
        self.load = Load(at_s=sample.at_s, in_flight=sample.in_flight, queued=sample.queued, rate_rps=sample.arrivals)
        self._requests += sample.arrivals or 0.0
        if self._is_late(sample):
            self._late += sample.arrivals or 0.0
        if self.policy.target.is_learnt:
            self._rows.add(sample.at_s, rows, self.known.metrics)

    def counted(self, wall_s: float, arrivals: float | None) -> None:
        """Take one second of arrivals for the forecast, on the wall clock."""
        if self.policy.forecast is not ForecastMode.OFF:
            self._history.see(wall_s, arrivals)

    def is_silent(self, now_s: float) -> bool:
        """Return whether the source should have said something by now."""
        return now_s - self.load.at_s > SILENT_AFTER_S

    def forget_orders(self) -> None:
        """Begin anew with the count that is found: this workload was not ours to scale until now."""
        self._state = None

    def pause(self, now_s: float) -> None:
        """Let a turn pass without a decision: the workload is not ours to scale."""
        self._decided = self._turn(now_s, self.policy.behavior.period_s)
        self.decision = None

    def is_due(self, now_s: float) -> bool:
        """Return whether to decide now: once a period, each endpoint at its own time, or somebody waits at zero."""
        if self.census.fleet.replicas == 0 and (self.track.held or 0.0) > 0:
            return True
        return self._turn(now_s, self.policy.behavior.period_s) != self._decided

    def decide(self, now_s: float) -> Decision:
        """Decide, and remember it."""
        self._decided = self._turn(now_s, self.policy.behavior.period_s)
        fleet = self.census.fleet
        state = self._state or HorizontalState.found(fleet.replicas, now_s)
        start_time_s = self.starts.planning_s
        decision, self._state = decide(
            self.track,
            fleet,
            self.sizing,
            self.policy,
            state,
            now_s,
            start_time_s=start_time_s,
            floor=self.outlook.floor if self.outlook else None,
            survivors=self._survivors,
        )
        self.decision = decision
        self.ring.decided(decision, self.sizing, start_time_s)
        return decision

    def learn_if_due(self, now_s: float) -> Lesson | None:
        """Return a lesson once every 30 s, each endpoint at its own time; None where none is due or nothing learnt."""
        turn = self._turn(now_s, LEARN_EVERY_S)
        if turn == self._learnt or not self.policy.target.is_learnt:
            return None
        self._learnt = turn
        begun_s = self._rows.begun_s
        cycle, self._rows = self._rows.close(
            now_s,
            replicas=self.census.fleet.ready,
            starting=self.census.fleet.starting,
            is_late=self._state is not None and self._state.late_s >= begun_s,
            since_rollout_s=now_s - self.known.changed_at_s,
        )
        lesson, self._learner = learn(cycle, self._learner, self.policy, now_s)
        self._survivors = survivors(self._learner, self.policy)
        if lesson.sizing != self.sizing:
            self.track.resize(self.policy, lesson.sizing)
        self.sizing, self.lesson = lesson.sizing, lesson
        return lesson

    def look_ahead_if_due(self, now_s: float, wall_s: float) -> None:
        """Renew the forecast once a minute, each endpoint at its own time, and keep its account."""
        turn = self._turn(now_s, FORECAST_EVERY_S)
        if turn == self._looked or self.policy.forecast is ForecastMode.OFF:
            return
        self._looked = turn
        fleet = self.census.fleet
        minute = Minute(
            ready=fleet.ready,
            ordered=fleet.replicas,
            requests=self._requests,
            late=self._late,
            service_s=self.track.service.seconds,
            target=self.sizing.target,
            max_replicas=self.policy.max_replicas,
        )
        self._requests = self._late = 0.0
        self.report = account(self.report, minute, self.outlook)
        self.outlook, self._outlook_state = look(self._history, self._outlook_state, wall_s, self.starts.planning_s)

    def kept(self) -> Kept:
        """Return what should outlive this process."""
        return Kept(
            learnt=self._learner.limit if self.policy.target.is_learnt else None,
            service_s=self.track.service.seconds,
            start_times_s=self.starts.ready_s,
        )

    def kept_forecast(self) -> bytes:
        """Return the forecast's minutes as bytes; empty where none is made."""
        return to_bytes(self._history) if self.policy.forecast is not ForecastMode.OFF else b""

    def _is_late(self, sample: Sample) -> bool:
        """Return whether who came in this second waits too long: queued x S / (slots x ready) > the promise."""
        service_s, ready = self.track.service.seconds, self.census.fleet.ready
        if not sample.queued or not service_s:
            return False
        work_s = sample.queued * service_s
        return work_s > self.policy.promise.queue_wait_s * ready * (self.sizing.slots or self.sizing.target)

    def _turn(self, now_s: float, period_s: float) -> int:
        return math.floor(now_s / period_s - self._phase)


def _learner(policy: Policy, learnt: float | None) -> Learner:
    return Learner.fresh(policy) if learnt is None else Learner.restored(policy, learnt)


def _sizing(policy: Policy, learner: Learner) -> Sizing:
    """Return what holds until the first lesson: the person's word, or what was learnt before the restart."""
    if not policy.target.is_learnt:
        return Sizing(target=policy.target.initial, slots=policy.target.limit)
    return sizing_of(learner, policy)


def _restored(stored: bytes, wall_s: float) -> History:
    try:
        return from_bytes(stored, wall_s)
    except DecodeError:
        return History()
