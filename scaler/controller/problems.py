"""Why an endpoint's load is not known, in words for its status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from scaler.controller.endpoint import Endpoint
from scaler.controller.meters import Meters
from scaler.controller.ports import LoadSource


def signal_problem(endpoint: Endpoint, sources: Mapping[str, LoadSource], meters: Mapping[str, Meters]) -> str:
    """Return what is wrong with the sources that an endpoint names; "" = nothing."""
    balancer, queries = endpoint.spec.balancer, endpoint.spec.queries
    found: list[str] = []
    if balancer is not None and balancer.source not in sources:
        found.append(f"no balancer {balancer.source!r} is defined in the scaler's sources: {_known(sources)}")
    elif balancer is not None:
        failures = [state.failure for state in sources[balancer.source].states()]
        if failures and all(failures):
            found.append(f"balancer {balancer.source}: {failures[0]}")
    if queries is not None and queries.source not in meters:
        found.append(f"no Prometheus {queries.source!r} is defined in the scaler's sources: {_known(meters)}")
    elif queries is not None:
        found.extend(meters[queries.source].problems(endpoint.key))
    return "; ".join(found)


def _known(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "there are none"
