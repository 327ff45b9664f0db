"""Settings from flags and environment, every problem told at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.config import read
from fleet.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Window:
    idle_s: float = 0.05
    most_pods: int = 512


@dataclass(frozen=True, kw_only=True)
class Settings:
    name: str
    window: Window = Window()
    slow: Window = field(default_factory=lambda: Window(idle_s=9.0))
    is_dry: bool = False
    limit: int | None = None

    def problems(self):
        return [f"window.idle_s: must not be negative, got {self.window.idle_s:g}"] if self.window.idle_s < 0 else []


def settings(environment=None, **flags):
    return read(Settings, prefix="BM", environment={"BM_NAME": "n"} | (environment or {}), flags=flags)


def test_defaults_environment_flags_in_this_order():
    assert settings() == Settings(name="n")
    found = settings({"BM_WINDOW_IDLE_S": "2", "BM_IS_DRY": "Yes", "BM_SLOW_MOST_PODS": " 3 ", "OTHER": "x"})
    assert found.window == Window(idle_s=2.0)
    assert found.slow == Window(idle_s=9.0, most_pods=3)
    assert found.is_dry is True
    found = settings({"BM_LIMIT": "5", "BM_NAME": "m"}, limit=7, name=None, **{"window.idle_s": 1})
    assert (found.limit, found.name, found.window.idle_s) == (7, "m", 1.0)


def test_every_problem_is_told_at_once():
    environment = {
        "BM_NAMEE": "x",
        "BM_WINDOW_IDLE_S": "soon",
        "BM_WINDOW_MOST_PODS": "1.5",
        "BM_IS_DRY": "maybe",
        "BM_LIMIT": "inf",
    }
    with pytest.raises(ConfigError) as caught:
        read(Settings, prefix="BM", environment=environment, flags={"nmae": "x", "slow.most_pods": True})
    assert caught.value.problems == (
        "BM_NAMEE: no such setting",
        "nmae: no such setting",
        "BM_WINDOW_IDLE_S: 'soon' is not a number",
        "BM_WINDOW_MOST_PODS: '1.5' is not a whole number",
        "slow.most_pods: True is not a int",
        "BM_IS_DRY: 'maybe' is neither true nor false",
        "BM_LIMIT: 'inf' is not a whole number",
        "name: not set, and there is no default",
    )


def test_settings_that_contradict_each_other():
    with pytest.raises(ConfigError, match="must not be negative, got -1"):
        settings({"BM_WINDOW_IDLE_S": "-1"})


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_numbers_that_are_none(text):
    with pytest.raises(ConfigError, match="BM_WINDOW_IDLE_S"):
        settings({"BM_WINDOW_IDLE_S": text})


@given(text=st.text(), name=st.sampled_from(["WINDOW_IDLE_S", "WINDOW_MOST_PODS", "IS_DRY", "LIMIT", "NAME"]))
def test_any_text_is_read_or_refused_by_name(text, name):
    try:
        found, problem = settings({f"BM_{name}": text}), None
    except ConfigError as error:
        found, problem = None, error.problems[0]
    assert problem is None or name in problem or "idle_s" in problem
    if found is not None:
        assert isinstance(found.window.idle_s, float)
        assert isinstance(found.window.most_pods, int)


def test_a_setting_under_its_old_name_is_told_its_new_one():
    with pytest.raises(ConfigError) as refused:
        read(Settings, prefix="BM", environment={"BM_TITLE": "x"}, renamed={"title": "name"})
    assert "BM_TITLE: no such setting; it is called BM_NAME now" in refused.value.problems
