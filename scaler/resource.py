"""What a person wrote in a ConcurrencyAutoscaler, as values: the last guard behind the API server's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.errors import ConfigError
from fleet.fields import FieldReader, shown
from scaler.policy import Behavior, ExtraSignal, ForecastMode, Mode, Policy, Promise, Style, TargetBounds

# What the API server allows in a path: group/version, the name of an object, and the kinds of custom resources.
_VERSION = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9][a-z0-9]*")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_BUILT_IN = frozenset({"Deployment", "StatefulSet"})  # told from others by their kind alone
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRef:
    """The workload that is scaled: anything in the same namespace with a scale subresource."""

    api_version: str
    kind: str
    name: str

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancerSignals:
    """Load measured at a balancer.

    Attributes:
        source: Name of a source in the controller's settings.
        backend: As the balancer calls it.
    """

    source: str
    backend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """Load measured by Prometheus; a query that is None is not asked.

    Attributes:
        source: Name of a source in the controller's settings.
        in_flight: Requests in progress, one series or one per replica (label `pod`).
        queued: Requests waiting.
        arrivals: Requests per second.
        completions: Requests per second.
        extra: Query of each further signal, by name.
    """

    source: str
    in_flight: str | None = None
    queued: str | None = None
    arrivals: str | None = None
    completions: str | None = None
    extra: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The whole spec: what is scaled, where its load is measured, and the policy."""

    target: TargetRef
    balancer: BalancerSignals | None
    queries: Queries | None
    policy: Policy


def policy_of(spec: Mapping[str, Any]) -> Policy:
    """Return the policy of a spec; defaults are those of the custom resource definition.

    Raises:
        ConfigError: With every field that cannot be read or that contradicts another.
    """
    return spec_of(spec).policy


def spec_of(spec: Mapping[str, Any]) -> Spec:
    """Return all that a spec says.

    Raises:
        ConfigError: With every field that cannot be read or that contradicts another.
    """
    reader = FieldReader()
    target = reader.part(spec, "targetRef")
    signals = reader.part(spec, "signals")
    read = Spec(
        target=TargetRef(
            api_version=reader.text(target, "targetRef.apiVersion", "apps/v1"),
            kind=reader.text(target, "targetRef.kind"),
            name=reader.text(target, "targetRef.name"),
        ),
        balancer=_balancer(reader, signals),
        queries=_queries(reader, signals),
        policy=_policy(reader, spec, signals),
    )
    if read.balancer is None and (read.queries is None or read.queries.in_flight is None):
        reader.problems.append("one of signals.balancer and signals.prometheus.inFlight must be given")
    if read.policy.extra and read.queries is None:
        reader.problems.append("signals.extra is asked of signals.prometheus.name, which is not given")
    if target:
        reader.problems.extend(_misnamed(read.target))
    limit = read.policy.target.limit
    if limit is not None and limit < read.policy.target.initial:
        reader.problems.append(
            f"targetConcurrency.initial {read.policy.target.initial:g} is above limit {limit:g}: "
            "a replica would never reach its target"
        )
    if not reader.problems:
        # Where a field could not be read, what stands in for it would only add problems that are none.
        reader.problems.extend(read.policy.problems())
    if reader.problems:
        raise ConfigError(reader.problems)
    return read


def _misnamed(target: TargetRef) -> list[str]:
    """Return what could not stand in a path of the API: a name must lead to the object it names, and nowhere else."""
    if target.kind in _BUILT_IN and target.api_version != "apps/v1":
        return [f"targetRef.apiVersion of a {target.kind} is apps/v1, got {shown(target.api_version)}"]
    return [
        f"targetRef.{name} cannot be {shown(value)}"
        for name, value, pattern in (
            ("apiVersion", target.api_version, _VERSION),
            ("kind", target.kind, _KIND),
            ("name", target.name, _NAME),
        )
        if value and not pattern.fullmatch(value)
    ]


def _policy(reader: FieldReader, spec: Mapping[str, Any], signals: Mapping[str, Any]) -> Policy:
    return Policy(
        min_replicas=reader.whole(spec, "minReplicas", 1),
        max_replicas=reader.whole(spec, "maxReplicas"),
        target=_target(reader, reader.part(spec, "targetConcurrency")),
        promise=_promise(reader, reader.part(spec, "slo")),
        behavior=_behavior(reader, reader.part(spec, "behavior")),
        extra=tuple(
            ExtraSignal(name=reader.text(item, f"{path}.name"), target=reader.number(item, f"{path}.target"))
            for path, item in reader.items(signals, "signals.extra")
        ),
        forecast=reader.word(reader.part(spec, "forecast"), "forecast.mode", ForecastMode, ForecastMode.OBSERVE),
        mode=reader.word(spec, "mode", Mode, Mode.ACT),
    )


def _target(reader: FieldReader, part: Mapping[str, Any]) -> TargetBounds:
    initial = reader.number(part, "targetConcurrency.initial")
    bounds = TargetBounds(initial=initial)
    return TargetBounds(
        initial=initial,
        minimum=reader.number(part, "targetConcurrency.min", min(bounds.minimum, initial)),
        maximum=reader.number(part, "targetConcurrency.max", max(bounds.maximum, initial)),
        is_learnt=reader.flag(part, "targetConcurrency.learn", default=True),
        limit=reader.optional(part, "targetConcurrency.limit"),
    )


def _promise(reader: FieldReader, part: Mapping[str, Any]) -> Promise:
    usual = Promise()
    return Promise(
        queue_wait_s=reader.number(part, "slo.queueWaitSeconds", usual.queue_wait_s),
        latency_s=reader.optional(part, "slo.latencySeconds"),
        error_ratio=reader.number(part, "slo.errorRatio", usual.error_ratio),
    )


def _behavior(reader: FieldReader, part: Mapping[str, Any]) -> Behavior:
    usual = Behavior()
    up, down = reader.part(part, "behavior.scaleUp"), reader.part(part, "behavior.scaleDown")
    return Behavior(
        style=reader.word(part, "behavior.mode", Style, usual.style),
        period_s=reader.number(part, "behavior.periodSeconds", usual.period_s),
        look_back_up_s=reader.number(up, "behavior.scaleUp.lookBackSeconds", usual.look_back_up_s),
        look_back_down_s=reader.number(down, "behavior.scaleDown.lookBackSeconds", usual.look_back_down_s),
        growth_ratio=reader.number(up, "behavior.scaleUp.maxRatio", usual.growth_ratio),
        growth_replicas=reader.whole(up, "behavior.scaleUp.maxReplicas", usual.growth_replicas),
        shrink_ratio=reader.number(down, "behavior.scaleDown.maxRatio", usual.shrink_ratio),
        to_zero_after_s=reader.number(part, "behavior.toZeroAfterSeconds", usual.to_zero_after_s),
        start_time_s=reader.number(part, "behavior.startTimeSeconds", usual.start_time_s),
    )


def _balancer(reader: FieldReader, signals: Mapping[str, Any]) -> BalancerSignals | None:
    if signals.get("balancer") is None:
        return None
    part = reader.part(signals, "signals.balancer")
    return BalancerSignals(
        source=reader.text(part, "signals.balancer.name"), backend=reader.text(part, "signals.balancer.backend")
    )


def _queries(reader: FieldReader, signals: Mapping[str, Any]) -> Queries | None:
    if signals.get("prometheus") is None:
        return None
    part = reader.part(signals, "signals.prometheus")
    return Queries(
        source=reader.text(part, "signals.prometheus.name"),
        in_flight=reader.text(part, "signals.prometheus.inFlight", "") or None,
        queued=reader.text(part, "signals.prometheus.queued", "") or None,
        arrivals=reader.text(part, "signals.prometheus.arrivals", "") or None,
        completions=reader.text(part, "signals.prometheus.completions", "") or None,
        extra=tuple(
            (reader.text(item, f"{path}.name"), reader.text(item, f"{path}.query"))
            for path, item in reader.items(signals, "signals.extra")
        ),
    )
