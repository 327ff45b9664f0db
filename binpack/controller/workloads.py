"""Who makes a pod's replicas and who sets their count, as the API says now; and the count, raised and lowered again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from binpack.relocation.record import Way, WayKind
from binpack.relocation.ways import Scaler, Workload, Writer
from fleet import labels
from fleet.errors import Conflict, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.objects import MetaObject, Object
from fleet.pod import Pod

_CALL_S = 5.0
_APPS = "apps/v1"
_REVISION = "deployment.kubernetes.io/revision"
_COUNT = ("f:spec", "f:replicas")
_DRIFTS = 3


class _Managed(Object):
    manager: str = ""
    operation: str = ""
    subresource: str | None = None
    fields_v1: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class _Meta(MetaObject):
    generation: int = 0
    managed_fields: list[_Managed] | None = None


class _Spec(Object):
    replicas: int | None = None
    paused: bool | None = None


class _Status(Object):
    observed_generation: int = 0
    updated_replicas: int | None = None
    ready_replicas: int | None = None


class _Workload(Object):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status | None = None


class _Target(Object):
    kind: str = ""
    name: str = ""


class _ScalerSpec(Object):
    target_ref: _Target | None = None
    scale_target_ref: _Target | None = None
    mode: str | None = None


class _Scaler(Object):
    metadata: MetaObject = msgspec.field(default_factory=MetaObject)
    spec: _ScalerSpec | None = None


class _Scalers(Object):
    items: list[_Scaler] | None = None


_workload = msgspec.json.Decoder(_Workload).decode
_scalers = msgspec.json.Decoder(_Scalers).decode
_scaler = msgspec.json.Decoder(_Scaler).decode
_encode = msgspec.json.encode


class Workloads:
    """Reads, and writes counts. Every call may raise ApiError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    # -- reading -------------------------------------------------------------------------------------------------

    async def of(self, pod: Pod) -> Workload | None:
        """Return who makes the replicas that the pod is one of; None = its controller is gone, or is another one."""
        owner = pod.owner
        if owner is None:
            return None
        if owner.kind != "ReplicaSet":
            return Workload(kind=owner.kind, name=owner.name)
        own = await self._read(pod.namespace, "replicasets", owner.name)
        if own is None or own.metadata.uid != owner.uid:
            return None
        above = next((one for one in own.metadata.owner_references or () if one.controller), None)
        if above is None or above.kind != "Deployment":
            return Workload(kind=above.kind if above is not None else owner.kind, name=owner.name)
        found = await self._read(pod.namespace, "deployments", above.name)
        if found is None or found.metadata.uid != above.uid:
            return None
        meta, status = found.metadata, found.status or _Status()
        return Workload(
            kind="Deployment",
            name=above.name,
            replicas=_count(found),
            is_current=_revision(own) == _revision(found),
            is_observed=status.observed_generation >= meta.generation,
            updated=status.updated_replicas or 0,
            ready=status.ready_replicas or 0,
            is_paused=bool(found.spec.paused),
            writers=_writers(meta.managed_fields or ()),
            scalers=await self._scalers_of(pod.namespace, above.name),
        )

    async def count(self, namespace: str, name: str) -> int | None:
        """Return what a Deployment is set to; None = there is none."""
        try:
            return _count(_workload(await self._client.get(_scale_path(namespace, name), timeout_s=_CALL_S)))
        except NotFound:
            return None

    async def is_of_old_template(self, pod: Pod) -> bool:
        """Return True if the pod's Deployment makes pods of another template now."""
        workload = await self.of(pod)
        return workload is None or not workload.is_current

    async def listed(self, namespace: str, name: str) -> tuple[str, ...]:
        """Return whom an autoscaler orders a replica more for; nobody where there is no such autoscaler."""
        try:
            found = _scaler(await self._client.get(paths.autoscalers(namespace, name), timeout_s=_CALL_S))
        except NotFound:
            return ()
        return labels.surge_tokens((found.metadata.annotations or {}).get(labels.SURGE, ""))

    async def _read(self, namespace: str, plural: str, name: str) -> _Workload | None:
        path = paths.custom(_APPS, plural, namespace=namespace, name=name)
        try:
            return _workload(await self._client.get(path, timeout_s=_CALL_S))
        except NotFound:
            return None

    async def _scalers_of(self, namespace: str, name: str) -> tuple[Scaler, ...]:
        ours = await self._list(paths.autoscalers(namespace))
        foreign = await self._list(paths.custom("autoscaling/v2", "horizontalpodautoscalers", namespace=namespace))
        found = [
            Scaler(
                kind=labels.AUTOSCALER_KIND, name=one.metadata.name, is_ours=True, is_acting=one.spec.mode != "observe"
            )
            for one in ours
            if one.spec is not None and _names(one.spec.target_ref, name)
        ]
        found += [
            Scaler(kind="HorizontalPodAutoscaler", name=one.metadata.name)
            for one in foreign
            if one.spec is not None and _names(one.spec.scale_target_ref, name)
        ]
        return tuple(found)

    async def _list(self, path: str) -> Sequence[_Scaler]:
        try:
            return _scalers(await self._client.get(path, timeout_s=_CALL_S)).items or ()
        except NotFound:
            return ()  # the cluster does not serve the kind

    # -- writing -------------------------------------------------------------------------------------------------

    async def surge(self, old: Pod, way: Way) -> None:
        """Order one replica more for a pod that moves; done already is done.

        A workload has one surge at a time: an autoscaler that was asked for another pod is asked for this one instead,
        so that none stays listed whose move is over or waits.

        Raises:
            Invalid, Conflict: The count is not the one that the move began with.
            ApiError: It could not be written.
        """
        if way.kind is WayKind.SCALE:
            await self._set(old.namespace, way.name, way.base, way.base + 1)
        elif way.kind is WayKind.AUTOSCALER:
            await self._relist(old.namespace, way.name, lambda _: {old.uid})

    async def settle(self, namespace: str, uid: str, way: Way) -> None:
        """Take that replica back.

        Args:
            namespace: Of the workload.
            uid: Of the pod that moves.
            way: Of its move.

        Raises:
            Invalid, Conflict: The count is not the one that the surge made.
            ApiError: It could not be written.
        """
        if way.kind is WayKind.SCALE:
            await self._set(namespace, way.name, way.base + 1, way.base)
        elif way.kind is WayKind.AUTOSCALER:
            await self._relist(namespace, way.name, lambda uids: uids - {uid})

    async def _set(self, namespace: str, name: str, before: int, after: int) -> None:
        body = [
            {"op": "test", "path": "/spec/replicas", "value": before},
            {"op": "add", "path": "/spec/replicas", "value": after},
        ]
        await self._client.json_patch(_scale_path(namespace, name), _encode(body), timeout_s=_CALL_S)

    async def _relist(self, namespace: str, name: str, changed: Callable[[set[str]], set[str]]) -> None:
        """Change the list if nobody else did meanwhile; tried again a few times where somebody did."""
        path = paths.autoscalers(namespace, name)
        for tries in range(_DRIFTS):
            try:
                found = _scaler(await self._client.get(path, timeout_s=_CALL_S))
            except NotFound:
                return
            before = (found.metadata.annotations or {}).get(labels.SURGE)
            uids = set(labels.surge_tokens(before or ""))
            wanted = changed(uids)
            if wanted == uids:
                return
            body = {
                "metadata": {
                    "resourceVersion": found.metadata.resource_version,
                    "annotations": {labels.SURGE: ",".join(sorted(wanted)) or None},
                }
            }
            try:
                await self._client.merge_patch(path, _encode(body), timeout_s=_CALL_S)
            except Conflict:
                if tries == _DRIFTS - 1:
                    raise
            else:
                return


def _scale_path(namespace: str, name: str) -> str:
    return paths.custom(_APPS, "deployments", namespace=namespace, name=name, subresource="scale")


def _names(target: _Target | None, name: str) -> bool:
    return target is not None and target.kind == "Deployment" and target.name == name


def _count(found: _Workload) -> int:
    return 1 if found.spec.replicas is None else found.spec.replicas


def _revision(found: _Workload) -> str:
    return (found.metadata.annotations or {}).get(_REVISION, "")


def _writers(managed: Sequence[_Managed]) -> tuple[Writer, ...]:
    return tuple(
        Writer(manager=one.manager, operation=one.operation, subresource=one.subresource or "")
        for one in managed
        if _owns_count(one.fields_v1 or {})
    )


def _owns_count(fields: Any) -> bool:
    for part in _COUNT:
        fields = fields.get(part) if isinstance(fields, dict) else None
    return fields is not None
