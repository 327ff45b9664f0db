"""Three watches (pods, nodes, resource slices) into one ledger: shared by planner and extender."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from binpack.ledger import Ledger
from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode import node_from, pod_from
from fleet.kube.objects import NodeObject, PodObject, ResourceSliceObject
from fleet.kube.reflector import Reflector
from fleet.kube.wire import Unreadable
from fleet.pod import Pod

log = logging.getLogger(__name__)

Skipped = Callable[[str, str], None]


class PodListener(Protocol):
    """Who else wants to know of pods, after the ledger does."""

    def pod_seen(self, pod: Pod) -> None:
        """Take note of a new or changed pod."""
        ...

    def pod_gone(self, uid: str) -> None:
        """Take note that the object is gone."""
        ...


class SliceListener(Protocol):
    """Who else wants to know of resource slices, after the node does."""

    def slice_seen(self, obj: ResourceSliceObject) -> None:
        """Take note of a new or changed slice."""
        ...

    def slice_gone(self, obj: ResourceSliceObject) -> None:
        """Take note that the object is gone."""
        ...


class _Pods:
    """Sink of the pod watch."""

    def __init__(
        self, ledger: Ledger, listener: PodListener | None, changed: Callable[[], None], skipped: Skipped
    ) -> None:
        self._ledger = ledger
        self._listener = listener
        self._changed = changed
        self._skipped = skipped

    def upsert(self, obj: PodObject) -> None:
        try:
            pod = pod_from(obj)
            self._ledger.set_pod(pod)
            if self._listener is not None:
                self._listener.pod_seen(pod)
        except Exception:
            # Broad on purpose: an object that we fail on must not end the watch of all the others.
            log.exception("pod %s/%s could not be dealt with", obj.metadata.namespace, obj.metadata.name)
            self._skipped("pod", obj.metadata.name)
        self._changed()

    def delete(self, obj: PodObject) -> None:
        self._ledger.remove_pod(obj.metadata.uid)
        if self._listener is not None:
            self._listener.pod_gone(obj.metadata.uid)
        self._changed()

    def synced(self) -> None:
        self._changed()


class _Nodes:
    """Sinks of the node and slice watches, which meet in one value per node."""

    def __init__(self, ledger: Ledger, changed: Callable[[], None], skipped: Skipped) -> None:
        self._ledger = ledger
        self._changed = changed
        self._skipped = skipped
        self._nodes: dict[str, NodeObject] = {}
        self._slices: dict[str, dict[str, ResourceSliceObject]] = {}

    def upsert(self, obj: NodeObject) -> None:
        name = obj.metadata.name
        self._nodes[name] = obj
        try:
            self._ledger.set_node(node_from(obj, tuple(self._slices.get(name, {}).values())))
        except Exception:
            # Broad on purpose: see pods. A node that we fail on takes no pods.
            log.exception("node %s could not be dealt with", name)
            self._ledger.remove_node(name)
            self._skipped("node", name)
        self._changed()

    def delete(self, obj: NodeObject) -> None:
        self._nodes.pop(obj.metadata.name, None)
        self._ledger.remove_node(obj.metadata.name)
        self._changed()

    def synced(self) -> None:
        self._changed()

    def upsert_slice(self, obj: ResourceSliceObject) -> None:
        name = obj.spec.node_name
        if name:
            self._slices.setdefault(name, {})[obj.metadata.name] = obj
            self._refresh(name)

    def delete_slice(self, obj: ResourceSliceObject) -> None:
        name = obj.spec.node_name
        of_node = self._slices.get(name, {})
        of_node.pop(obj.metadata.name, None)
        if not of_node:
            self._slices.pop(name, None)
        self._refresh(name)

    def _refresh(self, name: str) -> None:
        obj = self._nodes.get(name)
        if obj is not None:
            self.upsert(obj)


class _Slices:
    """Sink of the slice watch; hands on to `_Nodes` and to who else wants to know."""

    def __init__(self, nodes: _Nodes, listener: SliceListener | None, skipped: Skipped) -> None:
        self._nodes = nodes
        self._listener = listener
        self._skipped = skipped

    def upsert(self, obj: ResourceSliceObject) -> None:
        self._nodes.upsert_slice(obj)
        if self._listener is not None:
            try:
                self._listener.slice_seen(obj)
            except Exception:
                # Broad on purpose: see pods.
                log.exception("resource slice %s could not be dealt with", obj.metadata.name)
                self._skipped("resource slice", obj.metadata.name)

    def delete(self, obj: ResourceSliceObject) -> None:
        self._nodes.delete_slice(obj)
        if self._listener is not None:
            self._listener.slice_gone(obj)

    def synced(self) -> None:
        """Nothing to do: nodes are refreshed slice by slice."""


class Feed:
    """Keeps a ledger equal to the API for as long as `run` runs.

    Args:
        client: Connected client.
        clock: Time for back-off and staleness.
        ledger: Filled and kept up to date; the caller owns reading it.
        listener: Told of every pod after the ledger.
        slice_listener: Told of every resource slice after its node.
        changed: Called after every event, for a loop that wants waking.
        skipped: Told kind and name of every object that had to be skipped, after the log was.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ledger: Ledger,
        *,
        listener: PodListener | None = None,
        slice_listener: SliceListener | None = None,
        changed: Callable[[], None] = lambda: None,
        skipped: Skipped = lambda kind, name: None,
    ) -> None:
        nodes = _Nodes(ledger, changed, skipped)
        pods = _Pods(ledger, listener, changed, skipped)

        def unreadable(kind: str) -> Callable[[Unreadable], None]:
            return lambda what: skipped(kind, what.key)

        self._reflectors = (
            # A deleted slice must name its node, so its last state is kept; pods and nodes are known by uid and name.
            Reflector(
                client,
                clock,
                paths.RESOURCE_SLICES,
                ResourceSliceObject,
                _Slices(nodes, slice_listener, skipped),
                on_unreadable=unreadable("resource slice"),
            ),
            Reflector(
                client, clock, paths.NODES, NodeObject, nodes, keeps_last=False, on_unreadable=unreadable("node")
            ),
            Reflector(client, clock, paths.PODS, PodObject, pods, keeps_last=False, on_unreadable=unreadable("pod")),
        )

    @property
    def is_synced(self) -> bool:
        """Return True once all three lists are in the ledger."""
        return all(reflector.is_synced for reflector in self._reflectors)

    @property
    def seen_at_s(self) -> float:
        """Return when the quietest of the three watches last heard anything (monotonic)."""
        return min(reflector.seen_at_s for reflector in self._reflectors)

    async def run(self) -> None:
        """Watch until cancelled; the end of one watch ends all, loudly."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    async def refresh(self) -> None:
        """List everything again from quorum; a new leader needs that before it writes."""
        await asyncio.gather(*(reflector.refresh() for reflector in self._reflectors))
