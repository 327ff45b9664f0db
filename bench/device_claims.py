"""Partitions by resource claim: how much is refused as claims come and go, beside first fit.

Cards of seven compute and eight memory slices, published as a DRA driver does (KEP-4815, the geometry of an H100),
profiles with equal parts of the slices offered, Poisson arrivals, exponential stays. `first fit` is kube-scheduler's
choice of devices (kubernetes/enhancements#4970) on a node drawn at random, or on the first node by name.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

from binpack.dra.choose import Chosen
from binpack.dra.desk import Desk
from binpack.dra.pools import Cell
from binpack.dra.value import Values
from binpack.dra.wishes import Wish
from fleet.dra import (
    DeviceClass,
    DeviceDemand,
    DeviceOption,
    DeviceRequest,
    DeviceSlice,
    PodClaim,
    PoolDevice,
    ResourceClaim,
    Where,
)
from fleet.pod import Pod

DRIVER = "gpu.example.com"
NODES, CARDS = 12, 8
# profile: (memory slices, compute slices, starts)
PROFILES = {
    "1g": (1, 1, range(7)),
    "2g": (2, 2, (0, 2, 4)),
    "3g": (4, 3, (0, 4)),
    "4g": (4, 4, (0,)),
    "7g": (8, 7, (0,)),
}
LARGE = frozenset({"3g", "4g", "7g"})


class _FirstFit(Values):
    """Every device costs the same: the first that fits is taken."""

    def price(
        self,
        cell: Cell,
        used: Mapping[tuple[str, str], int],
        consumed: Mapping[str, int] | None,
        more: Mapping[str, int],
        *,
        is_fresh: bool,
    ) -> float:
        """Return nothing."""
        return 0.0


def a_node(name: str) -> DeviceSlice:
    """Return the slice of one node."""
    devices: list[PoolDevice] = []
    counters: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    for card in range(CARDS):
        memory = {f"memory-{place}": 1 for place in range(8)}
        counters.append((f"card-{card}", tuple((memory | {"compute": 7}).items())))
        for profile, (size, compute, starts) in PROFILES.items():
            for start in starts:
                draws = {f"memory-{place}": 1 for place in range(start, start + size)} | {"compute": compute}
                devices.append(
                    PoolDevice(
                        name=f"c{card}-{profile}-{start}",
                        attributes={f"{DRIVER}/profile": profile},
                        uses=((f"card-{card}", tuple(draws.items())),),
                    )
                )
    return DeviceSlice(
        name=name,
        driver=DRIVER,
        pool=name,
        where=Where(node=name),
        devices=tuple(devices),
        counter_sets=tuple(counters),
    )


def refused(load: float, seed: int, choose: str, claims: int) -> tuple[float, float]:
    """Return which part of the memory slices asked was refused, of all and of large profiles, in per cent."""
    draw = random.Random(seed)
    desk = Desk() if choose == "worth" else Desk(_FirstFit())
    desk.is_synced = True
    names = [f"n{number:02}" for number in range(NODES)]
    for name in names:
        desk.set_slice(a_node(name))
        desk.set_node(name, {}, ())
    for profile in PROFILES:
        desk.set_class(DeviceClass(name=profile, selectors=(f'device.attributes["{DRIVER}"].profile == "{profile}"',)))
    offered = {profile: 1 / PROFILES[profile][0] for profile in PROFILES}
    mean_size = sum(PROFILES[p][0] * w for p, w in offered.items()) / sum(offered.values())
    rate = load * NODES * CARDS * 8 / mean_size
    now, leaving = 0.0, list[tuple[float, str]]()
    asked = {True: 0, False: 0}
    lost = {True: 0, False: 0}
    for number in range(claims):
        now += draw.expovariate(rate)
        while leaving and leaving[0][0] <= now:
            desk.remove_claim(heapq.heappop(leaving)[1])
        (profile,) = draw.choices(list(offered), weights=list(offered.values()))
        uid = f"c{number}"
        request = DeviceRequest(name="gpu", options=(DeviceOption(class_name=profile),))
        claim = ResourceClaim(uid=uid, namespace="d", name=uid, demand=DeviceDemand(requests=(request,)))
        desk.set_claim(claim)
        wish = desk.wish(Pod(uid=uid, namespace="d", name=uid, resource_claims=(PodClaim(name="g", claim=uid),)))
        assert isinstance(wish, Wish)
        order = names if choose != "random" else draw.sample(names, len(names))
        found = [answer for name in order if isinstance(answer := desk.offer(name, wish), Chosen)]
        is_warm = number >= claims // 4
        if is_warm:
            asked[profile in LARGE] += PROFILES[profile][0]
        if not found:
            desk.remove_claim(uid)
            lost[profile in LARGE] += PROFILES[profile][0] * is_warm
            continue
        chosen = min(found, key=attrgetter("cost")) if choose == "worth" else found[0]
        desk.set_claim(replace(claim, allocation=chosen.choices[0].allocation))
        heapq.heappush(leaving, (now + draw.expovariate(1.0), uid))
    return 100 * sum(lost.values()) / sum(asked.values()), 100 * lost[True] / max(1, asked[True])


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--loads", default="0.7,0.8,0.9")
    parser.add_argument("--claims", type=int, default=1500)
    options = parser.parse_args()
    print("memory slices refused in %, in brackets of 3g, 4g and 7g alone")
    print("| load | worth | first fit, random node | first fit, first node |")
    print("|---|---|---|---|")
    for load in map(float, options.loads.split(",")):
        cells: list[str] = []
        for choose in ("worth", "random", "first"):
            rows = [refused(load, seed, choose, options.claims) for seed in range(1, options.seeds + 1)]
            every, large = (sum(column) / len(rows) for column in zip(*rows, strict=True))
            cells.append(f"{every:.2f} ({large:.2f})")
        print(f"| {load} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
