"""Sets the count of a workload through its scale subresource, and marks who should go first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from fleet import labels
from fleet.errors import ApiError, Conflict, Invalid, NotFound, NotLeading
from fleet.kube import paths as kube_paths
from fleet.kube.client import Client
from scaler.controller import paths
from scaler.controller.objects import ResourceListObject, ScaleObject
from scaler.controller.pods import Pod
from scaler.resource import TargetRef
from scaler.seen import Phase

log = logging.getLogger(__name__)

_FIRST = labels.LEAVES_EARLY  # lower goes first (KEP-2255)
_MOST_MARKS = 32
_CALL_S = 5.0
_scale = msgspec.json.Decoder(ScaleObject).decode
_resources = msgspec.json.Decoder(ResourceListObject).decode
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a scale subresource says.

    Attributes:
        replicas: Count that is set.
        version: resourceVersion of the workload.
        selector: Label selector of its pods; "" = it tells none.
    """

    replicas: int
    version: str
    selector: str


class Actuator:
    """Reads and writes scale subresources.

    Attributes:
        counts: Writes by outcome: set, changed-meanwhile, failed, not-leading, marked, mark-failed.
    """

    def __init__(self, client: Client) -> None:
        self.counts: Counter[str] = Counter()
        self._client = client
        self._plurals: dict[tuple[str, str], str] = {}

    async def read(self, namespace: str, target: TargetRef) -> Setting:
        """Return what the workload is set to.

        Raises:
            NotFound: There is no such workload, or no such kind with a scale subresource.
            ApiError: It cannot be read.
        """
        answer = _scale(await self._client.get(await self._path(namespace, target), timeout_s=_CALL_S))
        return _setting(answer)

    async def set(self, namespace: str, target: TargetRef, replicas: int, *, seen: int, version: str) -> Setting | None:
        """Set the count, if it still is the one that the decision was taken on.

        Args:
            namespace: Of the workload.
            target: The workload.
            replicas: Wanted.
            seen: Count that the decision was taken on.
            version: resourceVersion at which that was seen; "" = not known: it is read first.

        Returns:
            What is set now; None where somebody else set another count meanwhile: the decision is void.

        Raises:
            ApiError: It could not be set.
        """
        path = await self._path(namespace, target)
        try:
            if not version:
                raise Conflict(409, "Conflict", "no version is known")
            return await self._write(path, replicas, version)
        except Conflict:
            # Most writes to a workload are of its status: only another count makes the decision void.
            now = _setting(_scale(await self._client.get(path, timeout_s=_CALL_S)))
            if now.replicas == replicas:
                return now  # a first try got through whose answer was lost
            if now.replicas != seen:
                self.counts["changed-meanwhile"] += 1
                return None
            return await self._write(path, replicas, now.version)

    async def mark(self, pods: Mapping[str, Pod], victims: Sequence[str]) -> None:
        """Let a Deployment's ReplicaSet choose these Ready pods first; what cannot be marked is left to its choice.

        Marks are wishes: the first that is refused, or not answered, ends them, so that the count need not wait.
        """
        first = [name for name in victims if name in pods and pods[name].phase is Phase.READY][:_MOST_MARKS]
        wanted = [(pods[name], _FIRST) for name in first if pods[name].cost not in (_FIRST, labels.LEAVES_FIRST)]
        stale = [pod for pod in pods.values() if pod.cost == _FIRST and pod.name not in first][:_MOST_MARKS]
        for pod, cost in (*wanted, *((pod, None) for pod in stale)):
            if not await self._annotate(pod, cost):
                return

    async def _annotate(self, pod: Pod, cost: str | None) -> bool:
        """Return whether to go on: it was marked, or is gone."""
        body = _encode({"metadata": {"uid": pod.uid, "annotations": {labels.POD_DELETION_COST: cost}}})
        try:
            await self._client.merge_patch(kube_paths.pod(pod.namespace, pod.name), body, timeout_s=_CALL_S)
        except NotLeading:
            self.counts["not-leading"] += 1
            return False
        except ApiError as error:
            self.counts["mark-failed"] += 1
            log.info("pod %s/%s not marked: %s", pod.namespace, pod.name, error)
            return isinstance(error, NotFound | Conflict | Invalid)
        self.counts["marked"] += 1
        return True

    async def _write(self, path: str, replicas: int, version: str) -> Setting:
        body = _encode({"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}})
        answer = _setting(_scale(await self._client.merge_patch(path, body, timeout_s=_CALL_S)))
        self.counts["set"] += 1
        return answer

    async def _path(self, namespace: str, target: TargetRef) -> str:
        plural = await self._plural(target)
        return kube_paths.custom(target.api_version, plural, namespace=namespace, name=target.name, subresource="scale")

    async def _plural(self, target: TargetRef) -> str:
        """Return what the API calls the kind; asked once."""
        if target.api_version == "apps/v1" and target.kind in paths.BUILT_IN:
            return paths.BUILT_IN[target.kind]
        key = (target.api_version, target.kind)
        if key not in self._plurals:
            served = _resources(await self._client.get(paths.group(target.api_version), timeout_s=_CALL_S))
            names = {resource.name for resource in served.resources or ()}
            found = [
                resource.name
                for resource in served.resources or ()
                if resource.kind == target.kind and "/" not in resource.name and f"{resource.name}/scale" in names
            ]
            if not found:
                what = f"{target.api_version} serves no kind {target.kind} with a scale subresource"
                raise NotFound(404, "NotFound", what)
            self._plurals[key] = found[0]
        return self._plurals[key]


def _setting(answer: ScaleObject) -> Setting:
    return Setting(
        replicas=max(0, answer.spec.replicas or 0),
        version=answer.metadata.resource_version,
        selector=(answer.status.selector if answer.status else None) or "",
    )
