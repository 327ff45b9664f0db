"""The watch of PodGroups (scheduling.k8s.io), into the planner's world: how many members a gang needs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from binpack.controller.world import World
from binpack.gangs.roll import Group
from fleet import labels
from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.objects import MetaObject, Object
from fleet.kube.reflector import Reflector

log = logging.getLogger(__name__)


class GangPolicyObject(Object):
    """spec.schedulingPolicy.gang."""

    min_count: int = 0


class PolicyObject(Object):
    """spec.schedulingPolicy: `gang`, or `basic` for pods that are placed one by one."""

    gang: GangPolicyObject | None = None


class GroupSpecObject(Object):
    """spec of a PodGroup."""

    scheduling_policy: PolicyObject = msgspec.field(default_factory=PolicyObject)


class PodGroupObject(Object):
    """A scheduling.k8s.io/v1beta1 PodGroup (KEP-4671; served by Kubernetes 1.37 with the feature GenericWorkload)."""

    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: GroupSpecObject = msgspec.field(default_factory=GroupSpecObject)


class _Sink:
    """Sink of the watch."""

    def __init__(self, world: World, changed: Callable[[], None]) -> None:
        self._world = world
        self._changed = changed

    def upsert(self, obj: PodGroupObject) -> None:
        gang = obj.spec.scheduling_policy.gang
        size = max(0, gang.min_count) if gang is not None else 0
        self._world.together.group_seen(Group(namespace=obj.metadata.namespace, name=obj.metadata.name, size=size))
        self._changed()

    def delete(self, obj: PodGroupObject) -> None:
        self._world.together.group_gone(obj.metadata.namespace, obj.metadata.name)
        self._changed()

    def synced(self) -> None:
        """Nothing to do: groups are taken one by one."""


def watch_groups(
    client: Client, clock: Clock, world: World, changed: Callable[[], None] = lambda: None
) -> Reflector[PodGroupObject]:
    """Return the watch, not running yet; a cluster that does not serve PodGroups has none."""
    path = paths.custom(labels.POD_GROUP_API, labels.POD_GROUP_PLURAL)
    return Reflector(client, clock, path, PodGroupObject, _Sink(world, changed), keeps_last=False)
