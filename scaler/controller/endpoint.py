"""One endpoint: what is remembered of it, fed second by second, asked for decisions and lessons. It awaits nothing."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence

from fleet.errors import DecodeError
from scaler.balancer.values import BackendSecond
from scaler.controller.census import Order, census
from scaler.controller.facts import Change, Kept, Known, Load
from scaler.controller.join import Rejected, Row, join
from scaler.controller.learning import Learning
from scaler.controller.world import Key
from scaler.decision import Decision, Lesson, Sizing
from scaler.forecast.outlook import Outlook, OutlookState, look
from scaler.forecast.report import Minute, Report, account
from scaler.forecast.series import History
from scaler.forecast.stored import from_bytes, to_bytes
from scaler.horizontal.decide import decide
from scaler.horizontal.state import HorizontalState
from scaler.horizontal.track import Track
from scaler.policy import ForecastMode, Policy
from scaler.resource import Spec
from scaler.ring import Ring
from scaler.seen import Sample
from scaler.starts import StartTimes

LEARN_EVERY_S = 30.0
FORECAST_EVERY_S = 60.0
# A source speaks once a second, and waits up to 2 s for one of several balancers: after twice that it is silent.
SILENT_AFTER_S = 5.0
_NOBODY = census((), Order(replicas=None, at_s=0.0))


class Endpoint:
    """Memory of one endpoint.

    Attributes:
        key: Of its autoscaler.
        spec: In force.
        census: Replicas as last counted.
        learning: What one replica may hold.
        starts: How long starts take.
        decision: The last; None = none yet.
        change: The last that changed the count.
        outlook: The last forecast; None = none yet, or it is off.
        report: What the forecast would have changed.
        load: The last second.
        servers: What every balancer calls each pod, as last seen.
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
        self.learning = Learning(self.policy, kept, now_s)
        self.track.resize(self.policy, self.sizing)
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

    @property
    def sizing(self) -> Sizing:
        """Return what one replica may hold."""
        return self.learning.sizing

    @property
    def lesson(self) -> Lesson | None:
        """Return the last of the vertical axis; None = none yet, or nothing is learnt."""
        return self.learning.lesson

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
            self.learning.apply(policy, was_learnt=before.target.is_learnt)
        self.track.resize(policy, self.sizing)
        self.track.service.limit_s = self.learning.service_limit_s
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
        # Half of a replica's load beside the latency of all of it would teach that it is slow.
        if self.policy.target.is_learnt and not sample.is_partial:
            self.learning.take(sample.at_s, rows, self.census, self.known)

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
            survivors=self.learning.survivors,
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
        is_late = self._state is not None and self._state.late_s >= self.learning.begun_s
        before = self.sizing
        lesson = self.learning.turn(self.census, self.known, self.policy, now_s, is_late=is_late)
        if self.sizing != before:
            self.track.resize(self.policy, self.sizing)
        self.track.service.limit_s = self.learning.service_limit_s
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
            learnt=self.learning.learnt if self.policy.target.is_learnt else None,
            validated=self.learning.validated if self.policy.target.is_learnt else None,
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


def _restored(stored: bytes, wall_s: float) -> History:
    try:
        return from_bytes(stored, wall_s)
    except DecodeError:
        return History()
