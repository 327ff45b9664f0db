"""What all downloads of one run share."""

from __future__ import annotations

import random
from dataclasses import dataclass

from fleet.clock import Clock
from warmpool.fetch.lanes import Lanes
from warmpool.fetch.meter import Meter
from warmpool.fetch.room import Room


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """The tools of one run.

    Attributes:
        retries: How often in a row one request may fail.
        draw: For jitter.
    """

    clock: Clock
    lanes: Lanes
    room: Room
    meter: Meter
    retries: int = 6
    draw: random.Random
