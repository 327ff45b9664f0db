"""One decision of the index at a time, on clusters of growing size, pods coming and going."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from time import perf_counter, thread_time
from typing import Any

from bench.scale import world
from binpack.index import Index
from fleet.plan import Placement
from fleet.pod import Berth, Pod

TARGET_NODES, TARGET_P50_MS, TARGET_P99_MS = 5_000, 0.3, 2.0
_WARM_UP = 300


def measure(nodes: int, decisions: int) -> dict[str, Any]:
    """Return quantiles of one answer: the cost on every node, and the choice; bookings are not part of it.

    Every pod that finds room is booked, and as much demand leaves again, so that the cluster stays as full as it was
    and every answer has changes to take in. Times are of this thread's own CPU; those on the wall stand beside them,
    because others may be at work on the machine.

    Args:
        nodes: Of the cluster.
        decisions: Measured, after a few hundred that are not.
    """
    index = Index(world.states(nodes).values(), mix=world.mix())
    draw = random.Random(nodes)
    residents: list[tuple[Pod, Berth]] = []
    cpu_ms: list[float] = []
    wall_ms: list[float] = []
    balance = 0
    for number, pod in enumerate(world.pods(decisions + _WARM_UP, nodes)):
        at, cpu = perf_counter(), thread_time()
        answer = index.place(pod)
        spent, spent_cpu = perf_counter() - at, thread_time() - cpu
        if number >= _WARM_UP:
            wall_ms.append(1000 * spent)
            cpu_ms.append(1000 * spent_cpu)
        if isinstance(answer, Placement):
            index.take(pod, answer.berth)
            residents.append((pod, answer.berth))
            balance += _milli(pod)
        while balance > 0 and residents:
            place = draw.randrange(len(residents))
            residents[place], residents[-1] = residents[-1], residents[place]
            gone, berth = residents.pop()
            index.give_back(gone, berth)
            balance -= _milli(gone)
    found: dict[str, Any] = {
        "nodes": nodes,
        "decisions": decisions,
        "cpu": quantiles(cpu_ms),
        "wall": quantiles(wall_ms),
    }
    if nodes == TARGET_NODES:
        found["target_ms"] = {"p50": TARGET_P50_MS, "p99": TARGET_P99_MS}
        found["is_reached"] = found["cpu"]["p50"] < TARGET_P50_MS and found["cpu"]["p99"] < TARGET_P99_MS
    return found


def growth(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how the mean cost of a decision grows: the exponent e of cost ~ nodes^e, from smallest to largest."""
    least, most = min(rows, key=_nodes), max(rows, key=_nodes)
    if least is most:
        return {}
    ratio = most["cpu"]["mean"] / least["cpu"]["mean"]
    exponent = math.log(ratio) / math.log(_nodes(most) / _nodes(least))
    return {
        "nodes": [_nodes(least), _nodes(most)],
        "cost_ratio": round(ratio, 2),
        "exponent": round(exponent, 3),
        "target_exponent": 1.0,
        "is_reached": exponent < 1.0,
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return mean, p50, p99 and the largest of times."""
    ordered = sorted(values)
    return {
        "mean": round(sum(ordered) / len(ordered), 4),
        "p50": round(ordered[len(ordered) // 2], 4),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 4),
        "max": round(ordered[-1], 4),
    }


def _nodes(row: dict[str, Any]) -> int:
    return int(row["nodes"])


def _milli(pod: Pod) -> int:
    return pod.ask.total_milli_gpu if pod.ask is not None else 0
