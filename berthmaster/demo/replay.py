"""Creates the trace's pods and follows them until each is bound or says why it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from berthmaster.demo.board import Board, PodSeen, Standings
from berthmaster.demo.load import NAMESPACE, namespace_object, owner_object, pod_object
from berthmaster.recount import Recount, recount
from fleet.clock import Clock
from fleet.errors import BerthmasterError, Conflict
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.reflector import Reflector
from fleet.pod import Pod

_IN_FLIGHT = 32
_LOOK_EVERY_S = 0.25
# The planner answers within a second; a pod that is still on its way after this is lost, and that is a fault.
_STILL_AFTER_S = 60.0
_PAGE = "500"

Show = Callable[[Standings, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """How the replay ended.

    Attributes:
        seconds: From the first creation to the last binding.
        latencies_s: Created to bound, sorted.
        messages: What waiting pods say, most frequent first.
        truth: The independent count over the API's objects.
    """

    standings: Standings
    seconds: float
    latencies_s: tuple[float, ...]
    messages: tuple[str, ...]
    deleted: int
    truth: Recount


async def replay(client: Client, clock: Clock, pods: Sequence[Pod], show: Show) -> Replay:
    """Create the pods, wait until none is on its way, recount.

    Args:
        client: Connected as somebody who may create namespaces and pods.
        clock: For pauses and rates.
        pods: In order of arrival.
        show: Told the standings and the elapsed seconds a few times a second.

    Raises:
        BerthmasterError: Pods are lost: neither bound nor told why they wait.
        ApiError: The API server refused a creation.
    """
    board = Board(clock.monotonic_s)
    owner_uid = await _prepare(client)
    watch = Reflector(client, clock, f"/api/v1/namespaces/{NAMESPACE}/pods", PodSeen, board)
    watching = asyncio.ensure_future(watch.run())
    try:
        started_s = clock.monotonic_s()
        creating = asyncio.ensure_future(_create_all(client, board, pods, owner_uid))
        try:
            await _until_settled(board, clock, creating, started_s, show)
        finally:
            creating.cancel()
            with suppress(asyncio.CancelledError):
                await creating
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    last_s = board.last_bound_s
    return Replay(
        standings=board.standings,
        seconds=(last_s if last_s is not None else clock.monotonic_s()) - started_s,
        latencies_s=board.latencies_s,
        messages=board.waiting_messages,
        deleted=board.deleted,
        truth=recount(await items(client, paths.NODES), await items(client, paths.PODS)),
    )


async def _prepare(client: Client) -> str:
    """Create the namespace and the owner; return the owner's uid."""
    with suppress(Conflict):
        await client.create("/api/v1/namespaces", msgspec.json.encode(namespace_object))
    body = await client.create(f"/api/v1/namespaces/{NAMESPACE}/configmaps", msgspec.json.encode(owner_object))
    uid: str = msgspec.json.decode(body)["metadata"]["uid"]
    return uid


async def _create_all(client: Client, board: Board, pods: Sequence[Pod], owner_uid: str) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    decode = msgspec.json.Decoder(PodSeen).decode
    waiting = iter(pods)

    async def work() -> None:
        for pod in waiting:
            body = msgspec.json.encode(pod_object(pod, owner_uid))
            answer = await client.create(path, body, timeout_s=60.0)
            board.created(decode(answer).metadata.uid)

    async with asyncio.TaskGroup() as group:
        for _ in range(_IN_FLIGHT):
            group.create_task(work())


async def _until_settled(
    board: Board, clock: Clock, creating: asyncio.Future[None], started_s: float, show: Show
) -> None:
    still_since_s, last = clock.monotonic_s(), board.standings
    while True:
        await clock.sleep(_LOOK_EVERY_S)
        if creating.done():
            creating.result()
        now_s, standings = clock.monotonic_s(), board.standings
        show(standings, now_s - started_s)
        if creating.done() and standings.on_the_way == 0:
            return
        if standings != last:
            still_since_s, last = now_s, standings
        elif now_s - still_since_s > _STILL_AFTER_S:
            raise BerthmasterError(
                f"{standings.on_the_way} pods are neither bound nor waiting, and nothing has moved for "
                f"{_STILL_AFTER_S:.0f} s"
            )


async def items(client: Client, path: str) -> list[dict[str, Any]]:
    """Return all objects of a collection as plain JSON, from quorum, page by page."""
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        params = {"limit": _PAGE} | ({"continue": token} if token else {})
        page = msgspec.json.decode(await client.get(path, params, timeout_s=60.0))
        found += page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            return found
