"""API paths. Names come from outside, so every part is quoted."""

from __future__ import annotations

from urllib.parse import quote

from fleet import labels

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
VOLUME_CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
RESOURCE_SLICES = "/apis/resource.k8s.io/v1/resourceslices"

RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
DEVICE_TAINT_RULES = "/apis/resource.k8s.io/v1/devicetaintrules"


def pods(namespace: str) -> str:
    """Return the path of one namespace's pods."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


def pod(namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of a pod or of one of its subresources (status, eviction, binding)."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def node(name: str) -> str:
    """Return the path of a node."""
    return f"{NODES}/{quote(name, safe='')}"


def resource_claim(namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of a ResourceClaim or of its status."""
    return custom("resource.k8s.io/v1", "resourceclaims", namespace=namespace, name=name, subresource=subresource)


def leases(namespace: str, name: str = "") -> str:
    """Return the path of a namespace's leases, or of one of them."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
    return f"{path}/{quote(name, safe='')}" if name else path


def events(namespace: str) -> str:
    """Return the path of a namespace's events (events.k8s.io/v1)."""
    return f"/apis/events.k8s.io/v1/namespaces/{quote(namespace, safe='')}/events"


def autoscalers(namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of all ConcurrencyAutoscalers, of one namespace's, of one, or of one's subresource."""
    path = f"/apis/{labels.DOMAIN}/{labels.AUTOSCALER_VERSION}"
    if namespace:
        path += f"/namespaces/{quote(namespace, safe='')}"
    path += f"/{labels.AUTOSCALER_PLURAL}"
    if name:
        path += f"/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def config_maps(namespace: str, name: str = "") -> str:
    """Return the path of a namespace's ConfigMaps, or of one of them."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"
    return f"{path}/{quote(name, safe='')}" if name else path


def custom(api_version: str, plural: str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Return the path of any kind: all objects, one namespace's, one, or one's subresource.

    Args:
        api_version: `group/version`, or `v1` alone.
        plural: Of the kind.
        namespace: "" = all, or a kind without namespaces.
        name: "" = the collection.
        subresource: "" = the object itself.
    """
    parts = ["/apis" if "/" in api_version else "/api", *(quote(part, safe="") for part in api_version.split("/"))]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts += [quote(plural, safe="")]
    parts += [quote(part, safe="") for part in (name, subresource) if part]
    return "/".join(parts)
