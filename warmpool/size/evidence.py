"""What is known of the demand, whatever the goal: for every level of the forecast, what pools of every size would do.

Each minute m, with H = ceil(E[lead] / 60) + 1 minutes, W the draws of (m - H, m] and u = m - H::

    w = min(1, 6 max(2, q) / W);  q = sum (w W)^2 / sum w W          a flash crowd's vote is capped
    of the bin of u: draws += w W;  missed[S] += w missed[S];  idle[S] += idle[S]       half-life 28 days

An order at u is warm at m, so this is what size S would have been worth at a moment that looked like u: a sample
average over real windows, bunches and all. Bins are levels of the forecast lam = max(theta x, 2 % of the day's mean),
and each borrows 0.4^distance from its neighbours. Measured: bench/warmpool.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from warmpool.size.calendar import DAY_MIN
from warmpool.size.closed import loss
from warmpool.size.features import COUNT, Features, Regression
from warmpool.size.leads import LeadTimes
from warmpool.size.shadow import ShadowPools

Floats = NDArray[np.float64]

BINS: Final = 44
_STEP: Final = 0.22
LEAST: Final = 0.02
_KERNEL: Final = 0.4
_HALF_LIFE_H: Final = 28 * 24.0
_FLASH: Final = 6.0
_LEAST_BURST: Final = 2.0
_LEAST_DRAWS: Final = 20
_FIRST_DAYS_MIN: Final = 2 * DAY_MIN
# Neighbouring windows overlap: this many of them weigh as the Poisson law that fills what was not seen yet.
_PRIOR_WINDOWS: Final = 30.0
_LONGEST_WINDOW_MIN: Final = 240
_RETIME_RATIO: Final = 0.25
_HOUR_MIN: Final = 60
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
# A jump of the forecast's error: the last half hour against the usual, in squared errors over the forecast.
_JUMP: Final = 12.0
_JUMP_MIN: Final = 30
_LARGEST_ERROR: Final = 100.0
_LARGEST_FADE: Final = 0.5 ** (1 / 360)
# Six hours, so that a day can hold two events; four weeks of them.
_PEAK_MIN: Final = 360
_PEAKS: Final = 28 * 4
_SUPPORT: Final = 1.25
_SUPPORT_PART: Final = 0.25
_RECENT_MIN: Final = 60
_NORMAL_MIN: Final = 7 * DAY_MIN

LEVELS: Final[Floats] = LEAST * np.exp(_STEP * (np.arange(BINS) + 0.5))
_NEAR: Final[Floats] = _KERNEL ** np.abs(np.arange(BINS)[:, None] - np.arange(BINS)[None, :])


class Evidence:
    """Mutable sums of one pool, fed once a minute.

    Attributes:
        most: Largest size imagined.
        minute: Since the epoch; the first that is not known yet.
        window_min: H.
        features: What the forecast is made of.
        regression: Its weights.
        forecast: lam, draws within H from now.
        bin: Of the forecast now.
        vote: w of the last window.
        windows: Windows per bin, shape (BINS,), faded.
        draws: Draws per bin, likewise.
        missed: Missed draws per bin and size, shape (BINS, most + 1).
        idle_h: Idle node-hours per bin and size, likewise.
        poisson: (idle_h, missed) of one window by the Poisson law, each shape (BINS, most + 1).
        total: Draws ever seen.
        largest: Most draws in one window, half as much after six hours.
    """

    __slots__ = (
        "_bins", "_error", "_forecasts", "_gap_minute", "_has_seen", "_lead_s", "_past", "_peaks", "_q1", "_q2",
        "_recent", "_sample", "_shadow", "_smooth", "_usual_error", "_windows_seen", "bin", "burst_1", "burst_2",
        "draws", "features", "forecast", "idle_h", "largest", "minute", "missed", "most", "poisson", "regression",
        "total", "vote", "window_min", "windows",
    )  # fmt: skip

    def __init__(self, most: int, minute: int, leads: LeadTimes) -> None:
        """Begin with nothing seen.

        Args:
            most: Largest size imagined.
            minute: First minute that will be seen, since the epoch.
            leads: As far as they are known.
        """
        self.most = most
        self.minute = minute
        self.features = Features()
        self.regression = Regression()
        self.windows: Floats = np.zeros(BINS)
        self.draws: Floats = np.zeros(BINS)
        self.missed: Floats = np.zeros((BINS, most + 1))
        self.idle_h: Floats = np.zeros((BINS, most + 1))
        self._smooth: tuple[Floats, Floats, Floats] | None = None
        self.total = 0
        self.largest = 0.0
        self._q1 = self._q2 = 0.0
        self.burst_1 = self.burst_2 = 0.0
        self.vote = 1.0
        self._error = self._usual_error = 0.0
        self._windows_seen = 0
        self._sample = 0
        self._gap_minute = minute - 1
        self._has_seen = False
        self._recent: deque[float] = deque(maxlen=_RECENT_MIN)
        self._peaks: deque[float] = deque(maxlen=_PEAKS)
        self._shadow = ShadowPools(most, minute * 60.0)
        self.forecast = LEAST
        self.bin = 0
        self._retime(leads.mean_s)
        self._bins.append(self.bin)
        self._forecasts.append((np.zeros(COUNT), self.forecast))

    @property
    def burst(self) -> float:
        """Return q: the draws of the window in which an average draw finds itself; at least 2."""
        return max(_LEAST_BURST, self._q2 / self._q1) if self._q1 > 0 else _LEAST_BURST

    @property
    def bunch(self) -> float:
        """Return the same of single minutes, uncapped and at least 1: draws that came together are one event."""
        return max(1.0, self.burst_2 / self.burst_1) if self.burst_1 > 0 else 1.0

    @property
    def is_first_day(self) -> bool:
        """Return True until a day was seen."""
        return self.features.seen_min < DAY_MIN

    @property
    def is_off(self) -> bool:
        """Return True while the forecast errs far more, and below what comes, than it usually does."""
        return self._windows_seen >= DAY_MIN and self._error > _JUMP * max(1.0, self._usual_error)

    @property
    def supported(self) -> int:
        """Return the largest size that is not there for one event alone.

        Where one window holds more than a quarter of all draws, the second largest of four weeks counts, six hours away
        from it, a quarter and one node more: a crowd that came once is not prepared for until it comes again.
        """
        peaks = list(self._peaks)
        if max(peaks, default=0.0) <= _SUPPORT_PART * self.total:
            return self.most
        top = max(range(len(peaks)), key=peaks.__getitem__, default=0)
        others = [peak for place, peak in enumerate(peaks) if abs(place - top) > 1]
        return math.ceil(_SUPPORT * max(others, default=0.0)) + 1

    @property
    def recent_largest(self) -> float:
        """Return the most draws in one window of the last hour."""
        return max(self._recent, default=0.0)

    def sample(self, leads: LeadTimes) -> float:
        """Return the next lead time: the parts of the golden ratio spread evenly and repeat in every replay."""
        self._sample += 1
        return leads.quantile_s(self._sample * _GOLDEN % 1.0)

    def see(self, draws_s: Sequence[float] | None, freed: float, in_use: float | None, leads: LeadTimes) -> None:
        """Add the minute that has passed.

        Args:
            draws_s: When each node was drawn, hit or miss, in order; None = not known.
            freed: Nodes that stopped serving.
            in_use: Nodes that serve; None = not known.
            leads: As far as they are known.
        """
        minute = self.minute
        self._has_seen = True
        if draws_s is None:
            self._gap_minute = minute
        else:
            for at_s in draws_s:
                self._shadow.draw(at_s, self.sample(leads))
            came = float(len(draws_s))
            self.total += len(draws_s)
            self.burst_1 += came
            self.burst_2 += came * came
            usual = came if self.is_first_day else min(came, _FLASH * self.burst)
            self.features.see(minute, usual, freed, in_use)
        self._shadow.advance((minute + 1) * 60.0)
        self.minute = minute + 1
        self._vote()
        if self.minute % _HOUR_MIN == 0:
            self._settle(leads)
        self._look()

    def tables(self) -> tuple[Floats, Floats, Floats] | None:
        """Return (idle_h, missed, windows) with what the bins borrow from each other and from the Poisson law.

        Renewed hourly; None = before the first hour. Shapes (BINS, most + 1) twice and (BINS,).
        """
        return self._smooth

    @property
    def is_gap(self) -> bool:
        """Return whether the draws of the last minute are not known."""
        return self._gap_minute == self.minute - 1 and self._has_seen

    def leap(self, minute: int) -> None:
        """Go on after a long silence: nothing is known of it, what was learnt stays."""
        self.minute = minute
        self._gap_minute = minute - 1
        self._shadow = ShadowPools(self.most, minute * 60.0)
        self._retime(self._lead_s)
        self._look()

    def adopt(self, other: Evidence) -> None:
        """Take over what was learnt with another largest size; sizes never imagined are as the largest that was."""
        for name, value in other.numbers().items():
            self._take(name, value)
        self.windows, self.draws = other.windows.copy(), other.draws.copy()
        shared = min(self.most, other.most) + 1
        for mine, its in ((self.missed, other.missed), (self.idle_h, other.idle_h)):
            mine[:, :shared] = its[:, :shared]
            mine[:, shared:] = its[:, shared - 1 : shared]
        beyond = np.arange(self.most + 1 - shared) + 1.0
        self.idle_h[:, shared:] += beyond * self.windows[:, None] * self.window_min / 60.0
        self.features = other.features
        self._smoothen()
        self._look()

    def numbers(self) -> dict[str, Floats]:
        """Return the sums that are stored as they are."""
        state = (
            self.minute, self.total, self.largest, self._q1, self._q2, self.burst_1, self.burst_2, self.vote,
            self._error, self._usual_error, self._windows_seen, self._sample, self._gap_minute,
        )  # fmt: skip
        regression = self.regression
        return {
            "state": np.array(state, np.float64),
            "means": self.features.numbers(),
            "peaks": np.array(self._peaks, np.float64),
            "products": regression.products,
            "moments": regression.moments,
            "theta": regression.theta,
        }

    def arrays(self) -> dict[str, Floats]:
        """Return the tables, which may be stored a little coarser."""
        features = self.features
        return {
            "windows": self.windows,
            "draws": self.draws,
            "missed": self.missed,
            "idle_h": self.idle_h,
            "day": features.day.array.astype(np.float64),
            "week": features.week.array.astype(np.float64),
            "usual": features.usual.array.astype(np.float64),
        }

    def restore(self, found: Mapping[str, Floats]) -> None:
        """Take what `numbers` and `arrays` returned.

        Raises:
            KeyError: Something is not there.
            ValueError: Something has another shape.
        """
        for name in ("state", "means", "peaks", "products", "moments", "theta"):
            self._take(name, found[name])
        for name in ("windows", "draws", "missed", "idle_h"):
            mine: Floats = getattr(self, name)
            if found[name].shape != mine.shape or not np.isfinite(found[name]).all():
                raise ValueError(f"{name} has the shape {found[name].shape}, not {mine.shape}")
            mine[...] = found[name]
        for name, calendar in (
            ("day", self.features.day),
            ("week", self.features.week),
            ("usual", self.features.usual),
        ):
            calendar.restore(found[name])
        self.leap(self.minute)
        self._gap_minute = self.minute - 2
        self._smoothen()

    def _take(self, name: str, value: Floats) -> None:
        if name == "means":
            self.features.restore(value)
        elif name == "peaks":
            self._peaks.extend(float(one) for one in value)
        elif name == "state":
            self.minute, self.total = int(value[0]), int(value[1])
            self.largest, self._q1, self._q2, self.burst_1, self.burst_2, self.vote = map(float, value[2:8])
            self._error, self._usual_error = float(value[8]), float(value[9])
            self._windows_seen, self._sample, self._gap_minute = (int(one) for one in value[10:13])
            self._shadow = ShadowPools(self.most, self.minute * 60.0)
            self._retime(self._lead_s)
        else:
            getattr(self.regression, name)[...] = value

    def _vote(self) -> None:
        self._past.append((self.total, self._shadow.missed.copy(), self._shadow.idle_s / 3600.0))
        window = self.window_min
        if self._gap_minute == self.minute - 1:
            return
        before, missed_before, idle_before = self._past[0]
        _, missed, idle_h = self._past[-1]
        came = float(self.total - before)
        self.largest = max(self.largest * _LARGEST_FADE, came)
        if (self.minute - 1) // _PEAK_MIN != (self.minute - 2) // _PEAK_MIN or not self._peaks:
            self._peaks.append(0.0)
        if came > self._peaks[-1]:
            self._peaks[-1] = came
        self._recent.append(came)
        if len(self._past) <= window or self.minute - window <= self._gap_minute:
            return
        is_capped = not self.is_first_day and self.total >= _LEAST_DRAWS and came > 0
        self.vote = min(1.0, _FLASH * self.burst / came) if is_capped else 1.0
        voted = self.vote * came
        self._q1 += voted
        self._q2 += voted * voted
        if len(self._bins) < window:
            return
        place, (features, forecast) = self._bins[0], self._forecasts[0]
        self._windows_seen += 1
        self.windows[place] += 1.0
        self.draws[place] += voted
        self.missed[place] += self.vote * (missed - missed_before)
        self.idle_h[place] += idle_h - idle_before
        self.regression.add(features, voted, 1.0 / (forecast + 0.3))
        over = max(0.0, came - forecast)
        error = min(_LARGEST_ERROR, over * over / max(forecast, 0.5))
        self._error += (error - self._error) / _JUMP_MIN
        self._usual_error += (error - self._usual_error) / min(self._windows_seen, _NORMAL_MIN)

    def _look(self) -> None:
        """Forecast, and remember what was seen at this moment until its window has passed."""
        window = self.window_min
        features = self.features.at(self.minute, window)
        floor = max(LEAST, 0.02 * self.features.day_mean * window)
        self.forecast = max(float(self.regression.theta @ features), floor)
        self.bin = bin_of(self.forecast)
        self._bins.append(self.bin)
        self._forecasts.append((features, self.forecast))

    def _settle(self, leads: LeadTimes) -> None:
        fade = 0.5 ** (1.0 / _HALF_LIFE_H)
        self.windows *= fade
        self.draws *= fade
        self.missed *= fade
        self.idle_h *= fade
        self.burst_1 *= fade
        self.burst_2 *= fade
        self.regression.fade(fade)
        if self.features.seen_min >= _FIRST_DAYS_MIN:
            self.regression.solve()
        self._smoothen()
        if abs(leads.mean_s - self._lead_s) > _RETIME_RATIO * self._lead_s:
            self._retime(leads.mean_s)

    def _smoothen(self) -> None:
        idle_h, missed = self.poisson
        self._smooth = (
            _NEAR @ self.idle_h + _PRIOR_WINDOWS * idle_h,
            _NEAR @ self.missed + _PRIOR_WINDOWS * missed,
            _NEAR @ self.windows + _PRIOR_WINDOWS,
        )

    def _retime(self, lead_s: float) -> None:
        """Take another window; what was learnt per level stays, for levels are in draws within a window too."""
        self._lead_s = lead_s
        self.window_min = min(_LONGEST_WINDOW_MIN, max(2, math.ceil(lead_s / 60.0) + 1))
        size = self.window_min
        self._past: deque[tuple[int, Floats, Floats]] = deque(maxlen=size + 1)
        self._past.append((self.total, self._shadow.missed.copy(), self._shadow.idle_s / 3600.0))
        self._bins: deque[int] = deque(maxlen=size)
        self._forecasts: deque[tuple[Floats, float]] = deque(maxlen=size)
        self.poisson = _poisson(self.most, size / 60.0)


def bin_of(forecast: float) -> int:
    """Return the level that a forecast belongs to."""
    return min(BINS - 1, max(0, math.floor(math.log(max(forecast, LEAST) / LEAST) / _STEP)))


@lru_cache(maxsize=64)
def _poisson(most: int, window_h: float) -> tuple[Floats, Floats]:
    """Return idle node-hours and missed draws of a window at each level, by Erlang's loss formula."""
    lost = loss(LEVELS, most)
    missed = LEVELS[:, None] * lost
    idle_h = (np.arange(most + 1)[None, :] - LEVELS[:, None] * (1.0 - lost)) * window_h
    missed.flags.writeable = idle_h.flags.writeable = False  # shared by all pools
    return idle_h, missed
