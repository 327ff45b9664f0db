"""Reads the fields of a parsed custom resource by dotted path and collects every problem instead of stopping at one."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

_E = TypeVar("_E", bound=StrEnum)

_LONGEST_SHOWN = 80
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:h|m|s))+", re.ASCII)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|m|s)", re.ASCII)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_LONGEST_DURATION = 64


class FieldReader:
    """Each method takes the object that holds a field and the field's path, the last part of which is its key.

    Attributes:
        problems: What could not be read so far; a stand-in was returned for each.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []

    def part(self, of: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        """Return an object; {} where there is none."""
        value = of.get(_key(path))
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.problems.append(f"{path} must be an object, got {shown(value)}")
            return {}
        return value

    def items(self, of: Mapping[str, Any], path: str) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """Return the objects of a list, each with its own path."""
        value = of.get(_key(path)) or []
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            self.problems.append(f"{path} must be a list of objects")
            return ()
        return [(f"{path}[{position}]", item) for position, item in enumerate(value)]

    def texts(self, of: Mapping[str, Any], path: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = of.get(_key(path)) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problems.append(f"{path} must be a list of texts")
            return ()
        return tuple(value)

    def pairs(self, of: Mapping[str, Any], path: str) -> tuple[tuple[str, str], ...]:
        """Return an object of texts as pairs, sorted by name."""
        value = self.part(of, path)
        if not all(isinstance(name, str) and isinstance(text, str) for name, text in value.items()):
            self.problems.append(f"{path} must map names to texts")
            return ()
        return tuple(sorted(value.items()))

    def number(self, of: Mapping[str, Any], path: str, default: float | None = None) -> float:
        """Return a finite number; without a default it must be there."""
        value = of.get(_key(path), default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            self.problems.append(
                f"{path} must be a number, got {shown(value)}" if value is not None else f"{path} is missing"
            )
            return 1.0
        return float(value)

    def optional(self, of: Mapping[str, Any], path: str) -> float | None:
        """Return a finite number; None where there is none."""
        return None if of.get(_key(path)) is None else self.number(of, path)

    def whole(self, of: Mapping[str, Any], path: str, default: int | None = None) -> int:
        """Return a whole number; without a default it must be there."""
        value = self.number(of, path, default)
        if value != int(value):
            self.problems.append(f"{path} must be a whole number, got {value:g}")
        return int(value)

    def text(self, of: Mapping[str, Any], path: str, default: str | None = None) -> str:
        """Return a text; without a default it must be there."""
        value = of.get(_key(path), default)
        if not isinstance(value, str):
            self.problems.append(
                f"{path} must be text, got {shown(value)}" if value is not None else f"{path} is missing"
            )
            return ""
        return value

    def flag(self, of: Mapping[str, Any], path: str, *, default: bool) -> bool:
        """Return true or false."""
        value = of.get(_key(path), default)
        if not isinstance(value, bool):
            self.problems.append(f"{path} must be true or false, got {shown(value)}")
            return default
        return value

    def duration_s(self, of: Mapping[str, Any], path: str) -> float | None:
        """Return the seconds of a duration such as 720h or 1h30m; None where there is none."""
        value = of.get(_key(path))
        if value is None:
            return None
        is_one = isinstance(value, str) and len(value) <= _LONGEST_DURATION and _DURATION.fullmatch(value)
        if not is_one:
            self.problems.append(f"{path} must be a duration such as 720h or 1h30m, got {shown(value)}")
            return None
        return sum(float(amount) * _SECONDS[unit] for amount, unit in _PART.findall(value))

    def word(self, of: Mapping[str, Any], path: str, kind: type[_E], default: _E | None = None) -> _E:
        """Return one of a fixed set of words; without a default it must be there."""
        value = of.get(_key(path), default)
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(kind)
            self.problems.append(f"{path} must be one of {known}, got {shown(value)}")
            return default if default is not None else next(iter(kind))


def shown(value: object) -> str:
    """Return a value for a message: what a person wrote may be as long as an object may be."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python is willing to write
        text = "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _is_finite(value: float) -> bool:
    """Return whether a number is one that a float can hold: JSON allows integers of any length."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _key(path: str) -> str:
    return path.rpartition(".")[2]
