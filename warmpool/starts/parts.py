"""One start, taken apart: waiting for a node, initialising, pulling, loading weights, starting the engine.

The moments are those that the API keeps of a pod, written by the API server (creation), the scheduler (PodScheduled)
and the kubelet (all others), in whole seconds. Between them::

    created --wait-- bound --init-- sandbox --pull-- init container starts --init or weights-- it ends --pull-- ...
    ... engine starts --weights-- WeightsLoaded --engine-- Ready

The API does not tell when a pull began and ended, so a gap before a container's start counts as pulling; where the
kubelet's events tell how long pulls took, the rest of the gap counts as initialising. Init containers that load weights
are told by name. Without a condition that says when the engine had them, weights loaded inside it are part of `engine`.
The parts of a finished start add up to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

# KServe's init container that downloads a model (kserve/kserve, pkg/constants).
WEIGHT_LOADERS = frozenset({"storage-initializer"})


class Part(StrEnum):
    """What a start is spent on, in order."""

    WAIT = "wait"
    INIT = "init"
    PULL = "pull"
    WEIGHTS = "weights"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One container.

    Attributes:
        started_s: When it started; None = not yet.
        ended_s: When it ended; None = it runs, or did not start.
    """

    name: str
    started_s: float | None = None
    ended_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """What the API keeps of one pod's start, seconds since the epoch; None = not yet, or not told.

    Attributes:
        created_s: Of the pod.
        bound_s: PodScheduled became True.
        sandbox_s: PodReadyToStartContainers became True.
        inits: Init containers in their order, sidecars left out.
        mains: The others.
        weights_s: The engine said that it has its weights (berthmaster.dev/WeightsLoaded).
        ready_s: Ready became True.
        weight_loaders: Names of init containers that load weights, besides those known.
    """

    created_s: float
    bound_s: float | None = None
    sandbox_s: float | None = None
    inits: tuple[Ran, ...] = ()
    mains: tuple[Ran, ...] = ()
    weights_s: float | None = None
    ready_s: float | None = None
    weight_loaders: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start.

    Attributes:
        parts_s: Seconds of each part that has begun; a part that is not there did not begin, or nobody could see it.
        doing: The part it is in; None = it is Ready.
        total_s: From creation to Ready, or until now.
    """

    parts_s: dict[Part, float] = field(default_factory=dict)
    doing: Part | None = None
    total_s: float = 0.0


def start_of(moments: Moments, now_s: float, pulls_s: Sequence[float] | None = None) -> Start:
    """Return what a start was, or so far is, spent on.

    Args:
        moments: Of the pod.
        now_s: Time since the epoch: how long the part lasts that it is in.
        pulls_s: How long each of its pulls took, as the kubelet's events tell; None = they were not asked.
    """
    walk = _Walk(moments.created_s)
    is_over = (
        walk.to(Part.WAIT, moments.bound_s)
        and walk.to(Part.INIT, _sandbox_s(moments))
        and _containers(walk, moments)
        and _engine(walk, moments)
    )
    if not is_over:
        walk.until(now_s)
    parts_s = walk.parts_s if pulls_s is None else _pulled(walk.parts_s, sum(pulls_s))
    return Start(parts_s=parts_s, doing=None if is_over else walk.doing, total_s=sum(parts_s.values()))


class _Walk:
    """Goes from moment to moment. Stamps of two machines may contradict each other: no part is below zero."""

    def __init__(self, begin_s: float) -> None:
        self.parts_s: dict[Part, float] = {}
        self.doing = Part.WAIT
        self._at_s = begin_s

    def to(self, part: Part, moment_s: float | None) -> bool:
        """Count until a moment as one part; False = the moment has not come, and the part goes on."""
        self.doing = part
        if moment_s is None:
            self.parts_s.setdefault(part, 0.0)
            return False
        self.parts_s[part] = self.parts_s.get(part, 0.0) + max(0.0, moment_s - self._at_s)
        self._at_s = max(self._at_s, moment_s)
        return True

    def until(self, now_s: float) -> None:
        """Count until now as the part that goes on."""
        self.to(self.doing, now_s)


def _sandbox_s(moments: Moments) -> float | None:
    """Return when containers could start: where nobody tells, when the pod was bound, if any has started since."""
    if moments.sandbox_s is not None:
        return moments.sandbox_s
    has_started = any(ran.started_s is not None for ran in (*moments.inits, *moments.mains))
    return moments.bound_s if has_started or moments.ready_s is not None else None


def _containers(walk: _Walk, moments: Moments) -> bool:
    loaders = WEIGHT_LOADERS | moments.weight_loaders
    for ran in moments.inits:
        work = Part.WEIGHTS if ran.name in loaders else Part.INIT
        if not (walk.to(Part.PULL, ran.started_s) and walk.to(work, ran.ended_s)):
            return False
    starts_s = [ran.started_s for ran in moments.mains]
    known_s = [start_s for start_s in starts_s if start_s is not None]
    if len(known_s) < len(starts_s) and moments.ready_s is None:
        return walk.to(Part.PULL, None)
    return walk.to(Part.PULL, max(known_s)) if known_s else True


def _engine(walk: _Walk, moments: Moments) -> bool:
    if moments.weights_s is not None:
        walk.to(Part.WEIGHTS, moments.weights_s)
    return walk.to(Part.ENGINE, moments.ready_s)


def _pulled(parts_s: dict[Part, float], pulls_s: float) -> dict[Part, float]:
    """Return the parts with no more pulling than the pulls took; the rest of those gaps went into making containers."""
    gap_s = parts_s.get(Part.PULL)
    if gap_s is None or pulls_s >= gap_s:
        return parts_s
    return {**parts_s, Part.PULL: pulls_s, Part.INIT: parts_s.get(Part.INIT, 0.0) + gap_s - pulls_s}
