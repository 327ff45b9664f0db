"""u, how contended each GPU model is: constrained demand poured level over the models that may serve it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from binpack.index.mix import Mix
from binpack.index.models import model_place

_SWEEPS: Final = 40
_NARROW_RATIO: Final = 0.9


def contention(mix: Mix, devices: Mapping[str, int]) -> dict[str, float]:
    """Return load over capacity for each model of which there are any devices.

    Only demand is counted whose acceptable models hold less than 90 % of all devices, with the whole mix scaled to
    the capacity. Each set of models pours its load over its members so that load/capacity is levelled from the lowest
    up; 40 sweeps of taking one set's load out and pouring it again. Levelled is essential: spreading in proportion to
    capacity hides that a scarce model is the only choice of somebody.

    Args:
        mix: The demand.
        devices: Number of devices by model name.
    """
    capacity = {model: n for model, n in sorted(devices.items()) if n > 0}
    total = sum(capacity.values())
    demand = _narrow_demand(mix, capacity)
    load = dict.fromkeys(capacity, 0.0)
    poured: dict[tuple[str, ...], dict[str, float]] = {models: {} for models in demand}
    for _ in range(_SWEEPS if demand else 0):
        for models, wanted in demand.items():
            for model, amount in poured[models].items():
                load[model] -= amount
            poured[models] = _pour(wanted * total, models, load, capacity)
            for model, amount in poured[models].items():
                load[model] += amount
    return {model: max(0.0, load[model]) / n for model, n in capacity.items()}


def _narrow_demand(mix: Mix, capacity: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    """Return each narrow set of models with its share of all demanded GPU."""
    total, everything = sum(capacity.values()), mix.total_milli_gpu
    demand: Counter[tuple[str, ...]] = Counter()
    for shape, n in mix.shapes:
        models = tuple(model for model in capacity if shape.models and model_place(shape.models, model) >= 0)
        if models and sum(capacity[model] for model in models) < _NARROW_RATIO * total:
            demand[models] += shape.total_milli_gpu * n
    return {models: amount / everything for models, amount in sorted(demand.items()) if amount}


def _pour(
    amount: float, models: tuple[str, ...], load: Mapping[str, float], capacity: Mapping[str, int]
) -> dict[str, float]:
    """Return how `amount` levels the models: the lowest are lifted until it is used up."""
    ratios = sorted((load[model] / capacity[model], model) for model in models)
    lifted = 0
    room = 0.0
    level = ratios[0][0]
    for ratio, model in ratios:
        if (ratio - level) * room > amount:
            break
        amount -= (ratio - level) * room
        level = ratio
        room += capacity[model]
        lifted += 1
    level += amount / room
    return {model: level * capacity[model] - load[model] for _, model in ratios[:lifted]}
