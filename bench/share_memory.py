"""How full cards get when shares ask for milli-GPU and device memory in different proportions.

    python -m bench.share_memory                 # 200 cards of 80 GiB, 600 pods, seeds 0..7

Three kinds of pods: 45 % ask little compute and much memory, 45 % the other way round, the rest for both. Pods arrive
one by one and stay; the mix is known. Prints milli-GPU and memory given, and pods refused, as means over the seeds.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from binpack.index import Index
from binpack.index.mix import Mix, shape_of
from binpack.state import DeviceState, NodeState
from fleet.device import AskKind, Device, DeviceAsk
from fleet.node import Node
from fleet.plan import Placement
from fleet.pod import Pod
from fleet.resources import Resources

NODES, CARDS, MEMORY_MIB = 25, 8, 80 * 1024
EVERYTHING = Resources(milli_cpu=2**40, memory_bytes=2**50, pod_slots=2**30)


def cluster() -> list[NodeState]:
    """Return nodes of empty cards."""
    devices = tuple(Device(id=str(number), memory_mib=MEMORY_MIB) for number in range(CARDS))
    free = tuple(DeviceState(device=one, free_milli=1000, free_mib=MEMORY_MIB, users=0) for one in devices)
    nodes = (
        Node(name=f"n{number:03d}", allocatable=EVERYTHING, devices=devices, is_sharing=True) for number in range(NODES)
    )
    return [NodeState(node=node, free=EVERYTHING, devices=free) for node in nodes]


def pods(count: int, seed: int) -> list[Pod]:
    """Return the arrivals."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        kind = draw.random()
        if kind < 0.45:
            milli, gib = draw.choice([100, 200, 300]), draw.choice([20, 30, 40])
        elif kind < 0.9:
            milli, gib = draw.choice([300, 400, 500, 600]), draw.choice([4, 8, 10])
        else:
            milli, gib = draw.choice([250, 500]), draw.choice([20, 40])
        ask = DeviceAsk(kind=AskKind.SHARE, milli_gpu=milli, memory_mib=gib * 1024)
        found.append(Pod(uid=f"p{number}", name=f"p{number}", ask=ask))
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    given_milli = given_mib = refused = 0.0
    for seed in range(options.seeds):
        arrivals = pods(options.pods, seed)
        index = Index(cluster(), mix=Mix.of(Counter(shape_of(pod, MEMORY_MIB) for pod in arrivals)))
        for pod in arrivals:
            answer = index.place(pod, with_shortfall=False)
            if isinstance(answer, Placement) and pod.ask is not None:
                index.take(pod, answer.berth)
                given_milli += pod.ask.milli_gpu / 1000
                given_mib += pod.ask.memory_mib / MEMORY_MIB
            else:
                refused += 1
    cards = options.seeds * NODES * CARDS / 100
    print(
        f"{options.pods} pods, {options.seeds} seeds, means: milli-GPU given {given_milli / cards:.2f} %, memory given"
    )
    print(f"{given_mib / cards:.2f} %, pods refused {refused / options.seeds:.1f}")


if __name__ == "__main__":
    main()
