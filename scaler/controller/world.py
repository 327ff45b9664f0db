"""What the watches say, joined: autoscalers, the workloads they name, and who else claims these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fleet import labels
from fleet.errors import ConfigError
from scaler.controller.census import Order
from scaler.controller.objects import AutoscalerObject, NodeObject, RivalObject, ToldObject, WorkloadObject
from scaler.controller.pods import PodBook, Workload
from scaler.resource import Spec, spec_of

_REVISION = "deployment.kubernetes.io/revision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Which autoscaler."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """An autoscaler as read.

    Attributes:
        spec: The last valid one; None = there never was one.
        generation: Of the spec that was read last, valid or not.
        problems: What is wrong with that one; empty = it is valid.
        created: Creation stamp, to tell who came first.
        annotations: As they stand on the object.
        told: What its status says that is needed again.
        raw_spec: As it stands on the object, valid or not.
    """

    key: Key
    uid: str
    spec: Spec | None
    generation: int
    problems: tuple[str, ...]
    created: str
    annotations: Mapping[str, str]
    told: ToldObject
    raw_spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def workload(self) -> Workload | None:
        """Return what it scales."""
        if self.spec is None:
            return None
        target = self.spec.target
        return Workload(namespace=self.key.namespace, kind=target.kind, name=target.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A workload as read.

    Attributes:
        order: The count it is set to.
        version: resourceVersion, to write on nothing newer; "" = not known.
        template: Changes when its pods are made anew; "" = not known.
        changed_at_s: When we saw the template change; -inf = never.
    """

    order: Order
    version: str
    template: str = ""
    changed_at_s: float = float("-inf")


class Claim(StrEnum):
    """Whether a workload is an autoscaler's to scale."""

    OURS = "Found"
    ABSENT = "TargetNotFound"
    SHARED = "ClaimedByAnother"
    RIVAL = "HorizontalPodAutoscalerPresent"
    INVALID = "InvalidSpec"


@dataclass(slots=True)
class World:
    """All of it. Watches write, rounds read; no method waits.

    Attributes:
        hardware: What nodes with GPUs call them, by node.
        surges: How many of a workload's replicas were ordered beside the needed ones (surge.py), as last set.
    """

    pods: PodBook = field(default_factory=PodBook)
    autoscalers: dict[Key, Autoscaler] = field(default_factory=dict)
    targets: dict[Workload, Target] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)
    surges: dict[Workload, int] = field(default_factory=dict)
    _claims: dict[Workload, set[Key]] = field(default_factory=dict)
    _rivals: dict[str, Workload] = field(default_factory=dict)
    _contested: Counter[Workload] = field(default_factory=Counter)

    def set_autoscaler(self, obj: AutoscalerObject) -> Autoscaler:
        """Take an autoscaler; an invalid spec leaves the last valid one in force."""
        meta = obj.metadata
        key = Key(namespace=meta.namespace, name=meta.name)
        before = self.autoscalers.get(key)
        if before is not None and before.uid != meta.uid:
            self.remove_autoscaler(key)
            before = None
        spec, problems = before.spec if before else None, before.problems if before else ()
        if before is None or before.generation != meta.generation or not meta.generation:
            try:
                spec, problems = spec_of(obj.spec or {}), ()
            except ConfigError as error:
                problems = error.problems
        taken = Autoscaler(
            key=key,
            uid=meta.uid,
            spec=spec,
            generation=meta.generation,
            problems=problems,
            created=meta.creation_timestamp or "",
            annotations=meta.annotations or {},
            told=obj.status or ToldObject(),
            raw_spec=obj.spec or {},
        )
        if before is None or before.workload != taken.workload:
            self._unclaim(before)
            if taken.workload is not None:
                self._claims.setdefault(taken.workload, set()).add(key)
        self.autoscalers[key] = taken
        return taken

    def remove_autoscaler(self, key: Key) -> Autoscaler | None:
        """Take note that an autoscaler is gone."""
        gone = self.autoscalers.pop(key, None)
        self._unclaim(gone)
        return gone

    def set_workload(self, kind: str, obj: WorkloadObject, now_s: float) -> Workload:
        """Take a Deployment or StatefulSet."""
        meta = obj.metadata
        workload = Workload(namespace=meta.namespace, kind=kind, name=meta.name)
        template = (meta.annotations or {}).get(_REVISION) or (obj.status.update_revision if obj.status else None) or ""
        replicas = 1 if obj.spec.replicas is None else obj.spec.replicas
        self.set_target(workload, replicas, now_s, version=meta.resource_version, template=template)
        return workload

    def set_target(
        self,
        workload: Workload,
        replicas: int | None,
        now_s: float,
        *,
        version: str = "",
        template: str = "",
        tells_pods: bool | None = None,
    ) -> None:
        """Take the count that a workload is set to; what is older than what is known changes nothing.

        Versions of one collection can be compared as numbers (KEP-5504): a watch may lag behind our own write.
        """
        before = self.targets.get(workload)
        if before is not None and _is_older(version, before.version):
            return
        if tells_pods is None:
            tells_pods = before is None or before.order.tells_pods
        is_same = before is not None and before.order.replicas == replicas and before.order.tells_pods is tells_pods
        rolled = before is not None and bool(before.template) and bool(template) and template != before.template
        self.targets[workload] = Target(
            order=before.order
            if before is not None and is_same
            else Order(replicas=replicas, at_s=now_s, tells_pods=tells_pods),
            version=version,
            template=template or (before.template if before else ""),
            changed_at_s=now_s if rolled else before.changed_at_s if before else float("-inf"),
        )
        self.pods.touch(workload)

    def set_surge(self, workload: Workload, surge: int) -> None:
        """Take how many of the replicas that are ordered stand beside the needed ones."""
        if self.surges.get(workload) != surge:
            self.surges[workload] = surge
            self.pods.touch(workload)

    def remove_workload(self, workload: Workload) -> None:
        """Take note that a workload is gone."""
        self.targets.pop(workload, None)
        self.surges.pop(workload, None)
        self.pods.touch(workload)

    def set_node(self, obj: NodeObject) -> None:
        """Take a node: replicas on other GPUs hold another number of requests."""
        name, product = obj.metadata.name, (obj.metadata.labels or {}).get(labels.GPU_PRODUCT, "")
        if self.hardware.get(name, "") == product:
            return
        if product:
            self.hardware[name] = product
        else:
            del self.hardware[name]
        self.pods.touch_node(name)

    def remove_node(self, name: str) -> None:
        """Take note that a node is gone."""
        self.hardware.pop(name, None)

    def set_rival(self, obj: RivalObject) -> None:
        """Take a HorizontalPodAutoscaler."""
        target = obj.spec.scale_target_ref
        self.remove_rival(obj.metadata.uid)
        workload = Workload(namespace=obj.metadata.namespace, kind=target.kind, name=target.name)
        self._rivals[obj.metadata.uid] = workload
        self._contested[workload] += 1

    def remove_rival(self, uid: str) -> None:
        """Take note that one is gone."""
        workload = self._rivals.pop(uid, None)
        if workload is not None:
            self._contested[workload] -= 1
            if not self._contested[workload]:
                del self._contested[workload]

    def claim(self, autoscaler: Autoscaler) -> tuple[Claim, str]:
        """Return whether the autoscaler may scale its workload, and for people why not. The oldest claim stands."""
        workload = autoscaler.workload
        if workload is None:
            return Claim.INVALID, "; ".join(autoscaler.problems)
        what = f"{workload.kind} {workload.name}"
        if workload not in self.targets:
            return Claim.ABSENT, f"{what} does not exist in namespace {workload.namespace}"
        if workload in self._contested:
            return Claim.RIVAL, f"a HorizontalPodAutoscaler scales {what} too: delete one of the two"
        first = min(self._claims[workload], key=lambda key: (self.autoscalers[key].created, key.name))
        if first != autoscaler.key:
            return Claim.SHARED, f"ConcurrencyAutoscaler {first.name} scales {what} already: delete one of the two"
        return Claim.OURS, f"{what} is scaled"

    def claimants(self, workload: Workload) -> Iterable[Key]:
        """Return the autoscalers that name a workload."""
        return self._claims.get(workload, ())

    def _unclaim(self, autoscaler: Autoscaler | None) -> None:
        workload = autoscaler.workload if autoscaler else None
        if autoscaler is None or workload is None:
            return
        keys = self._claims.get(workload)
        if keys is not None:
            keys.discard(autoscaler.key)
            if not keys:
                del self._claims[workload]


def _is_older(version: str, known: str) -> bool:
    return version.isdigit() and known.isdigit() and int(version) < int(known)
