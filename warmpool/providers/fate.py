"""What becomes of one simulated machine: drawn once from its name, so that a restart draws the same.

Times follow a public break-down of one cold start (kaito-project/kaito#2325: 284 s to the Node, 126 s to its devices,
101 s for a 5.6 GB image), log-normal with a coefficient of variation of 0.3. Pure.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np

from warmpool.values import Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """How the simulated cloud behaves; seconds are means.

    Attributes:
        launch_s: From order to launched, or to the refusal.
        register_s: From order to the Node.
        devices_s: From the Node to allocatable devices.
        pull_s: From the pulling pod to the listed images.
        variation_ratio: Coefficient of variation of all times.
        shortage_ratio: Share of orders that are refused for lack of capacity.
        short_offers: Offers that have none at all now.
        slow_pull_ratio: Share of machines whose pull takes `slow_pull_times` as long.
        slow_pull_times: How many times as long.
        vanish_per_hour: Rate at which nodes are taken away.
        time_scale: Every time is divided by this.
        seed: Another seed, another fate.
    """

    launch_s: float = 30.0
    register_s: float = 284.0
    devices_s: float = 126.0
    pull_s: float = 101.0
    variation_ratio: float = 0.3
    shortage_ratio: float = 0.0
    short_offers: frozenset[Offer] = frozenset()
    slow_pull_ratio: float = 0.0
    slow_pull_times: float = 10.0
    vanish_per_hour: float = 0.0
    time_scale: float = 1.0
    seed: int = 0

    def problems(self) -> list[str]:
        """Return what is wrong with these settings."""
        found = [
            f"{name}: {getattr(self, name)} is not a finite number of seconds, 0 or more"
            for name in ("launch_s", "register_s", "devices_s", "pull_s", "variation_ratio", "vanish_per_hour")
            if not 0.0 <= getattr(self, name) < math.inf
        ]
        found += [
            f"{name}: {getattr(self, name)} is not a share between 0 and 1"
            for name in ("shortage_ratio", "slow_pull_ratio")
            if not 0.0 <= getattr(self, name) <= 1.0
        ]
        if not 0.0 < self.time_scale < math.inf:
            found.append(f"time_scale: {self.time_scale} is not a finite number above 0")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """One machine's life in seconds of the simulation's clock, already divided by its scale.

    Attributes:
        is_refused: There is no capacity for it: told after `launched_s`.
        launched_s: After the order.
        registered_s: After the order, not before `launched_s`.
        devices_s: After the Node is there.
        pull_s: After the pulling pod is there.
        vanishes_s: After the Node is there; infinite = never.
    """

    is_refused: bool
    launched_s: float
    registered_s: float
    devices_s: float
    pull_s: float
    vanishes_s: float


def fate(cloud: Cloud, name: str, offer: Offer) -> Fate:
    """Return the fate of the machine of this name."""
    digest = hashlib.sha256(f"{cloud.seed}/{name}".encode()).digest()
    draws = np.random.default_rng(int.from_bytes(digest[:8], "big"))
    sigma = math.sqrt(math.log1p(cloud.variation_ratio**2))

    def time_s(mean_s: float) -> float:
        # Of mean `mean_s`: the mean of a log-normal is its median times exp(σ²/2).
        return mean_s * math.exp(sigma * float(draws.standard_normal()) - sigma**2 / 2) / cloud.time_scale

    launched_s, registered_s, devices_s, pull_s = map(
        time_s, (cloud.launch_s, cloud.register_s, cloud.devices_s, cloud.pull_s)
    )
    refused, slow = float(draws.random()) < cloud.shortage_ratio, float(draws.random()) < cloud.slow_pull_ratio
    vanishes_s = math.inf
    if cloud.vanish_per_hour > 0.0:
        vanishes_s = float(draws.exponential(3600.0 / cloud.vanish_per_hour)) / cloud.time_scale
    return Fate(
        is_refused=refused or offer in cloud.short_offers,
        launched_s=launched_s,
        registered_s=max(launched_s, registered_s),
        devices_s=devices_s,
        pull_s=pull_s * (cloud.slow_pull_times if slow else 1.0),
        vanishes_s=vanishes_s,
    )
