"""Whether failures come from too many requests at once, and since which number.

Where concurrency varied enough, the bins answer: the split of the bins that best separates a failing upper part from a
sound lower part. Where it did not, a trial does: fewer slots for a while.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaler.vertical.bins import Failures
from scaler.vertical.rows import Rows

TIMES_RATE = 2.0  # the upper part fails at least this often
SIGNIFICANT = 4.0  # standard errors
FEWEST_ERRORS = 10.0
_FEWEST_BELOW = 20.0  # requests behind the sound part
JUDGE_AFTER_ERRORS = 16.0  # expected ones, before a trial is judged: 8 were misjudged by chance once in seventy
TRIAL_WORKED_RATIO = 0.3  # rate under trial / before
MOST_TRIALS = 3
REST_CYCLES = 20  # after trials in vain; doubles with each series in vain
_LONGEST_REST_CYCLES = 320
_BURST_RATIO = 1.25
_NEVER_RATIO = 1e-9  # below it there is no scatter to measure
_FEWEST_CLEAN = 50.0  # requests, for a level to count as known to be clean
_LOWER_RATIO = 0.8  # of the median: a trial must differ
_SICK_SHARE = 0.8  # of all errors from one replica: that replica is sick, not the fleet too busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Fewer slots, to see whether errors go away.

    Attributes:
        limit: Slots meanwhile.
        before_ratio: Error ratio without.
        expected: Errors to expect at that ratio.
        seen: Errors.
        attempt: 1..MOST_TRIALS.
    """

    limit: float
    before_ratio: float
    expected: float = 0.0
    seen: float = 0.0
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """What is remembered of failures.

    Attributes:
        bad_k: Concurrency from which requests fail; None = none is known.
        trial: Going on.
        rest_cycles: Until the next trial may begin.
        in_vain: Series of trials that changed nothing, in a row.
    """

    bad_k: float | None = None
    trial: Trial | None = None
    rest_cycles: int = 0
    in_vain: int = 0


def split(seen: Failures, dispersion: float, acceptable_ratio: float) -> float | None:
    """Return the concurrency from which requests fail, or None where errors do not follow it.

    For every split of the bins: z = (p_above - p_below) / sqrt(p (1 - p) (1/n_above + 1/n_below) dispersion). Of the
    splits with z > 4, p_above >= 2 p_below, p_above > acceptable and >= 10 errors above, the likeliest (binomial). The
    concurrency is that of the lowest failing bin, at most a burst (1.25) above the highest sound one.
    """
    n, e = seen.ended, seen.failed
    if n.size < 2:
        return None
    n_below, e_below = np.cumsum(n)[:-1], np.cumsum(e)[:-1]
    n_above, e_above = n.sum() - n_below, np.maximum(e.sum() - e_below, 0.0)
    p_below, p_above, p = e_below / n_below, e_above / n_above, e.sum() / n.sum()
    spread = np.sqrt(max(p * (1 - p), 1e-12) * (1 / n_above + 1 / n_below) * max(dispersion, 1.0))
    is_tied = (
        ((p_above - p_below) / spread > SIGNIFICANT)
        & (p_above >= TIMES_RATE * p_below)
        & (p_above > acceptable_ratio)
        & (e_above >= FEWEST_ERRORS)
        & (n_below >= _FEWEST_BELOW)
    )
    if not is_tied.any():
        return None
    likelihood = np.where(is_tied, _likelihood(e_below, n_below) + _likelihood(e_above, n_above), -np.inf)
    at = int(np.argmax(likelihood))
    return float(min(seen.k[at + 1], _BURST_RATIO * seen.k[at]))


def dispersion(rows: Rows) -> float:
    """Return how much more the rows' errors scatter than chance around two rates, that of low and of high rows.

    mean((e - n p)^2 / (n p (1 - p))), p of the row's half in k. Errors that come in bursts (an outage of some seconds)
    are few pieces of evidence, however many requests they hit.
    """
    is_high = rows.in_flight > np.median(rows.in_flight)
    found = 1.0
    for half in (is_high, ~is_high):
        n, e = rows.completions[half], rows.errors[half]
        p = e.sum() / n.sum() if n.size else 0.0
        if p * (1 - p) > _NEVER_RATIO:
            found = max(found, float(np.mean((e - n * p) ** 2 / (n * p * (1 - p)))))
    return found


def one_is_sick(rows: Rows) -> bool:
    """Return whether one replica of at least three has 80 % of the errors without having had more requests at once."""
    each = np.bincount(rows.replica, rows.errors)
    seconds = np.bincount(rows.replica)
    if np.count_nonzero(seconds) < 3 or each.max() < _SICK_SHARE * each.sum():
        return False
    mean_k = np.bincount(rows.replica, rows.in_flight) / np.maximum(seconds, 1)
    others = np.delete(mean_k, int(np.argmax(each)))
    return bool(mean_k[int(np.argmax(each))] <= others.max())


def begun(rows: Rows, seen: Failures, acceptable_ratio: float) -> Trial | None:
    """Return a first trial: the highest level below the median that is known to be clean, else half the median."""
    median = float(np.median(rows.in_flight))
    is_clean = (seen.failed < acceptable_ratio / 2 * seen.ended) & (seen.ended >= _FEWEST_CLEAN)
    clean = seen.k[is_clean & (seen.k < _LOWER_RATIO * median)]
    limit = float(clean[-1]) if clean.size else median / 2
    ratio = float(rows.errors.sum() / rows.completions.sum())
    return Trial(limit=limit, before_ratio=ratio) if limit >= 1 else None


def continued(trial: Trial, rows: Rows) -> Trial:
    """Return the trial with a cycle more of evidence."""
    return Trial(
        limit=trial.limit,
        before_ratio=trial.before_ratio,
        expected=trial.expected + trial.before_ratio * float(rows.completions.sum()),
        seen=trial.seen + float(rows.errors.sum()),
        attempt=trial.attempt,
    )


def rest(errors: Errors) -> Errors:
    """Return the memory after a series of trials in vain."""
    cycles = min(REST_CYCLES * 2**errors.in_vain, _LONGEST_REST_CYCLES)
    return Errors(bad_k=errors.bad_k, rest_cycles=cycles, in_vain=min(errors.in_vain + 1, 10))


def _likelihood(errors: np.ndarray, ended: np.ndarray) -> np.ndarray:
    p = np.clip(errors / ended, 1e-9, 1 - 1e-9)
    return np.asarray(errors * np.log(p) + (ended - errors) * np.log(1 - p))
