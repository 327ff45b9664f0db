"""Which models a pod accepts, how many of each, in which order and at what cost.

``berthmaster.dev/gpu-models``: models separated by commas, the preferred first. ``H100=4`` takes four of that model
instead of as many as the pod's resource says, and ``H100=4@1.3`` says besides what a served token costs there, in any
unit that is the same for all. The resource in the pod's spec cannot change: it names the largest count, which is what
quotas see, and a larger one in the annotation is not taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet import labels, quantity
from fleet.device import Alternative, AskKind, DeviceAsk
from fleet.errors import DecodeError, QuantityError

# Real lists name a handful; without a bound, one annotation of 256 KiB would cost every pod after it.
_MOST_MODELS = 64
_MOST_COST_MILLI = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a pod says of models.

    Attributes:
        models: Acceptable ones, the preferred first; empty = any.
        is_ordered: Whether their order is a preference.
        ways: The models with their own counts and costs; empty where all have the count of the spec, and no cost.
        has_other_counts: Whether some are left out because their count cannot be had with this spec.
    """

    models: tuple[str, ...] = ()
    is_ordered: bool = False
    ways: tuple[Alternative, ...] = ()
    has_other_counts: bool = False


def wish_of(texts: Mapping[str, str], ask: DeviceAsk) -> Wish:
    """Return the wish that a pod's annotations make beside its ask.

    Raises:
        DecodeError: It cannot be read, or leaves no model.
    """
    if labels.GPU_MODELS not in texts:
        hami = texts.get(labels.HAMI_USE_MODELS, "")
        found = tuple(dict.fromkeys(name.strip() for name in hami.split(",") if name.strip()))
        _bound(labels.HAMI_USE_MODELS, len(found))
        return Wish(models=found)
    named = dict.fromkeys(_way(part, ask.count) for part in texts[labels.GPU_MODELS].split(","))
    _bound(labels.GPU_MODELS, len(named))
    least = 1 if ask.kind is AskKind.CHOSEN else ask.count
    ways = tuple(way for way in named if least <= way.count <= ask.count)
    if not ways:
        raise DecodeError(f"{labels.GPU_MODELS}: no model is acceptable with the {ask.count} device(s) asked for")
    costs = [way.cost_milli > 0 for way in ways]
    if any(costs) and not all(costs):
        raise DecodeError(f"{labels.GPU_MODELS}: a cost is said of some models and not of others")
    models = tuple(dict.fromkeys(way.model for way in ways))
    is_plain = not any(costs) and all(way.count == ask.count for way in ways)
    return Wish(
        models=models,
        is_ordered=len(models) > 1,
        ways=() if is_plain else ways,
        has_other_counts=len(ways) < len(named),
    )


def _way(part: str, count: int) -> Alternative:
    text, at, cost = (piece.strip() for piece in part.partition("@"))
    name, equals, number = (piece.strip() for piece in text.partition("="))
    is_count = number.isascii() and number.isdigit() and 0 < len(number) < 6
    if not name or (equals and not is_count):
        raise DecodeError(f"{labels.GPU_MODELS}: {part[:80]!r} is not a model or model=count")
    return Alternative(model=name, count=int(number) if equals else count, cost_milli=_cost(cost) if at else 0)


def _cost(text: str) -> int:
    try:
        milli = quantity.milli(text)
    except QuantityError as error:
        raise DecodeError(f"{labels.GPU_MODELS}: cost: {error}") from error
    if not 0 < milli <= _MOST_COST_MILLI:
        raise DecodeError(f"{labels.GPU_MODELS}: {text[:80]!r} is no cost of a token")
    return milli


def _bound(name: str, many: int) -> None:
    if many > _MOST_MODELS:
        raise DecodeError(f"{name}: {many} models are more than the {_MOST_MODELS} that are read")
