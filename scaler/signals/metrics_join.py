"""Joins what Prometheus answered with the pods that exist: one value a pod, none for pods that are not asked about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from fleet.prom_answer import Series
from scaler.seen import Signal
from scaler.signals.metrics_values import PodKey
from scaler.signals.promql import IDENTITIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The last usable value of one reading of one pod.

    Attributes:
        value: Finite, at least 0.
        stamp_s: Its sample's stamp, on whichever clock stamped it: only ever compared with itself.
        taken_s: When it counts as taken, on the receiver's clock.
    """

    value: float
    stamp_s: float
    taken_s: float

    def signal(self, now_s: float, stale_after_s: float) -> Signal:
        """Return it as a signal of now."""
        return Signal(value=self.value, age_s=max(0.0, now_s - self.taken_s), stale_after_s=stale_after_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """One reading of all pods asked about, and what was not used.

    Attributes:
        taken: By pod; a pod that was missing this time keeps its last value, which ages.
        duplicates: Series beyond the first of a pod.
        foreign: Series of pods not asked about: deleted ones that still have a series, and everybody else's.
        nameless: Series that name no pod.
        impossible: Negative, or larger than the reading can be.
    """

    taken: Mapping[PodKey, Taken]
    duplicates: int = 0
    foreign: int = 0
    nameless: int = 0
    impossible: int = 0


def identity(labels: Mapping[str, str]) -> PodKey | None:
    """Return the pod that a series is about, None if it names none."""
    for namespace, pod in IDENTITIES:
        key = (labels.get(namespace, ""), labels.get(pod, ""))
        if key[0] and key[1]:
            return key
    return None


def join(
    series: Iterable[Series],
    pods: Collection[PodKey],
    before: Mapping[PodKey, Taken],
    *,
    received_s: float,
    asked_before_s: float | None,
    most: float,
) -> Joined:
    """Return the newest value of each pod.

    Age is received minus taken, where taken = received - (evaluation time - stamp) on Prometheus' clock. A node whose
    clock is behind stamps its samples late (the kubelet stamps cAdvisor's), so a stamp that moved on since the last
    question proves that its sample came after that: taken is then at least `asked_before_s`, whatever the stamp says.
    A stamp that stands still proves nothing new, and its value keeps ageing.

    Args:
        series: Dated ones.
        pods: That exist and matter; only they are in the result.
        before: The result of the question before.
        received_s: When this answer came, on the receiver's clock.
        asked_before_s: When the answer before it came; None = there was none.
        most: Largest possible value.
    """
    found: dict[PodKey, tuple[float, float, float]] = {}
    duplicates = foreign = nameless = impossible = 0
    for one in series:
        pod = identity(one.labels)
        if pod is None:
            nameless += 1
        elif pod not in pods:
            foreign += 1
        elif not 0 <= one.value <= most or one.stamp_s is None or one.age_s is None:
            impossible += 1
        elif pod in found:
            duplicates += 1
            value, stamp_s, age_s = found[pod]
            found[pod] = (max(value, one.value), max(stamp_s, one.stamp_s), min(age_s, one.age_s))
        else:
            found[pod] = (one.value, one.stamp_s, one.age_s)
    taken = {pod: last for pod, last in before.items() if pod in pods}
    for pod, (value, stamp_s, age_s) in found.items():
        last = before.get(pod)
        taken_s = received_s - age_s
        if last is not None and last.stamp_s == stamp_s:
            taken_s = last.taken_s
        elif last is not None and asked_before_s is not None:
            taken_s = max(taken_s, asked_before_s)
        taken[pod] = Taken(value=value, stamp_s=stamp_s, taken_s=taken_s)
    return Joined(taken=taken, duplicates=duplicates, foreign=foreign, nameless=nameless, impossible=impossible)
