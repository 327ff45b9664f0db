"""docs/operate.md explains every reason of a waiting pod, in the words of `berthmaster explain`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from berthmaster.waiting_reasons import HANDED_OVER, WAITING, meaning_of
from fleet.plan import Reason

PAGE = (Path(__file__).parents[3] / "docs" / "operate.md").read_text(encoding="utf-8")


def as_in_a_terminal(markdown: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_stands_there_in_the_words_of_the_command(reason: Reason) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{reason.value}` |")]
    # A link in brackets is the page's alone.
    row = as_in_a_terminal(re.sub(r" \(\[[^]]*\]\([^)]*\)\)", "", row))
    found = WAITING[reason]
    assert row == f"| {reason.value} | {found.says} | {found.helps} |"


def test_what_is_written_is_found_again() -> None:
    assert meaning_of("Insufficient") is WAITING[Reason.INSUFFICIENT]
    assert meaning_of("HandedOver") is HANDED_OVER
    assert meaning_of("OfAnotherDay") is None
