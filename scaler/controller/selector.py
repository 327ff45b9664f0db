"""Label selectors as scale subresources tell them: `a=b,c!=d,e in (f,g),h,!i`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.errors import DecodeError

_SPLIT = re.compile(r",(?![^(]*\))")
# A ReplicaSet's is a few labels; whoever makes a resource of their own may write megabytes here, and splitting is
# quadratic.
_LONGEST = 8192
_IN = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One term.

    Attributes:
        key: Label.
        values: Allowed, or forbidden; None = any value at all.
        is_wanted: False turns the term round.
    """

    key: str
    values: frozenset[str] | None
    is_wanted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """All terms must hold."""

    terms: tuple[Requirement, ...]

    def matches(self, tags: Mapping[str, str]) -> bool:
        """Return whether these labels are selected; a forbidden value also allows the label to be absent."""
        for term in self.terms:
            value = tags.get(term.key)
            holds = value is not None and (term.values is None or value in term.values)
            if holds != term.is_wanted:
                return False
        return True


def selector_from(text: str) -> Selector | None:
    """Return the selector; None for an empty one, which must select nothing here rather than everything.

    Raises:
        DecodeError: A term cannot be read, or it is longer than any that selects pods.
    """
    if len(text) > _LONGEST:
        raise DecodeError(f"a label selector of {len(text)} characters is not read: {_LONGEST} are the most")
    terms = tuple(_term(part.strip()) for part in _SPLIT.split(text) if part.strip())
    return Selector(terms=terms) if terms else None


def _term(text: str) -> Requirement:
    within = _IN.match(text)
    if within:
        key, how, values = within.groups()
        return Requirement(
            key=key, values=frozenset(value.strip() for value in values.split(",")), is_wanted=how == "in"
        )
    for sign, is_wanted in (("!=", False), ("==", True), ("=", True)):
        key, found, value = text.partition(sign)
        if found:
            return Requirement(key=_checked(key, text), values=frozenset({value.strip()}), is_wanted=is_wanted)
    return Requirement(key=_checked(text.removeprefix("!"), text), values=None, is_wanted=not text.startswith("!"))


def _checked(key: str, text: str) -> str:
    key = key.strip()
    if not key or " " in key:
        raise DecodeError(f"label selector term {text!r} cannot be read")
    return key
