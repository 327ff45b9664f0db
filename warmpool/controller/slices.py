"""How many GPUs the drivers of Dynamic Resource Allocation publish of each node: the proof that they can be given."""

from __future__ import annotations

from fleet.kube.objects import ResourceSliceObject
from fleet.kube.slices import devices_from


class SliceBook:
    """The resource slices of nodes, moved one by one."""

    def __init__(self) -> None:
        self._of_node: dict[str, dict[str, ResourceSliceObject]] = {}

    def set(self, obj: ResourceSliceObject) -> str:
        """Take a new or changed slice; return the node that it is of, "" = none."""
        node = obj.spec.node_name
        if node:
            self._of_node.setdefault(node, {})[obj.metadata.name] = obj
        return node

    def remove(self, obj: ResourceSliceObject) -> str:
        """Drop a slice; return the node that it was of, "" = none."""
        node = obj.spec.node_name
        of_node = self._of_node.get(node, {})
        of_node.pop(obj.metadata.name, None)
        if not of_node:
            self._of_node.pop(node, None)
        return node

    def devices(self, node: str) -> int | None:
        """Return how many sound GPUs the node's slices tell of; None while they tell of none, or a slice is missing."""
        problems: list[str] = []
        devices = devices_from(tuple(self._of_node.get(node, {}).values()), frozenset(), problems)
        if devices is None or problems:
            return None
        return sum(device.is_healthy for device in devices)
