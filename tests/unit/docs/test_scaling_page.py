"""docs/scaling.md names every reason, every setting and every field, in the words of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from berthmaster.reasons import HORIZONTAL, VERTICAL
from berthmaster.settings import SETTINGS
from scaler.policy import Mode
from scaler.resource import spec_of

PAGE = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("reason", "found"), [*HORIZONTAL.items(), *VERTICAL.items()])
def test_every_reason_stands_there_in_the_words_of_the_command(reason, found):
    assert f"| `{reason.value}` | {found.says} | {found.helps} |" in PAGE


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_stands_there(name):
    part, _, field = name.rpartition(".")
    assert f"`{part}." in PAGE or not part
    assert f"`{field}`" in PAGE or f"`{name}`" in PAGE


def test_the_example_is_a_valid_autoscaler():
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    written = yaml.safe_load(example)
    assert written["kind"] == "ConcurrencyAutoscaler"
    assert spec_of(written["spec"]).policy.mode is Mode.OBSERVE
