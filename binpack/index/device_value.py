"""V(r), what the free part of one device is worth: the table shipped with the package."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Final

import numpy as np

from binpack.index.columns import Floats
from fleet.device import WHOLE_MILLI

# Values are kept as multiples of this, so that sums of them are exact in any order.
GRAIN: Final = 1 / 16


def value_table(steps: Iterable[tuple[int, float]]) -> Floats:
    """Return V over every residual 0..1000, (1001,), milli-GPU, from ascending (residual, value) steps."""
    table = np.zeros(WHOLE_MILLI + 1)
    for residual, value in steps:
        table[residual:] = round(value / GRAIN) * GRAIN
    return table


@cache
def frozen_value_table() -> Floats:
    """Return V for the openb default mix, which serves any other mix nearly as well.

    Made by `python -m binpack.solver.device_value`. The table of the default trace used on nine other traces cost at
    most 0.03 points of unallocated GPUs.
    """
    text = resources.files("binpack").joinpath("data", "device_value.json").read_text("utf-8")
    table = value_table([(residual, value) for residual, value in json.loads(text)["steps"]])
    table.setflags(write=False)
    return table
