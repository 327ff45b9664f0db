"""A recorded hour under other settings: what was, and what would have been. Pure.

The load is rebuilt from arrivals and the measured service time, the replicas are simulated, the rules decide as they do
in the controller. In a lead-in the rules gather memory while the recorded counts hold; both part from there on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fleet.errors import ConfigError
from scaler.decision import Reason, Sizing
from scaler.horizontal.horizon import hold_s
from scaler.policy import Policy
from scaler.ring import History
from scaler.seen import Fleet, Sample
from scaler.simulate.load import Load
from scaler.simulate.ours import Ours
from scaler.simulate.run import Run, simulate
from scaler.simulate.scorecard import moves
from scaler.simulate.world import World

_LONGEST_LEAD_IN_RATIO: Final = 1 / 3
_SHORTEST_S: Final = 60
_HALF_LIFE_S: Final = 120.0
_SHORTEST_SERVICE_S: Final = 0.001
_LONGEST_SERVICE_S: Final = 1e5  # as the rules hold S
_MOST_REQUESTS: Final = 50_000_000  # an hour of 14,000 a second; about 2 GB while it is run again
_USUAL_TARGET_RATIO: Final = 0.7  # of the slots, where no limit is known

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the compared part went.

    Attributes:
        replica_s: Replica-seconds of everything ordered: starting, ready and draining.
        late_ratio: Share of the requests that waited longer than promised, 0..1.
        changes: Times that the wanted count moved.
        reversals: Times that it moved in the other direction than before.
        peak_replicas: Most that were ready and starting together.
    """

    replica_s: float
    late_ratio: float
    changes: int
    reversals: int
    peak_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What was beside what would have been.

    Attributes:
        at_s: End of each compared second on the history's clock, shape (seconds,).
        requests: That came in the compared part.
        service_s: Mean time in a replica that the load was rebuilt with.
        unknown_ratio: Share of seconds without a usable sample; their load is drawn in a line between their neighbours.
        was: As recorded; late requests as the queue's length tells them, to the second.
        would: As simulated.
        wanted_was: Ready and starting in each second, shape (seconds,).
        wanted_would: Ready and starting in each second, shape (seconds,).
        reasons: What the simulated decisions were bound by, with the time of each that moved the count.
    """

    at_s: Floats
    requests: int
    service_s: float
    unknown_ratio: float
    was: Outcome
    would: Outcome
    wanted_was: Floats
    wanted_would: Floats
    reasons: tuple[tuple[float, int, Reason], ...]


def replay(history: History, policy: Policy, *, compare_from_s: float | None = None) -> Replay:
    """Run a recorded part of the past again under a policy.

    Sizing follows the recorded target within the policy's bounds where it is learnt, else it is the policy's own. Slots
    and start time are the recorded medians, else what the policy says.

    Args:
        history: What was recorded.
        policy: The settings to try.
        compare_from_s: On the history's clock; None = after the window that the rules must have seen before they
            shrink, or a third of a shorter history.

    Raises:
        ConfigError: The policy contradicts itself, or the history holds too little to be run again.
    """
    if problems := policy.problems():
        raise ConfigError(list(problems))
    past = _past(history)
    seconds = past.arrivals.size
    window_s = hold_s(policy.behavior, past.start_time_s(policy))
    skipped = int(min(window_s, seconds * _LONGEST_LEAD_IN_RATIO))
    if compare_from_s is not None:
        skipped = max(0, min(round(compare_from_s - history.from_s), seconds - 1))
    again = _Again(policy, history, past, skipped)
    run = simulate(
        past.load,
        again,
        World(
            slots=past.slots(policy),
            start_s=past.start_time_s(policy),
            initial_replicas=int(past.ready[0]),
            initial_starting=int(past.starting[0]),
            warmup_s=skipped,
            slo_s=policy.promise.queue_wait_s,
        ),
    )
    return Replay(
        at_s=history.from_s + np.arange(skipped, seconds, dtype=float),
        requests=round(float(past.arrivals[skipped:].sum())),
        service_s=past.service_s,
        unknown_ratio=past.unknown_ratio,
        was=past.outcome(skipped, policy.promise.queue_wait_s),
        would=_outcome(run, skipped),
        wanted_was=(past.ready + past.starting)[skipped:],
        wanted_would=(run.ready + run.starting)[skipped:].astype(float),
        reasons=tuple((history.from_s + at_s - 1, count, reason) for at_s, count, reason in again.moves),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """A history without gaps, and the load that follows from it."""

    arrivals: Floats
    queued: Floats
    ready: Floats
    starting: Floats
    draining: Floats
    service_s: float
    load: Load
    unknown_ratio: float
    recorded_slots: float | None
    recorded_start_s: float | None

    def slots(self, policy: Policy) -> float:
        if policy.target.limit is not None:
            return max(1.0, policy.target.limit)
        return max(1.0, self.recorded_slots or policy.target.initial / _USUAL_TARGET_RATIO)

    def start_time_s(self, policy: Policy) -> float:
        return policy.behavior.start_time_s if self.recorded_start_s is None else self.recorded_start_s

    def outcome(self, skipped: int, slo_s: float) -> Outcome:
        wanted = self.ready + self.starting
        changes, reversals = moves(wanted[skipped:].astype(np.int64))
        return Outcome(
            replica_s=float((wanted + self.draining)[skipped:].sum()),
            late_ratio=_late_ratio(self.arrivals, self.queued, skipped, slo_s),
            changes=changes,
            reversals=reversals,
            peak_replicas=int(wanted[skipped:].max()),
        )


class _Again:
    """Our rules with the sizing that was recorded, and during the lead-in with the recorded counts."""

    def __init__(self, policy: Policy, history: History, past: _Past, skipped: int) -> None:
        self._policy = policy
        self._limit = past.slots(policy) if policy.target.limit is not None or past.recorded_slots else None
        self._at_s = history.decisions["at_s"] - history.from_s + 1
        self._targets = history.decisions["target"]
        self._recorded = (past.ready + past.starting)[: skipped + 1]
        self._ours = Ours(policy, self._sizing(0.0), past.start_time_s(policy), service_s=past.service_s)
        self._ours.resize(self._ours.sizing)
        self.period_s = self._ours.period_s
        self.moves: list[tuple[float, int, Reason]] = []

    def see(self, sample: Sample, fleet: Fleet) -> None:
        """Take in one second."""
        self._ours.see(sample, fleet)

    def decide(self, now_s: float, fleet: Fleet) -> int:
        """Return the replicas wanted."""
        sizing = self._sizing(now_s)
        if sizing != self._ours.sizing:
            self._ours.resize(sizing)
        wanted = self._ours.decide(now_s, fleet)
        if now_s < self._recorded.size:
            return int(self._recorded[int(now_s)])
        if self._ours.last is not None and wanted != fleet.replicas:
            self.moves.append((now_s, wanted, self._ours.last.reason))
        return wanted

    def _sizing(self, now_s: float) -> Sizing:
        bounds = self._policy.target
        target = bounds.initial
        if bounds.is_learnt and self._targets.size:
            newest = max(0, int(np.searchsorted(self._at_s, now_s, side="right")) - 1)
            target = float(np.clip(self._targets[newest], bounds.minimum, bounds.maximum))
        return Sizing(target=target, slots=self._limit)


def _past(history: History) -> _Past:
    seconds = history.seconds
    arrivals = seconds["arrivals"]
    known = np.isfinite(arrivals) & np.isfinite(seconds["ready"])
    if known.sum() < _SHORTEST_S:
        raise ConfigError([f"the history holds {known.sum()} usable seconds, a replay needs at least {_SHORTEST_S}"])
    filled = {name: _filled(seconds[name]) for name in seconds}
    if not np.nansum(seconds["completions"]) > 0:
        raise ConfigError(["no request ended in this part of the history, there is nothing to replay"])
    requests = float(filled["arrivals"].sum() + filled["in_flight"][0] + filled["queued"][0])
    if requests > _MOST_REQUESTS:
        raise ConfigError(
            [f"{requests:.3g} requests are too many to run again, {_MOST_REQUESTS:.3g} are not: narrow it"]
        )
    service_s = _service_s(filled["in_flight"], filled["completions"])
    return _Past(
        arrivals=filled["arrivals"],
        queued=filled["queued"],
        ready=np.round(filled["ready"]),
        starting=np.round(filled["starting"]),
        draining=filled["draining"],
        service_s=float(service_s.mean()),
        load=_load(filled["arrivals"], service_s, filled["in_flight"][0], filled["queued"][0]),
        unknown_ratio=float(1 - known.mean()),
        recorded_slots=_median(history.decisions["slots"]),
        recorded_start_s=_median(history.decisions["start_time_s"]),
    )


def _filled(values: Floats) -> Floats:
    known = np.isfinite(values)
    if not known.any():
        return np.zeros_like(values)
    places = np.arange(values.size)
    return np.interp(places, places[known], values[known])


def _median(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else None


def _service_s(in_flight: Floats, completions: Floats) -> Floats:
    """Return S of each second by Little's law, sum F / sum C, both halved every 120 s on either side."""
    keep = 0.5 ** (1.0 / _HALF_LIFE_S)
    busy, ended = _smooth(in_flight, keep), _smooth(completions, keep)
    return np.clip(busy / np.maximum(ended, 1e-9), _SHORTEST_SERVICE_S, _LONGEST_SERVICE_S)


def _smooth(values: Floats, keep: float) -> Floats:
    """Return the sum of all values, each weighed by keep ** distance in seconds."""
    forth, back = values.copy(), values.copy()
    for place in range(1, values.size):
        forth[place] += keep * forth[place - 1]
        back[-1 - place] += keep * back[-place]
    return forth + back - values


def _load(arrivals: Floats, service_s: Floats, in_flight: float, queued: float) -> Load:
    """Return requests evenly spaced in each second, after those that were there when it began."""
    due = np.floor(np.cumsum(arrivals) + 1e-6).astype(np.int64)
    counts = np.diff(due, prepend=0)
    second = np.repeat(np.arange(arrivals.size), counts)
    place = np.arange(second.size) - np.repeat(due - counts, counts)
    running = max(0, round(in_flight - float(arrivals[0]) / 2 * min(1.0, float(service_s[0]))))
    before_s = np.concatenate(
        [(np.arange(running) + 0.5) / max(running, 1) * service_s[0], np.full(round(queued), service_s[0])]
    )
    return Load(
        arrival_s=np.concatenate([np.zeros(before_s.size), second + (place + 0.5) / counts[second]]),
        service_s=np.concatenate([np.maximum(before_s, _SHORTEST_SERVICE_S), service_s[second]]),
        duration_s=arrivals.size,
    )


def _late_ratio(arrivals: Floats, queued: Floats, skipped: int, slo_s: float) -> float:
    """Return the share of requests that waited longer than promised, from the curves of arrivals and starts.

    What came until second k has started by the first second j in which arrivals minus queue reach that many.
    """
    came = np.cumsum(arrivals)
    started = np.maximum.accumulate(came - queued)
    wait_s = np.searchsorted(started, came - 1e-6) - np.arange(came.size)
    counted = arrivals[skipped:]
    return float(counted[wait_s[skipped:] > slo_s].sum() / counted.sum()) if counted.sum() else 0.0


def _outcome(run: Run, skipped: int) -> Outcome:
    wait_s = run.wait_s[run.load.arrival_s >= skipped]
    cost = run.ready + run.starting + run.draining_s
    changes, reversals = moves(run.wanted[skipped:])
    return Outcome(
        replica_s=float(cost[skipped:].sum()),
        late_ratio=float((wait_s > run.world.slo_s).mean()) if wait_s.size else 0.0,
        changes=changes,
        reversals=reversals,
        peak_replicas=int((run.ready + run.starting)[skipped:].max()),
    )
