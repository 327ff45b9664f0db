"""API paths of what the scaler watches and scales, beside those that all parts share."""

from __future__ import annotations

from urllib.parse import quote

DEPLOYMENTS = "/apis/apps/v1/deployments"
STATEFUL_SETS = "/apis/apps/v1/statefulsets"
RIVALS = "/apis/autoscaling/v2/horizontalpodautoscalers"
BUILT_IN = {"Deployment": "deployments", "StatefulSet": "statefulsets"}


def group(api_version: str) -> str:
    """Return the path of an API group's version, such as /apis/apps/v1 or /api/v1. It comes from outside: quoted."""
    parts = "/".join(quote(part, safe="") for part in api_version.split("/"))
    return f"/apis/{parts}" if "/" in parts else f"/api/{parts}"
