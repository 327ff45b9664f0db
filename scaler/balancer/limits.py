"""What each replica may hold, and how much of the traffic the canary takes, from what the vertical axis published.

The balancer's limit is min(1.25 L, memory, cliff) for every replica alike; the canary differs by its share of traffic,
so that one replica runs at L while the others run at the target (measured: bench/scaler).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet import labels
from scaler.balancer.stat import BackendLine, ServerLine
from scaler.balancer.values import ServerState
from scaler.vertical.canary import FEWEST_REPLICAS, canary_weight

# HAProxy's weights are whole numbers up to 256: the canary's largest, 10 times 16, fits.
_USUAL_WEIGHT = 16
_TARGET_SHARE = 0.7  # target / the validated part of L
_HEADROOM = 1.25  # limit / L, where neither memory nor a cliff binds
_STEADY = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What was published for one backend.

    Attributes:
        limit: Most requests in progress per replica; None = the balancer keeps its own.
        target: Requests in progress per replica that the horizontal axis aims at; None = not known.
        canary: The server that shall run at L, by slot name, IP:PORT or IP; "" = none.
    """

    limit: float | None = None
    target: float | None = None
    canary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One command for the balancer.

    Attributes:
        backend: Name.
        server: Name.
        limit: Most requests in progress, None = leave.
        weight: Share of traffic, None = leave.
    """

    backend: str
    server: str
    limit: int | None = None
    weight: int | None = None

    def commands(self) -> tuple[str, ...]:
        """Return it in the words of the runtime socket."""
        where = f"{self.backend}/{self.server}"
        limit = () if self.limit is None else (f"set maxconn server {where} {self.limit}",)
        return limit if self.weight is None else (*limit, f"set server {where} weight {self.weight}")


def allowance_of(annotations: Mapping[str, str]) -> tuple[Allowance, tuple[str, ...]]:
    """Return what an autoscaler's annotations say, and what in them cannot be used, naming annotation and value.

    A value that cannot be used counts as not published: what was set before stays in force.
    """
    problems: list[str] = []

    def number(name: str) -> float | None:
        text = annotations.get(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and 0 < value <= 1e6:
            return value
        problems.append(f"annotation {name} is {text[:40]!r}, not a number above 0")
        return None

    found = Allowance(
        limit=number(labels.CONCURRENCY_LIMIT),
        target=number(labels.TARGET_CONCURRENCY),
        canary=annotations.get(labels.CANARY_REPLICA, "").strip(),
    )
    return found, tuple(problems)


def settings(
    found: Iterable[BackendLine], allowances: Mapping[str, Allowance], balancers: int = 1
) -> tuple[Setting, ...]:
    """Return the commands that bring the balancer to what was published; empty where it is there already.

    Empty slots are set too: a replica that gets one must not run without its limit until the next turn.

    Args:
        found: Backends as they are.
        allowances: By backend name; a backend without one is left alone.
        balancers: How many balancers share the replicas; each may use its part of the limit, at least 1.
    """
    wanted: list[Setting] = []
    for backend in found:
        allowance = allowances.get(backend.name)
        if allowance is None:
            continue
        limit = None if allowance.limit is None else max(1, math.floor(allowance.limit / balancers + 1e-9))
        weights = _weights(backend, allowance, balancers)
        for server in backend.servers:
            weight = weights.get(server.name)
            change = Setting(
                backend=backend.name,
                server=server.name,
                limit=limit if limit != server.limit else None,
                weight=weight if weight != server.weight else None,
            )
            if change.limit is not None or change.weight is not None:
                wanted.append(change)
    return tuple(wanted)


def canary_of(backend: BackendLine, canary: str) -> ServerLine | None:
    """Return the serving server that is meant by slot name, IP:PORT or IP; None = it is gone or was never here."""
    if not canary:
        return None
    for server in backend.servers:
        names = (server.name, server.address, server.address.rpartition(":")[0].strip("[]"))
        if canary in names and server.state is ServerState.SERVING:
            return server
    return None


def learnt_of(allowance: Allowance) -> float | None:
    """Return L from what is published of it; None = neither limit nor target is.

    limit = min(1.25 L, memory, cliff) and target = 0.7 x the validated part of L, so L is at least the larger of the
    two it follows from, and at most the limit.
    """
    bounds = [
        bound
        for bound in (
            None if allowance.target is None else allowance.target / _TARGET_SHARE,
            None if allowance.limit is None else allowance.limit / _HEADROOM,
        )
        if bound is not None
    ]
    if not bounds:
        return None
    return max(bounds) if allowance.limit is None else min(allowance.limit, max(bounds))


def _weights(backend: BackendLine, allowance: Allowance, balancers: int) -> dict[str, int]:
    """Return wanted weights by server; all equal unless there is a canary among three or more, empty = leave.

    The canary holds L of what is in progress if it weighs as `canary_weight` says against the others.
    """
    serving = [server for server in backend.servers if server.state is ServerState.SERVING]
    canary = canary_of(backend, allowance.canary)
    learnt = learnt_of(allowance)
    if canary is None or len(serving) < FEWEST_REPLICAS or learnt is None:
        is_even = all(server.weight == serving[0].weight for server in serving)
        return {} if is_even else dict.fromkeys((server.name for server in backend.servers), _USUAL_WEIGHT)
    load = sum(server.in_flight for server in serving) + backend.queued
    ratio = canary_weight(learnt / balancers, load, len(serving))
    weights = dict.fromkeys((server.name for server in backend.servers), _USUAL_WEIGHT)
    # Close enough stays: a weight that follows every request would keep the canary from ever being steady.
    is_near = ratio / _STEADY < canary.weight / _USUAL_WEIGHT < ratio * _STEADY
    weights[canary.name] = canary.weight if is_near else round(_USUAL_WEIGHT * ratio)
    return weights
