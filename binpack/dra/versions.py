"""Semantic versions and their order. Source: Semantic Versioning 2.0.0, sections 2, 9 and 11."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"(?:0|[1-9][0-9]*)"
_VERSION = re.compile(
    rf"(?P<core>{_NUMBER}\.{_NUMBER}\.{_NUMBER})(?:-(?P<before>[0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticVersion:
    """A version: its text, its three numbers, and the parts of its pre-release; empty = a release."""

    text: str
    numbers: tuple[int, ...]
    before: tuple[str, ...] = ()


def parse(text: str) -> SemanticVersion:
    """Return the version.

    Raises:
        ValueError: The text is none.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:64]!r} is not a semantic version")
    before = found["before"]
    return SemanticVersion(
        text=text,
        numbers=tuple(map(int, found["core"].split("."))),
        before=tuple(before.split(".")) if before else (),
    )


def compare(first: SemanticVersion, second: SemanticVersion) -> int:
    """Return -1, 0 or 1 as the first is older than, as old as, or newer than the second."""
    if first.numbers != second.numbers:
        return 1 if first.numbers > second.numbers else -1
    if not first.before or not second.before:
        return bool(second.before) - bool(first.before)
    mine, others = _ranks(first.before), _ranks(second.before)
    return (mine > others) - (mine < others)


def _ranks(parts: tuple[str, ...]) -> list[tuple[bool, int, str]]:
    """Return the parts so that tuples compare as the parts do: numbers before words, numbers by value."""
    return [
        (not part.isdigit(), int(part) if part.isdigit() else 0, part if not part.isdigit() else "") for part in parts
    ]
