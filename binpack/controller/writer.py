"""Writes decisions to the API, one pod at a time, and says how each write ended. Decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from binpack.controller.metrics import PlannerMetrics
from binpack.controller.repair import Repair
from fleet import labels
from fleet.berths import format_candidates
from fleet.constraints import Toleration
from fleet.errors import ApiError, Conflict, DecodeError, Invalid, NotFound, NotLeading
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject
from fleet.kube.patches import candidates_patch, condition_patch, pin_patch, seat_patch, ungate_patch, unseat_patch
from fleet.pod import Berth, Pod

log = logging.getLogger(__name__)


class Outcome(Enum):
    """How a write ended."""

    DONE = "done"
    CHANGED = "changed"  # the pod is not what was read: read again, plan again
    GONE = "gone"  # the pod does not exist any more
    FAILED = "failed"  # the API did not take it, or its answer was lost: it may be written all the same
    REFUSED = "refused"  # a disruption budget does not let the pod go now
    NOT_LEADING = "not-leading"  # the lease would not outlast the write; nothing was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Aid:
    """What a pod is given beside its berth.

    Attributes:
        tolerations: To add, for the taints of pools' nodes.
        notes: Annotations to set: how its draw from a pool ended.
    """

    tolerations: tuple[Toleration, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)


NO_AID = Aid()


async def guarded(
    write: Callable[[], Awaitable[tuple[Outcome, str]]], about: str, metrics: PlannerMetrics
) -> tuple[Outcome, str]:
    """Return how a write ended; a fault of ours is one that failed, and is counted.

    Args:
        write: Makes it.
        about: What it is about, for the log.
        metrics: Count the fault.
    """
    try:
        return await write()
    except Exception as error:
        # Broad on purpose: whatever it is about must be of use again, whatever went wrong.
        metrics.faults.labels("write").inc()
        log.exception("a write about %s failed", about)
        return Outcome.FAILED, str(error)


class PodWriter:
    """The planner's hand: JSON patches with tests, status patches, guarded deletes."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def pin(self, pod: Pod, berth: Berth, aid: Aid = NO_AID) -> tuple[Outcome, str]:
        """Write the berth down, pin the pod, remove our gate: one patch."""
        return await self._patch(pod, lambda: pin_patch(pod, berth, annotations=aid.notes, tolerations=aid.tolerations))

    async def steer(self, pod: Pod, candidates: Sequence[Berth], aid: Aid = NO_AID) -> tuple[Outcome, str]:
        """Write the candidates down and remove our gate; the extender's Filter picks among them."""
        return await self._patch(
            pod, lambda: candidates_patch(pod, candidates, annotations=aid.notes, tolerations=aid.tolerations)
        )

    async def seat(self, pod: Pod, berth: Berth) -> tuple[Outcome, str]:
        """Write down which berth is kept for a gated pod."""
        return await self._patch(pod, lambda: seat_patch(pod, berth))

    async def unseat(self, pod: Pod) -> tuple[Outcome, str]:
        """Take the seat of a gated pod back."""
        return await self._patch(pod, lambda: unseat_patch(pod))

    async def evict(self, pod: Pod) -> tuple[Outcome, str]:
        """Ask a pod to go, as disruption budgets allow."""
        try:
            await self._client.evict(pod.namespace, pod.name, uid=pod.uid)
        except ApiError as error:
            # 429: a budget says no; 500: more than one covers the pod, and the API can weigh only one.
            outcome = Outcome.REFUSED if error.status in (429, 500) else _outcome(error)
            return outcome, str(error)
        return Outcome.DONE, ""

    async def disrupt(self, pod: Pod, *, message: str, at: str) -> tuple[Outcome, str]:
        """Delete a pod past its disruption budget, saying on it first that it is disrupted and why."""
        body = condition_patch(
            "DisruptionTarget", status=True, reason="PreemptionByScheduler", message=message, at=at, uid=pod.uid
        )
        try:
            await self._client.merge_patch(paths.pod(pod.namespace, pod.name, "status"), body, strategic=True)
            await self._client.delete(paths.pod(pod.namespace, pod.name), uid=pod.uid)
        except ApiError as error:
            return _outcome(error), str(error)
        return Outcome.DONE, ""

    async def ungate(self, pod: Pod) -> tuple[Outcome, str]:
        """Remove our gate and nothing else."""
        return await self._patch(pod, lambda: ungate_patch(pod))

    async def renew_candidates(self, pod: Pod, candidates: Sequence[Berth]) -> tuple[Outcome, str]:
        """Replace the candidates of a pod that kube-scheduler refused on all of them."""
        body = msgspec.json.encode(
            {
                "metadata": {
                    "uid": pod.uid,
                    "resourceVersion": pod.resource_version,
                    "annotations": {labels.CANDIDATES: format_candidates(candidates)},
                }
            }
        )
        try:
            await self._client.merge_patch(paths.pod(pod.namespace, pod.name), body)
        except ApiError as error:
            return _outcome(error), str(error)
        return Outcome.DONE, ""

    async def read(self, pod: Pod) -> tuple[Outcome, Pod | None]:
        """Return the pod of this name as it is now (DONE); GONE where there is none, FAILED where nobody can tell."""
        try:
            body = await self._client.get(paths.pod(pod.namespace, pod.name))
            fresh = pod_from(msgspec.json.decode(body, type=PodObject))
        except NotFound:
            return Outcome.GONE, None
        except (ApiError, msgspec.MsgspecError):
            return Outcome.FAILED, None
        return (Outcome.DONE, fresh) if fresh.uid == pod.uid else (Outcome.GONE, None)

    async def say(
        self,
        pod: Pod,
        *,
        status: bool,
        reason: str,
        message: str,
        at: str,
        notes: Mapping[str, str] | None = None,
    ) -> tuple[Outcome, str]:
        """Set the pod's waiting condition, and annotations with it."""
        body = condition_patch(
            labels.WAITING_CONDITION,
            status=status,
            reason=reason,
            message=message,
            at=at,
            uid=pod.uid,
            annotations=notes,
        )
        try:
            await self._client.merge_patch(paths.pod(pod.namespace, pod.name, "status"), body, strategic=True)
        except ApiError as error:
            return _outcome(error), str(error)
        return Outcome.DONE, ""

    async def delete(self, repair: Repair) -> tuple[Outcome, str]:
        """Delete a pod that can never start, if it is still exactly the one that was judged."""
        pod = repair.pod
        try:
            await self._client.delete(
                paths.pod(pod.namespace, pod.name), uid=pod.uid, resource_version=pod.resource_version
            )
        except ApiError as error:
            return _outcome(error), str(error)
        return Outcome.DONE, ""

    async def _patch(self, pod: Pod, build: Callable[[], bytes]) -> tuple[Outcome, str]:
        try:
            body = build()
        except DecodeError as error:
            return Outcome.FAILED, str(error)
        try:
            await self._client.json_patch(paths.pod(pod.namespace, pod.name), body)
        except ApiError as error:
            return _outcome(error), str(error)
        return Outcome.DONE, ""


def _outcome(error: ApiError) -> Outcome:
    match error:
        case NotLeading():
            return Outcome.NOT_LEADING
        case NotFound():
            return Outcome.GONE
        case Conflict() | Invalid():
            return Outcome.CHANGED
        case _:
            return Outcome.FAILED
