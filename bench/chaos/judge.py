"""What must never be, over plain JSON: a pod bound where there was no room for it, a gang of which a part holds room.

The count is `berthmaster.recount`, which shares nothing with the planner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from berthmaster.recount import recount

Object = Mapping[str, Any]
_OVER = ("Succeeded", "Failed")


def is_over(pod: Object) -> bool:
    """Return whether a pod holds nothing any more."""
    return pod.get("status", {}).get("phase") in _OVER


def node_of(pod: Object) -> str:
    """Return the node a pod is bound to, "" if none."""
    return str(pod["spec"].get("nodeName", ""))


def note(obj: Object, name: str) -> str:
    """Return an annotation, "" if it is not there."""
    return str((obj["metadata"].get("annotations") or {}).get(f"berthmaster.dev/{name}", ""))


def mark(obj: Object, name: str) -> str:
    """Return a label, "" if it is not there."""
    return str((obj["metadata"].get("labels") or {}).get(f"berthmaster.dev/{name}", ""))


def is_gated(pod: Object) -> bool:
    """Return whether the planner's gate holds the pod."""
    return any(gate["name"] == "berthmaster.dev/plan" for gate in pod["spec"].get("schedulingGates", []))


def pinned_node(pod: Object) -> str:
    """Return the one node that an ungated pod's affinity names, "" if there is none."""
    if is_gated(pod):
        return ""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    names = {
        value
        for term in required.get("nodeSelectorTerms", [])
        for field in term.get("matchFields", [])
        if field["key"] == "metadata.name"
        for value in field["values"]
    }
    return names.pop() if len(names) == 1 else ""


def seat(pod: Object) -> tuple[str, tuple[str, ...]] | None:
    """Return node and devices of the seat that is kept for a gated pod."""
    node, _, devices = note(pod, "seat").partition("=")
    return (node, tuple(filter(None, devices.split(",")))) if node and is_gated(pod) else None


def wrong_with(pod: Object, residents: Sequence[Object], versions: Sequence[Object]) -> tuple[str, ...]:
    """Return what the pod's binding makes wrong that was not wrong without it.

    Args:
        pod: As it was bound.
        residents: The others on its node.
        versions: The node as it was lately, in the end as it is: whoever bound the pod may have known any of them.
    """
    least: tuple[str, ...] | None = None
    for node in versions:
        before = set(recount([node], residents).faults)
        added = tuple(fault for fault in recount([node], [*residents, pod]).faults if fault not in before)
        if not added:
            return ()
        least = added if least is None or len(added) < len(least) else least
    return least if least is not None else (f"pod {pod['metadata']['name']} is bound to a node that was never there",)


def over_allocated(nodes_in_full: Iterable[Object], pods: Iterable[Object]) -> tuple[str, ...]:
    """Return what an independent count over everything finds wrong.

    Args:
        nodes_in_full: Every node there ever was, as it was with all its devices: what dies under its pods is no error.
        pods: As one list of the API server.
    """
    return recount(nodes_in_full, [pod for pod in pods if not is_over(pod)]).faults


def torn_gangs(pods: Iterable[Object]) -> dict[str, str]:
    """Return the gangs of which some members hold room and fewer than the gang needs, and how they stand.

    Args:
        pods: Now, gangs alone of which no member ever went.
    """
    members: dict[str, list[Object]] = defaultdict(list)
    for pod in pods:
        if mark(pod, "gang"):
            members[mark(pod, "gang")].append(pod)
    found: dict[str, str] = {}
    for gang, group in members.items():
        holding = sum(bool(node_of(pod) or pinned_node(pod) or seat(pod)) for pod in group)
        needed = int(mark(group[0], "gang-size"))
        if 0 < holding < needed:
            found[gang] = f"{holding} of {needed} members of {gang} hold room"
    return found
