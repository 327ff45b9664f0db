"""API paths of what the scaler reads and writes. Names come from outside, so every part is quoted."""

from __future__ import annotations

from urllib.parse import quote

from fleet import labels

_GROUP = f"/apis/{labels.DOMAIN}/{labels.AUTOSCALER_VERSION}"
AUTOSCALERS = f"{_GROUP}/{labels.AUTOSCALER_PLURAL}"
DEPLOYMENTS = "/apis/apps/v1/deployments"
STATEFUL_SETS = "/apis/apps/v1/statefulsets"
RIVALS = "/apis/autoscaling/v2/horizontalpodautoscalers"
BUILT_IN = {"Deployment": "deployments", "StatefulSet": "statefulsets"}


def autoscaler(namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of an autoscaler or of its status."""
    path = f"{_GROUP}/namespaces/{_quoted(namespace)}/{labels.AUTOSCALER_PLURAL}/{_quoted(name)}"
    return f"{path}/{subresource}" if subresource else path


def group(api_version: str) -> str:
    """Return the path of an API group's version, such as /apis/apps/v1 or /api/v1."""
    parts = "/".join(_quoted(part) for part in api_version.split("/"))
    return f"/apis/{parts}" if "/" in parts else f"/api/{parts}"


def scale(api_version: str, plural: str, namespace: str, name: str) -> str:
    """Return the path of a scale subresource."""
    return f"{group(api_version)}/namespaces/{_quoted(namespace)}/{_quoted(plural)}/{_quoted(name)}/scale"


def _quoted(part: str) -> str:
    return quote(part, safe="")
