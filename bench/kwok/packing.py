"""How much of the GPUs each scheduler gives away: openb pods that both can express, on an eighth of its machines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from bench.kwok import load
from bench.kwok.ground import Ground, Side
from bench.kwok.rivals import kai_side
from berthmaster.demo.board import Board, PodSeen
from berthmaster.demo.load import pod_object
from berthmaster.demo.replay import items
from berthmaster.local.progress import Report, Tell
from berthmaster.options import run
from binpack.arrivals import arrivals
from binpack.trace import load_nodes, load_pods
from fleet import labels
from fleet.clock import Clock, SystemClock
from fleet.device import WHOLE_MILLI
from fleet.kube.client import Client
from fleet.kube.reflector import Reflector
from fleet.node import Node
from fleet.pod import Pod
from fleet.quantity import milli_text

PART = 8
SEED = 42
_ARRIVED_RATIO = 1.1
_MEMORY_MIB = 32_768
_LOOK_EVERY_S = 0.25
# KAI looks once a second and says nothing to a pod that has no place: silence for so long is its last word.
_STILL_S = 20.0
_LONGEST_S = 1_500.0


def nodes() -> tuple[Node, ...]:
    """Return every eighth machine of openb, sorted by what they have: classic for KAI, sharing ones for us."""
    machines = sorted(
        load_nodes(), key=lambda node: (node.devices[0].model, len(node.devices), node.allocatable.milli_cpu, node.name)
    )
    return tuple(
        replace(node, devices=tuple(replace(device, memory_mib=_MEMORY_MIB) for device in node.devices))
        for node in machines[::PART]
    )


def pods(machines: Sequence[Node]) -> tuple[Pod, ...]:
    """Return what arrives: openb's default pods, which name no model, in one shuffled order for every side."""
    capacity = WHOLE_MILLI * sum(len(node.devices) for node in machines)
    # The trace at its own size holds far more than an eighth of the machines: what is too much never arrives.
    names = [node.name for node in machines]
    return tuple(
        replace(pod, name=f"p-{number:05d}")
        for number, pod in enumerate(arrivals(load_pods("default"), names, capacity, _ARRIVED_RATIO, SEED).pods)
        if pod.ask is None or pod.ask.is_whole or pod.ask.count == 1
    )


def measure(ground: Ground, clock: SystemClock, report: Report, side: Side) -> dict[str, Any]:
    """Create the pods on a cluster of `nodes()` and return what was bound when nothing moved any more."""
    wanted = pods(nodes())
    with report.step(f"{side.value}: starting"):
        ground.start(side)
    with report.step(f"{side.value}: {len(wanted)} openb pods on {ground.nodes} machines") as tell:
        found = run(_measure(ground, clock, side, wanted, tell))
    with report.step(f"{side.value}: clearing"):
        ground.silence()
        run(_clear(ground, clock, side))
    return {"side": side.value} | found


async def _clear(ground: Ground, clock: Clock, side: Side) -> None:
    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        await load.clear(client, clock, side.namespace)
        if side is Side.KAI:
            await load.clear(client, clock, kai_side.RESERVATIONS)


async def _measure(ground: Ground, clock: Clock, side: Side, wanted: Sequence[Pod], tell: Tell) -> dict[str, Any]:
    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        uid = await load.prepare(client, side.namespace, is_managed=side is Side.OURS)
        board = Board(clock.monotonic_s)
        path = f"/api/v1/namespaces/{side.namespace}/pods"
        beside = [asyncio.ensure_future(Reflector(client, clock, path, PodSeen, board).run())]
        if side is Side.KAI:
            beside.append(asyncio.ensure_future(kai_side.answer_reservations(client, clock)))
        try:
            started_s = clock.monotonic_s()
            await load.create(client, (_object(pod, side, uid) for pod in wanted), board.created)
            await _until_still(board, clock, len(wanted), tell)
        finally:
            for task in beside:
                task.cancel()
            for task in beside:
                with suppress(asyncio.CancelledError):
                    await task
        return _found(ground, side, wanted, await items(client, path), board, started_s)


async def _until_still(board: Board, clock: Clock, count: int, tell: Tell) -> None:
    moved_s, last = clock.monotonic_s(), board.standings
    deadline_s = moved_s + _LONGEST_S
    while (now_s := clock.monotonic_s()) < deadline_s and now_s - moved_s < _STILL_S:
        await clock.sleep(_LOOK_EVERY_S)
        standings = board.standings
        tell(standings.bound / count, f"{standings.bound} of {count} bound")
        if standings.bound != last.bound or standings.created != last.created:
            moved_s, last = clock.monotonic_s(), standings
        if standings.created == count and not standings.on_the_way:
            return


def _found(
    ground: Ground, side: Side, wanted: Sequence[Pod], objects: Sequence[Any], board: Board, started_s: float
) -> dict[str, Any]:
    """Return the figures by an own count over the API's objects: nobody's word is taken for it."""
    asks = {pod.name: pod.ask.total_milli_gpu if pod.ask else 0 for pod in wanted}
    at = {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in objects}
    held: dict[str, int] = {}
    for name, node in at.items():
        if node:
            held[node] = held.get(node, 0) + asks[name]
    capacity = {node.name: WHOLE_MILLI * len(node.devices) for node in nodes()}
    bound = sum(map(bool, at.values()))
    over = [f"{node} gave {used} of {capacity[node]} milli-GPU" for node, used in held.items() if used > capacity[node]]
    seconds = (board.last_bound_s or started_s) - started_s
    return {
        "machines": ground.nodes,
        "pods": len(wanted),
        "bound": bound,
        "asked_ratio": round(sum(asks.values()) / sum(capacity.values()), 4),
        "allocated_ratio": round(sum(held.values()) / sum(capacity.values()), 4),
        "pods_per_s": round(bound / seconds, 2) if seconds > 0 else None,
        "p50_s": round(board.latencies_s[len(board.latencies_s) // 2], 3) if board.latencies_s else None,
        "p99_s": round(board.latencies_s[int(0.99 * (len(board.latencies_s) - 1))], 3) if board.latencies_s else None,
        "over_allocated": over,
        # What another scheduler gives twice is its own affair: it is told, and does not end the bench.
        "faults": over if side is Side.OURS else [],
    }


def _object(pod: Pod, side: Side, owner_uid: str) -> dict[str, Any]:
    """Return the pod as its side wants it written: the same amounts, the share as milli-GPU or as KAI's fraction."""
    made = pod_object(pod, owner_uid)
    metadata = made["metadata"] | {"namespace": side.namespace}
    owner = metadata.pop("ownerReferences")[0] | {"name": load.OWNER}
    if side is Side.OURS:
        return made | {"metadata": metadata | {"ownerReferences": [owner]}}
    # KAI makes one group of all pods of one owner, and they are not one workload: on its side each stands alone.
    requests = {"cpu": milli_text(pod.requests.milli_cpu), "memory": str(pod.requests.memory_bytes)}
    limits: dict[str, str] = {}
    notes: dict[str, str] = {}
    if pod.ask is not None and pod.ask.is_whole:
        limits[labels.NVIDIA_GPU] = str(pod.ask.count)
    elif pod.ask is not None:
        notes |= kai_side.fraction_notes(pod.name, pod.ask.milli_gpu / WHOLE_MILLI)
    container = made["spec"]["containers"][0] | {"resources": {"requests": requests | limits, "limits": limits}}
    return made | {
        "metadata": metadata | {"annotations": notes, "labels": kai_side.QUEUE_LABEL},
        "spec": made["spec"] | {"containers": [container], "schedulerName": kai_side.SCHEDULER_NAME},
    }
