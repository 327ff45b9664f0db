"""How much of MIG cards is refused for want of a legal start, with departures: the index and simpler choices.

    python -m bench.mig                                  # 96 H100, load 0.9 and 1.0, seeds 1..3
    python -m bench.mig --loads 0.95 --seeds 1-5

Pods that ask for one instance each arrive by a Poisson process and stay for an exponential time; a pod that finds no
start is refused. The profiles are drawn so that each takes an equal part of the memory slices offered; load is slices
offered over slices there are. "first" takes the first legal start of the first card; "tightest" the card with fewest
free slices on which the profile has a start, and there the first one. Prints the part of the slices offered that was
refused, and the same of the largest three profiles.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from binpack import mig
from binpack.index import Index
from binpack.state import DeviceState, NodeState
from fleet.device import AskKind, Device, DeviceAsk, Partition
from fleet.node import Node
from fleet.plan import Placement
from fleet.pod import Berth, Pod
from fleet.resources import Resources

PROFILES = {"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4, "7g.80gb": 8}
LARGE = ("3g.40gb", "4g.40gb", "7g.80gb")
CARDS_PER_NODE, SLICES = 8, 8
CARD = Device(id="0", model="NVIDIA-H100-80GB-HBM3", memory_mib=81_559, partitions=())
ARRIVALS = 6000

Place = Callable[[str], tuple[Callable[[], None]] | None]


@dataclass(slots=True)
class Outcome:
    """Slices offered and refused, by profile."""

    offered: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def ratio(self, profiles: Sequence[str]) -> float:
        """Return the refused part of the slices that these profiles offered."""
        return sum(self.refused[one] for one in profiles) / max(1, sum(self.offered[one] for one in profiles))


def by_index(cards: int) -> Place:
    """Place with the index of the product."""
    everything = Resources(milli_cpu=2**40, memory_bytes=2**50, pod_slots=2**30)
    states = []
    for number in range(cards // CARDS_PER_NODE):
        devices = tuple(
            Device(id=str(i), model=CARD.model, memory_mib=CARD.memory_mib, partitions=())
            for i in range(CARDS_PER_NODE)
        )
        node = Node(name=f"n{number:04d}", allocatable=everything, devices=devices, is_sharing=True)
        free = tuple(DeviceState(device=device, free_milli=1000, free_mib=None, users=0) for device in devices)
        states.append(NodeState(node=node, free=everything, devices=free))
    index = Index(states)

    def place(profile: str) -> tuple[Callable[[], None]] | None:
        pod = Pod(uid="p", name="p", ask=DeviceAsk(kind=AskKind.PARTITION, profile=profile, milli_gpu=0))
        answer = index.place(pod, with_shortfall=False)
        if not isinstance(answer, Placement):
            return None
        berth: Berth = answer.berth
        index.take(pod, berth)
        return (lambda: index.give_back(pod, berth),)

    return place


def plainly(cards: int, *, is_tightest: bool) -> Place:
    """Place on the first card, or on the fullest one, at the first legal start."""
    geometry = mig.geometry_of(CARD)
    assert geometry is not None
    held: list[list[Partition]] = [[] for _ in range(cards)]
    used = [0] * cards

    def place(profile: str) -> tuple[Callable[[], None]] | None:
        order = sorted(range(cards), key=lambda card: -used[card]) if is_tightest else range(cards)
        for card in order:
            starts = mig.fits(geometry, held[card], profile)
            if starts:
                partition = starts[0].partition
                held[card].append(partition)
                used[card] += PROFILES[profile]

                def leave(card: int = card, partition: Partition = partition) -> None:
                    held[card].remove(partition)
                    used[card] -= PROFILES[profile]

                return (leave,)
        return None

    return place


def replay(place: Place, load: float, seed: int, cards: int) -> Outcome:
    """Offer `ARRIVALS` pods after a warm-up of as many as fill the cards."""
    draw = random.Random(seed)
    names = list(PROFILES)
    weights = [1 / PROFILES[name] for name in names]
    mean = sum(weight * PROFILES[name] for weight, name in zip(weights, names, strict=True)) / sum(weights)
    rate = load * cards * SLICES / mean  # pods per mean stay
    outcome, now, numbers = Outcome(), 0.0, itertools.count()
    leaving: list[tuple[float, int, Callable[[], None]]] = []
    warm_up = int(3 * rate)
    for arrival in range(warm_up + ARRIVALS):
        now += draw.expovariate(rate)
        profile, stay = draw.choices(names, weights)[0], draw.expovariate(1.0)
        while leaving and leaving[0][0] <= now:
            heapq.heappop(leaving)[2]()
        found = place(profile)
        if found is not None:
            heapq.heappush(leaving, (now + stay, next(numbers), found[0]))
        if arrival >= warm_up:
            outcome.offered[profile] += PROFILES[profile]
            outcome.refused[profile] += 0 if found is not None else PROFILES[profile]
    return outcome


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", type=int, default=96)
    parser.add_argument("--loads", default="0.9,1.0")
    parser.add_argument("--seeds", default="1-3", help="FROM-TO")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    policies: dict[str, Callable[[], Place]] = {
        "index": lambda: by_index(options.cards),
        "tightest": lambda: plainly(options.cards, is_tightest=True),
        "first": lambda: plainly(options.cards, is_tightest=False),
    }
    print(f"{options.cards} cards, seeds {options.seeds}, {ARRIVALS} arrivals: slices refused, % (3g, 4g and 7g alone)")
    for load in map(float, options.loads.split(",")):
        for name, make in policies.items():
            runs = [replay(make(), load, seed, options.cards) for seed in seeds]
            everything, large = (
                sum(run.ratio(some) for run in runs) / len(runs) * 100 for some in (tuple(PROFILES), LARGE)
            )
            print(f"load {load:4.2f}  {name:9} {everything:6.2f} ({large:5.2f})", flush=True)


if __name__ == "__main__":
    main()
