"""Letting go of every pod we gate: the safe way out, with or without a planner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from binpack.controller.writer import Outcome, PodWriter
from fleet import labels
from fleet.errors import ApiError, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject
from fleet.pod import Pod

_IN_FLIGHT = 32
_MOST_ROUNDS = 20
_PAGE = "500"
GATE_POLICIES = ("berthmaster-gate", "berthmaster-gate-namespace")
RECORD_POLICIES = ("berthmaster-records",)
_POLICIES = "/apis/admissionregistration.k8s.io/v1"


class _ListMeta(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _PodList(msgspec.Struct):
    items: list[PodObject]
    metadata: _ListMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """How a release ended: pods let go, and pods that could not be, with the last error of each."""

    released: int
    failed: tuple[tuple[str, str], ...]


async def gated_pods(client: Client, namespace: str | None = None) -> list[Pod]:
    """Return every pod that carries our gate, from quorum, all namespaces by default."""
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else paths.PODS
    found: list[Pod] = []
    token = ""
    while True:
        params = {"limit": _PAGE} | ({"continue": token} if token else {})
        page = msgspec.json.decode(await client.get(path, params), type=_PodList)
        found += [pod for pod in map(pod_from, page.items) if labels.PLAN_GATE in pod.gates]
        token = page.metadata.token
        if not token:
            return found


async def release(
    client: Client, *, namespace: str | None = None, report: Callable[[int, int], None] = lambda done, of: None
) -> Released:
    """Remove our gate from every pod that has it, again and again until none is left.

    Pods created while this runs are caught by the next round; a pod changed meanwhile is read again. `report` is
    called with (released so far, found so far).
    """
    writer, room = PodWriter(client), asyncio.Semaphore(_IN_FLIGHT)
    released = 0
    failed: dict[str, str] = {}

    async def let_go(pod: Pod) -> None:
        nonlocal released
        async with room:
            outcome, detail = await writer.ungate(pod)
        if outcome is Outcome.DONE:
            released += 1
            failed.pop(pod.key, None)
        elif outcome is Outcome.GONE:
            failed.pop(pod.key, None)
        else:
            failed[pod.key] = detail

    for _ in range(_MOST_ROUNDS):
        pods = await gated_pods(client, namespace)
        if not pods:
            return Released(released=released, failed=())
        for start in range(0, len(pods), 4 * _IN_FLIGHT):
            await asyncio.gather(*(let_go(pod) for pod in pods[start : start + 4 * _IN_FLIGHT]))
            report(released, released + len(pods) - start)
    return Released(released=released, failed=tuple(sorted(failed.items())))


async def remove_policies(client: Client, names: tuple[str, ...]) -> tuple[str, ...]:
    """Delete our admission policies, bindings first, and return the paths that were there.

    Raises:
        ApiError: One could not be deleted; those deleted before stay deleted, and a second run goes on.
    """
    removed: list[str] = []
    for kind in (
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicies",
    ):
        for name in names:
            path = f"{_POLICIES}/{kind}/{name}"
            try:
                await client.delete(path)
            except NotFound:
                continue
            except ApiError as error:
                raise ApiError(error.status, error.reason, f"{path}: {error.message}") from error
            removed.append(path)
    return tuple(removed)
