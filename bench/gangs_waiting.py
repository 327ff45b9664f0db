"""How long a gang waits where single pods come and go, with nodes kept for it and without.

    python -m bench.gangs_waiting                     # 16 nodes of 8 GPUs, loads 0.7 to 0.9, seeds 42..44
    python -m bench.gangs_waiting --loads 0.8 --seeds 42

Single pods of half a GPU, one and two GPUs (40, 40 and 20 %) arrive at random and live for an hour on the average
(exponential); one that finds no room waits and is tried again, in the order of arrival, whenever one leaves. After ten
hours a gang comes that asks an eighth of the GPUs. It is tried before the single pods whenever one has left, and holds
nothing until all of it fits. Its wait ends then, or after 24 hours, and counts as 24. Single pods are refused nothing
for it: what it costs them is the mean number of GPUs that they wait for until then. Writes
bench/results/gangs_waiting.json.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import platform
import random
import statistics
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from binpack.index import Index
from binpack.state import DeviceState, NodeState
from fleet.device import WHOLE_MILLI, AskKind, Device, DeviceAsk
from fleet.node import Node
from fleet.plan import Placement
from fleet.pod import Berth, Pod
from fleet.resources import Resources

RESULTS = Path(__file__).parent / "results" / "gangs_waiting.json"
NODES, GPUS = 16, 8
BEGIN_H, LONGEST_H = 10.0, 24.0
GANGS = ((8, 2), (4, 4), (2, 8))  # members, GPUs of each
_HALF = DeviceAsk(kind=AskKind.SHARE, milli_gpu=500)
_SINGLES = (
    (_HALF, 0.4),
    (DeviceAsk(kind=AskKind.CHOSEN, count=1), 0.4),
    (DeviceAsk(kind=AskKind.CHOSEN, count=2), 0.2),
)
_LOOK_EVERY_H = 1 / 3600


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", default="0.7,0.8,0.9", help="comma list: GPUs asked over GPUs there are")
    parser.add_argument("--seeds", default="42-44", help="FROM-TO")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    rows: list[dict[str, Any]] = []
    print("load  members x GPUs   waits without  waits with   GPUs that wait without  with")
    for load in map(float, given.loads.split(",")):
        for members, gpus in GANGS:
            row: dict[str, Any] = {"load": load, "members": members, "gpus": gpus}
            for name, keeps in (("without", False), ("with", True)):
                runs = [_Run(seed, load, members, gpus, keeps=keeps).result() for seed in seeds]
                row[f"wait_{name}_h"] = [round(wait_h, 2) for wait_h, _ in runs]
                row[f"pending_{name}_gpus"] = round(statistics.mean(pending for _, pending in runs), 3)
            rows.append(row)
            show(row)
    report = {
        "command": " ".join(["python -m bench.gangs_waiting", *sys.argv[1:]]),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "nodes": NODES,
        "gpus_per_node": GPUS,
        "longest_h": LONGEST_H,
        "rows": rows,
    }
    given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {os.path.relpath(given.out)}")


def show(row: dict[str, Any]) -> None:
    waits = [statistics.mean(row[f"wait_{name}_h"]) for name in ("without", "with")]
    print(
        f"{row['load']:4g}  {row['members']:7} x {row['gpus']:<4}  {waits[0]:12.1f} h {waits[1]:10.1f} h"
        f" {row['pending_without_gpus']:22.2f} {row['pending_with_gpus']:7.2f}",
        flush=True,
    )


class _Run:
    """One cluster through one run; times in hours."""

    def __init__(self, seed: int, load: float, members: int, gpus: int, *, keeps: bool) -> None:
        self._chance = random.Random(seed)
        self._index = Index(_node(f"n{number:02}") for number in range(NODES))
        ask = DeviceAsk(kind=AskKind.CHOSEN, count=gpus)
        self._gang = [_pod(f"g{number}", ask, gang="g", gang_size=members) for number in range(members)]
        mean_gpus = sum(weight * one.total_milli_gpu for one, weight in _SINGLES) / WHOLE_MILLI
        self._rate = load * NODES * GPUS / mean_gpus
        self._keeps = keeps
        self._leaving: list[tuple[float, int, Pod, Berth]] = []
        self._queue: deque[tuple[Pod, float]] = deque()
        self._number = 0
        self._looked_h = float("-inf")

    def result(self) -> tuple[float, float]:
        """Return how long the gang waits, and how many GPUs waiting single pods ask meanwhile, on the average."""
        now_h = passed_h = pending_h = 0.0
        next_h = self._chance.expovariate(self._rate)
        while now_h < BEGIN_H + LONGEST_H:
            before_h = now_h
            leaves = bool(self._leaving) and self._leaving[0][0] < next_h
            now_h = self._leaving[0][0] if leaves else next_h
            if before_h >= BEGIN_H:
                passed_h += now_h - before_h
                asked = sum(pod.ask.total_milli_gpu for pod, _ in self._queue if pod.ask is not None)
                pending_h += (now_h - before_h) * asked / WHOLE_MILLI
            if leaves:
                _, _, pod, berth = heapq.heappop(self._leaving)
                self._index.give_back(pod, berth)
            else:
                next_h = now_h + self._chance.expovariate(self._rate)
                self._queue.append((self._single(), self._chance.expovariate(1.0)))
            if now_h >= BEGIN_H:
                if self._stands():
                    return now_h - BEGIN_H, pending_h / max(passed_h, 1e-9)
                if self._keeps and now_h - self._looked_h >= _LOOK_EVERY_H:
                    self._looked_h = now_h
                    self._index.keep_for_gangs([self._gang])
            self._let_in(now_h)
        return LONGEST_H, pending_h / passed_h

    def _single(self) -> Pod:
        self._number += 1
        (ask,) = self._chance.choices([one for one, _ in _SINGLES], [weight for _, weight in _SINGLES])
        return _pod(f"s{self._number}", ask)

    def _stands(self) -> bool:
        """Return True if all members of the gang, which are alike, fit at once."""
        ask = self._gang[0].ask
        assert ask is not None
        return int((self._index.arrays.untouched.sum(axis=1) // ask.count).sum()) >= len(self._gang)

    def _let_in(self, now_h: float) -> None:
        left: deque[tuple[Pod, float]] = deque()
        refused: set[DeviceAsk | None] = set()
        for pod, life_h in self._queue:
            answer = self._index.place(pod, with_shortfall=False) if pod.ask not in refused else None
            if isinstance(answer, Placement):
                self._index.take(pod, answer.berth)
                heapq.heappush(self._leaving, (now_h + life_h, int(pod.name[1:]), pod, answer.berth))
            else:
                refused.add(pod.ask)
                left.append((pod, life_h))
        self._queue = left


def _pod(name: str, ask: DeviceAsk, **gang: Any) -> Pod:
    requests = Resources(milli_cpu=1000, memory_bytes=2**30, pod_slots=1)
    return replace(Pod(uid=name, name=name, requests=requests, ask=ask), **gang)


def _node(name: str) -> NodeState:
    devices = tuple(
        DeviceState(device=Device(id=str(i), model="G"), free_milli=WHOLE_MILLI, free_mib=None, users=0)
        for i in range(GPUS)
    )
    have = Resources(milli_cpu=128_000, memory_bytes=2**40, pod_slots=110)
    inventory = tuple(one.device for one in devices)
    node = Node(name=name, allocatable=have, devices=inventory, is_sharing=True)
    return NodeState(node=node, free=have, devices=devices)


if __name__ == "__main__":
    main()
