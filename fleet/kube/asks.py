"""What a pod asks of GPUs, in whichever of the four dialects it is written.

- `nvidia.com/gpu` alone: a count of whole devices on a classic node.
- `berthmaster.dev/gpu`: whole devices of our choosing; `gpu-milli` and `gpu-memory-mib`: a share of one device, on
  which all containers of the pod run together, so theirs are summed.
  With `mig-profile` beside one `berthmaster.dev/gpu`: a MIG instance instead of a whole device.
- KAI's annotations. Its `gpu-fraction` means that part of the card's memory too; a request in MiB cannot say that of a
  card not chosen yet, so a fraction is booked as compute share alone. Fractions exclude each other exactly; a fraction
  and a MiB request side by side on one card can promise more memory than it has.
- HAMi's resources beside `nvidia.com/gpu`, per device. Without any memory request HAMi gives all of the card's memory,
  so nobody else fits: booked as the whole card. Its `gpumem-percentage` is booked as KAI's fraction is. Where several
  containers ask, counts and memory both add up: more than HAMi would book, never less.

Sources: KAI-Scheduler docs/gpu-sharing, HAMi docs/config and docs/userguide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from fleet import labels, quantity
from fleet.berths import is_profile
from fleet.device import WHOLE_MILLI, AskKind, DeviceAsk
from fleet.errors import DecodeError
from fleet.kube.model_wishes import wish_of
from fleet.resources import UNLIMITED

_NOTES = (
    labels.GPU_MODELS,
    labels.MIG_PROFILE,
    labels.SAME_ISLAND,
    labels.KAI_GPU_FRACTION,
    labels.KAI_GPU_MEMORY,
    labels.KAI_GPU_FRACTION_DEVICES,
    labels.HAMI_USE_MODELS,
    labels.HAMI_AVOID_MODELS,
    labels.HAMI_USE_UUIDS,
    labels.HAMI_AVOID_UUIDS,
)
_HAMI = (labels.HAMI_MEMORY, labels.HAMI_CORES, labels.HAMI_MEMORY_PERCENTAGE)
_NO_INSTANCE = f"{labels.MIG_PROFILE}: a MIG instance is asked for with exactly one {labels.GPU}"
_SLICES = 7  # of the compute of a card; what an instance is of a card in sums, and in nothing else
_REQUIRED, _PREFERRED = "required", "preferred"
_HAMI_UNMODELLED = (labels.HAMI_AVOID_MODELS, labels.HAMI_USE_UUIDS, labels.HAMI_AVOID_UUIDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A pod's ask; None with problems where it cannot be read, None without them for a CPU-only pod."""

    ask: DeviceAsk | None = None
    unmodelled: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


_NOTHING = Asked()
_LONGEST_NOTE = 4096


def ask_of(devices: tuple[tuple[str, int], ...], annotations: Mapping[str, str] | None) -> Asked:
    """Return what a pod with these effective device amounts and these annotations asks of GPUs."""
    notes = tuple([(key, annotations[key]) for key in _NOTES if key in annotations]) if annotations else ()
    if not devices and not notes:
        return _NOTHING
    for key, text in notes:
        if len(text) > _LONGEST_NOTE:  # what is read is remembered, so it must not be of any size
            return Asked(problems=(f"annotation {key} is longer than {_LONGEST_NOTE} characters",))
    return _asked(devices, notes)


@lru_cache(maxsize=4096)
def _asked(devices: tuple[tuple[str, int], ...], notes: tuple[tuple[str, str], ...]) -> Asked:
    amounts, texts = dict(devices), dict(notes)
    try:
        ask = _one_ask(amounts, texts)
        if ask is None:
            return _NOTHING if labels.MIG_PROFILE not in texts else Asked(problems=(_NO_INSTANCE,))
        wish = wish_of(texts, ask)
        ask = replace(_special(ask, texts), models=wish.models, is_ordered=wish.is_ordered, alternatives=wish.ways)
    except DecodeError as error:
        return Asked(problems=(str(error),))
    unmodelled = [f"annotation {name}" for name in _HAMI_UNMODELLED if name in texts]
    if wish.has_other_counts:
        unmodelled.append("gpu-models with other counts")
    return Asked(ask=ask, unmodelled=tuple(unmodelled))


def _special(ask: DeviceAsk, texts: Mapping[str, str]) -> DeviceAsk:
    """Return the ask as an instance of a card or as devices of one island, where an annotation says so."""
    if labels.MIG_PROFILE in texts:
        profile = texts[labels.MIG_PROFILE].strip()
        if ask.kind is not AskKind.CHOSEN or ask.count != 1:
            raise DecodeError(_NO_INSTANCE)
        if not is_profile(profile):
            raise DecodeError(f"{labels.MIG_PROFILE}: {profile[:80]!r} is not a MIG profile such as 2g.20gb")
        nominal_milli = min(WHOLE_MILLI, WHOLE_MILLI * int(profile.partition("g")[0]) // _SLICES)
        ask = replace(ask, kind=AskKind.PARTITION, profile=profile, milli_gpu=nominal_milli)
    wish = texts.get(labels.SAME_ISLAND, _PREFERRED).strip()
    if wish not in (_REQUIRED, _PREFERRED):
        raise DecodeError(f"{labels.SAME_ISLAND}: {wish[:80]!r} is neither {_REQUIRED} nor {_PREFERRED}")
    if wish == _REQUIRED and ask.kind is not AskKind.CHOSEN:
        raise DecodeError(f"{labels.SAME_ISLAND}: only devices asked for as {labels.GPU} can be of one island")
    return replace(ask, is_one_island=wish == _REQUIRED)


def _one_ask(amounts: Mapping[str, int], texts: Mapping[str, str]) -> DeviceAsk | None:
    asks: dict[str, DeviceAsk] = {}
    if labels.GPU in amounts:
        asks[labels.GPU] = DeviceAsk(kind=AskKind.CHOSEN, count=amounts[labels.GPU])
    if labels.GPU_MILLI in amounts or labels.GPU_MEMORY_MIB in amounts:
        milli, mib = amounts.get(labels.GPU_MILLI, 0), amounts.get(labels.GPU_MEMORY_MIB, 0)
        asks[labels.GPU_MILLI if milli else labels.GPU_MEMORY_MIB] = _share(labels.GPU_MILLI, milli, mib)
    if any(name in amounts for name in _HAMI):
        asks["HAMi's resources"] = _hami(amounts)
    elif labels.NVIDIA_GPU in amounts:
        asks[labels.NVIDIA_GPU] = DeviceAsk(kind=AskKind.CLASSIC, count=amounts[labels.NVIDIA_GPU])
    if labels.KAI_GPU_FRACTION in texts or labels.KAI_GPU_MEMORY in texts:
        asks["KAI's annotations"] = _kai(texts)
    if len(asks) > 1:
        raise DecodeError(f"GPUs are asked for in {len(asks)} ways at once: {', '.join(asks)}")
    return next(iter(asks.values()), None)


def _share(name: str, milli: int, mib: int, count: int = 1) -> DeviceAsk:
    if milli > WHOLE_MILLI:
        raise DecodeError(f"{name}: {milli} thousandths is more than one device")
    return DeviceAsk(kind=AskKind.SHARE, count=count, milli_gpu=milli, memory_mib=mib)


def _hami(amounts: Mapping[str, int]) -> DeviceAsk:
    count = amounts.get(labels.NVIDIA_GPU, 1)
    cores, mib = amounts.get(labels.HAMI_CORES, 0), amounts.get(labels.HAMI_MEMORY, 0)
    percentage = 0 if mib else amounts.get(labels.HAMI_MEMORY_PERCENTAGE, 100)
    name = labels.HAMI_CORES if cores >= percentage else labels.HAMI_MEMORY_PERCENTAGE
    return _share(name, 10 * max(cores, percentage), mib, count)


def _kai(texts: Mapping[str, str]) -> DeviceAsk:
    count = 1
    if labels.KAI_GPU_FRACTION_DEVICES in texts:
        count = _number(texts, labels.KAI_GPU_FRACTION_DEVICES, quantity.whole)
    if labels.KAI_GPU_MEMORY not in texts:
        return _share(labels.KAI_GPU_FRACTION, _number(texts, labels.KAI_GPU_FRACTION, quantity.milli), 0, count)
    if labels.KAI_GPU_FRACTION in texts:
        raise DecodeError(f"{labels.KAI_GPU_FRACTION} and {labels.KAI_GPU_MEMORY} exclude each other")
    return _share(labels.KAI_GPU_MEMORY, 0, _number(texts, labels.KAI_GPU_MEMORY, quantity.whole), count)


def _number(texts: Mapping[str, str], name: str, read: Callable[[str], int]) -> int:
    try:
        number = read(texts[name].strip())
    except DecodeError as error:
        raise DecodeError(f"{name}: {error}") from error
    if number == 0:
        raise DecodeError(f"{name}: {texts[name]!r} asks for nothing")
    if number > UNLIMITED:
        raise DecodeError(f"{name}: {texts[name][:80]!r} is beyond any machine")
    return number
