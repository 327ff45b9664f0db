"""How surely and how fast gangs with resource claims are placed: devices, nodes and claims at once, 90 % of them held.

    python -m bench.gang_claims                          # seeds 42..46, gangs of 8 to 64 members
    python -m bench.gang_claims --seeds 42 --sizes 64

Two clusters: 1,000 nodes of eight whole devices, of two models and on two NUMA nodes each; and 100 nodes of eight cards
that are given in partitions by shared counters (KEP-4815, the geometry of an H100). Claims are given devices on nodes
drawn by chance until 90 % are held. A gang is cut out of what is then free, each member with one or two claims of its
own (some of whole devices want all of theirs on one NUMA node), every fifth sharing one with the member before it: it
fits by construction. Where its members came from is not told to whoever places them, and every placement is checked by
the independent verifier. Writes bench/results/gang_claims.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from bench.device_claims import DRIVER, PROFILES
from bench.device_claims import a_node as a_partitioned_node
from bench.gangs import FULL_RATIO, figures, show
from binpack.check import check
from binpack.dra.choose import Chosen
from binpack.dra.desk import Desk
from binpack.dra.wishes import Wish
from binpack.gangs.place import Refusal, place
from binpack.index import Index
from binpack.state import NodeState
from fleet.dra import (
    DeviceClass,
    DeviceConstraint,
    DeviceDemand,
    DeviceOption,
    DeviceRequest,
    DeviceSlice,
    PodClaim,
    PoolDevice,
    ResourceClaim,
    Where,
)
from fleet.node import Node
from fleet.plan import Plan
from fleet.pod import Pod
from fleet.resources import Resources

RESULTS = Path(__file__).parent / "results" / "gang_claims.json"
_CLASS = "any"
_MODELS = ("A", "B")
_DEVICES = 8
_SHARED_EVERY = 5

DrawDemand = Callable[[random.Random], DeviceDemand]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="8,16,32,64", help="comma list of members")
    parser.add_argument("--seeds", default="42-46", help="FROM-TO")
    parser.add_argument("--gangs", type=int, default=3, help="gangs of each size per cluster and seed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    sizes = [int(size) for size in given.sizes.split(",")]
    clusters = {
        "whole": (1000, whole_devices, of_whole_devices),
        "partitions": (100, a_partitioned_node, of_partitions),
    }
    runs: list[dict[str, Any]] = []
    for seed in range(int(first), int(last or first) + 1):
        for kind, (count, devices, demand) in clusters.items():
            draw = random.Random(f"{kind} {seed}")
            desk, index, states = filled(count, devices, demand, draw)
            for size in sizes:
                gangs = (a_gang(desk, states, size, demand, draw) for _ in range(given.gangs))
                runs += [run(desk, index, states, kind, pods) for pods in gangs]
        print(f"seed {seed}: {sum(run['placed'] for run in runs)} of {len(runs)} placed", file=sys.stderr, flush=True)
    rows = [summary(runs, kind, size) for kind in clusters for size in sizes]
    report = {
        "command": " ".join(["python -m bench.gang_claims", *sys.argv[1:]]),
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "full_ratio": FULL_RATIO,
        "rows": rows,
    }
    given.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    show(rows, by="cluster")
    print(f"wrote {os.path.relpath(given.out)}")


def whole_devices(name: str) -> DeviceSlice:
    """Return the slice of a node with eight devices of one model, four on each NUMA node."""
    model = _MODELS[int(name[1:]) % len(_MODELS)]
    devices = tuple(
        PoolDevice(name=f"d{i}", attributes={f"{DRIVER}/model": model, f"{DRIVER}/numa": i // 4})
        for i in range(_DEVICES)
    )
    return DeviceSlice(name=name, driver=DRIVER, pool=name, where=Where(node=name), devices=devices)


def of_whole_devices(draw: random.Random) -> DeviceDemand:
    """Return a demand for one to four devices, of any model or one, some on one NUMA node."""
    model = draw.choice((None, *_MODELS))
    selectors = () if model is None else (f'device.attributes["{DRIVER}"].model == "{model}"',)
    count = draw.choice((1, 1, 2, 4))
    constraint = DeviceConstraint(attribute=f"{DRIVER}/numa")
    option = DeviceOption(class_name=_CLASS, count=count, selectors=selectors)
    constraints = (constraint,) if count > 1 and draw.random() < 0.5 else ()
    return DeviceDemand(requests=(DeviceRequest(name="gpu", options=(option,)),), constraints=constraints)


def of_partitions(draw: random.Random) -> DeviceDemand:
    """Return a demand for one partition, profiles by equal parts of the cards."""
    profiles = list(PROFILES)
    (profile,) = draw.choices(profiles, [1 / PROFILES[one][0] for one in profiles])
    selectors = (f'device.attributes["{DRIVER}"].profile == "{profile}"',)
    option = DeviceOption(class_name=_CLASS, count=1, selectors=selectors)
    return DeviceDemand(requests=(DeviceRequest(name="gpu", options=(option,)),))


def filled(
    count: int, devices: Callable[[str], DeviceSlice], demand: DrawDemand, draw: random.Random
) -> tuple[Desk, Index, dict[str, NodeState]]:
    """Return a cluster of so many nodes, 90 % of its devices held by claims on nodes drawn by chance."""
    desk, index = Desk(), Index()
    desk.is_synced = True
    desk.set_class(DeviceClass(name=_CLASS))
    index.use_claims(desk)
    states: dict[str, NodeState] = {}
    have = Resources(milli_cpu=256_000, memory_bytes=2**40, pod_slots=250)
    for number in range(count):
        name = f"n{number:04}"
        states[name] = NodeState(node=Node(name=name, allocatable=have), free=have, devices=())
        desk.set_slice(devices(name))
        desk.set_node(name, {}, ())
        index.set_node(states[name])
    names, held, number = sorted(states), 0.0, 0
    while held < FULL_RATIO * _DEVICES * count:
        claim, number = a_claim(f"held-{number}", demand(draw)), number + 1
        desk.set_claim(claim)
        found = offered(desk, draw.choice(names), [claim])
        if found is None:
            desk.remove_claim(claim.uid)
        else:
            desk.set_claim(replace(claim, allocation=found.choices[0].allocation))
            held += sum(_size(result.device) for result in found.choices[0].allocation.results)
    return desk, index, states


def _size(device: str) -> float:
    """Return how much of a card a device of this name is."""
    _, _, profile = device.partition("-")
    return PROFILES[profile.partition("-")[0]][0] / 8 if profile else 1.0


def a_claim(name: str, demand: DeviceDemand) -> ResourceClaim:
    """Return a claim without devices."""
    return ResourceClaim(uid=name, namespace="default", name=name, demand=demand)


def a_member(name: str, claims: Sequence[ResourceClaim]) -> Pod:
    """Return a pod with these claims."""
    entries = tuple(PodClaim(name=claim.name, claim=claim.name) for claim in claims)
    requests = Resources(milli_cpu=4000, memory_bytes=2**33, pod_slots=1)
    return Pod(uid=name, name=name, requests=requests, resource_claims=entries, gang="g")


def offered(desk: Desk, node: str, claims: Sequence[ResourceClaim]) -> Chosen | None:
    """Return devices of a node for all these claims; None = it has not got them."""
    wish = desk.wish(a_member("x", claims))
    answer = desk.offer(node, wish) if isinstance(wish, Wish) else None
    return answer if isinstance(answer, Chosen) else None


def a_gang(desk: Desk, states: dict[str, NodeState], size: int, demand: DrawDemand, draw: random.Random) -> list[Pod]:
    """Cut a gang out of what is free, without a word on where; the desk knows its claims, and gives them nothing."""
    names, pods = sorted(states), list[Pod]()
    taken: list[Chosen] = []
    shared: ResourceClaim | None = None
    node = ""
    while len(pods) < size:
        if shared is None or len(pods) % _SHARED_EVERY:
            node = draw.choice(names)
        own = [a_claim(f"g{len(pods)}-{i}", demand(draw)) for i in range(draw.choice((1, 1, 2)))]
        claims = [*own, shared] if shared is not None and not len(pods) % _SHARED_EVERY else own
        for claim in own:
            desk.set_claim(claim)
        found = offered(desk, node, claims)
        if found is None:
            for claim in own:
                desk.remove_claim(claim.uid)
            shared = None if claims is not own else shared
            continue
        desk.take(found.choices)
        taken.append(found)
        pods.append(a_member(f"g{len(pods)}", claims))
        shared = own[0]
    for found in reversed(taken):
        desk.give_back(found.choices)
    draw.shuffle(pods)
    return pods


def run(desk: Desk, index: Index, states: dict[str, NodeState], kind: str, pods: Sequence[Pod]) -> dict[str, Any]:
    """Place one gang, judge the answer, and forget its claims."""
    started, cpu = perf_counter(), process_time()
    answer = place(index, states.get, pods)
    spent_s, cpu_s = perf_counter() - started, process_time() - cpu
    if not isinstance(answer, Refusal):
        plan = Plan(placements=answer)
        wrong = (*check(states, pods, plan, together=[{pod.uid for pod in pods}]), *desk.violations(plan, pods))
        if wrong:
            raise AssertionError(f"{kind} {len(pods)}: {wrong[:3]}")
    for uid in {claim.uid for pod in pods for claim in desk.claims_of(pod)}:
        desk.remove_claim(uid)
    return {"kind": kind, "size": len(pods), "placed": not isinstance(answer, Refusal), "s": spent_s, "cpu_s": cpu_s}


def summary(runs: Sequence[dict[str, Any]], kind: str, size: int) -> dict[str, Any]:
    chosen = [run for run in runs if run["kind"] == kind and run["size"] == size]
    return {"cluster": kind, "members": size} | figures(chosen)


if __name__ == "__main__":
    main()
