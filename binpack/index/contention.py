"""u, how contended each GPU model is: constrained demand poured level over the models that may serve it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from binpack.index.mix import Mix
from binpack.index.models import model_place

_SWEEPS: Final = 40
_NARROW_RATIO: Final = 0.9
_STILL_RATIO: Final = 1e-6  # of a model's capacity: less than that moves no price


def narrow_demand(mix: Mix, devices: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    """Return the sets of models that some demand is limited to, with its share of all demanded GPU.

    Only sets count that hold less than 90 % of all devices, and of each the models there are.

    Args:
        mix: The demand.
        devices: Number of devices by model name.
    """
    held = {model: n for model, n in sorted(devices.items()) if n > 0}
    total, everything = sum(held.values()), mix.total_milli_gpu
    demand: Counter[tuple[str, ...]] = Counter()
    for shape, n in mix.shapes:
        models = tuple(model for model in held if shape.models and model_place(shape.models, model) >= 0)
        if models and sum(held[model] for model in models) < _NARROW_RATIO * total:
            demand[models] += shape.total_milli_gpu * n
    return {models: amount / everything for models, amount in sorted(demand.items()) if amount}


def contention(demand: Mapping[tuple[str, ...], float], free: Mapping[str, float]) -> dict[str, float]:
    """Return load over capacity for each model of which anything is free, with all demand scaled to what is free.

    Each set of models pours its load over its members so that load/capacity is levelled from the lowest up; then, up to
    40 times, one set's load after the other is taken out and poured again. Levelled is essential: spreading in
    proportion to capacity hides that a scarce model is the only choice of somebody.

    Args:
        demand: Shares by set of models, see `narrow_demand`.
        free: How much is free by model name, in any unit.
    """
    capacity = {model: n for model, n in sorted(free.items()) if n > 0}
    total = sum(capacity.values())
    wanted = {
        models: share * total
        for every, share in demand.items()
        if (models := tuple(model for model in every if model in capacity))
    }
    load = dict.fromkeys(capacity, 0.0)
    poured: dict[tuple[str, ...], dict[str, float]] = {models: {} for models in wanted}
    for _ in range(_SWEEPS):
        before = dict(load)
        for models, amount in wanted.items():
            for model, part in poured[models].items():
                load[model] -= part
            poured[models] = _pour(amount, models, load, capacity)
            for model, part in poured[models].items():
                load[model] += part
        if all(abs(load[model] - before[model]) <= _STILL_RATIO * n for model, n in capacity.items()):
            break
    return {model: max(0.0, load[model]) / n for model, n in capacity.items()}


def _pour(
    amount: float, models: tuple[str, ...], load: Mapping[str, float], capacity: Mapping[str, float]
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
