"""Kubernetes quantity text to exact integers in base units, and back.

Grammar and rounding: apimachinery `resource.Quantity` (number, then a binary suffix, a decimal suffix or an exponent;
amounts round up, never down). Python integers do not wrap, so an absurd amount stays absurd and fits nowhere.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from fleet.errors import QuantityError

_NUMBER = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?",
    re.ASCII,
)
_SCALE: dict[str, Fraction] = {
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
_LONGEST_TEXT = 64


def _exact(text: str) -> Fraction:
    match = _NUMBER.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(f"{text[:_LONGEST_TEXT]!r} is not a Kubernetes quantity")
    number = Fraction(match["number"])
    if match["suffix"]:
        return number * _SCALE[match["suffix"]]
    if match["exponent"]:
        return number * Fraction(10) ** int(match["exponent"])
    return number


def _not_negative(text: str) -> Fraction:
    exact = _exact(text)
    if exact < 0:
        raise QuantityError(f"{text!r} is negative")
    return exact


@lru_cache(maxsize=4096)
def units(text: str) -> int:
    """Return the amount in whole base units (bytes, pods), rounded up.

    Raises:
        QuantityError: The text is not a quantity, or is negative.
    """
    return -(-_not_negative(text) // 1)


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """Return the amount in thousandths of a base unit (milli-CPU), rounded up.

    Raises:
        QuantityError: The text is not a quantity, or is negative.
    """
    return -(-_not_negative(text) * 1000 // 1)


@lru_cache(maxsize=4096)
def whole(text: str) -> int:
    """Return the amount of a resource that comes in whole pieces (devices, MiB of a device).

    Raises:
        QuantityError: The text is not a quantity, is negative, or has a fraction: half a piece cannot be booked.
    """
    exact = _not_negative(text)
    if exact.denominator != 1:
        raise QuantityError(f"{text!r} is not a whole number")
    return int(exact)


@lru_cache(maxsize=4096)
def nano(text: str) -> int:
    """Return the amount in billionths of a base unit, the finest that a quantity goes: nothing real is rounded.

    Raises:
        QuantityError: The text is not a quantity, or is negative.
    """
    return -(-_not_negative(text) * 10**9 // 1)


def nano_text(amount: int) -> str:
    """Return billionths as a quantity that reads back as the same amount, with the largest binary suffix that fits."""
    whole_units, rest = divmod(amount, 10**9)
    if rest:
        return f"{amount}n"
    for power, suffix in ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if whole_units and whole_units % 2**power == 0:
            return f"{whole_units >> power}{suffix}"
    return str(whole_units)


def milli_text(amount: int) -> str:
    """Return milli-units as the shortest quantity that reads back as the same amount."""
    return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
