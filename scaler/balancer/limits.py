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

# HAProxy's weights are whole numbers from 1 to 256. Others at 16 leave room for a share of 1/16 to 16 times.
_USUAL_WEIGHT = 16
_LARGEST_WEIGHT = 256
_TARGET_SHARE = 0.7  # target / L
_FEWEST_WITH_CANARY = 3
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


def _weights(backend: BackendLine, allowance: Allowance, balancers: int) -> dict[str, int]:
    """Return wanted weights by server; all equal unless there is a canary among three or more, empty = leave.

    With F requests in progress on n servers, least connections by weight gives each its weight's share of F. The canary
    holds L and each other one (F - L)/(n - 1) if its weight is L (n - 1) / (F - L) times theirs.
    """
    serving = [server for server in backend.servers if server.state is ServerState.SERVING]
    canary = canary_of(backend, allowance.canary)
    if canary is None or len(serving) < _FEWEST_WITH_CANARY or allowance.target is None:
        is_even = all(server.weight == serving[0].weight for server in serving)
        return {} if is_even else dict.fromkeys((server.name for server in backend.servers), _USUAL_WEIGHT)
    learnt = allowance.target / _TARGET_SHARE
    if allowance.limit is not None:
        learnt = min(learnt, allowance.limit)
    learnt /= balancers
    others = sum(server.in_flight for server in serving) + backend.queued - learnt
    # Never below the others' share: under overload everybody is full anyway.
    ratio = max(1.0, learnt * (len(serving) - 1) / others) if others > 0 else float(_LARGEST_WEIGHT)
    usual = max(1, min(_USUAL_WEIGHT, math.floor(_LARGEST_WEIGHT / ratio)))
    wanted = min(_LARGEST_WEIGHT, round(usual * ratio))
    weights = dict.fromkeys((server.name for server in backend.servers), usual)
    weights[canary.name] = wanted
    others_weight = next(server.weight for server in serving if server is not canary)
    is_near = others_weight > 0 and ratio / _STEADY < canary.weight / others_weight < ratio * _STEADY
    if is_near and all(server.weight == others_weight for server in serving if server is not canary):
        # Close enough: a weight that follows every request would keep the canary from ever being steady.
        weights = dict.fromkeys(weights, others_weight) | {canary.name: canary.weight}
    return weights
