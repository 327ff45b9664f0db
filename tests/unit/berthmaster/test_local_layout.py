"""Names of clusters and places of their files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berthmaster.local.layout import Layout, cache_home, check_name, state_home
from fleet.errors import LocalClusterError


@pytest.mark.parametrize("name", ["a", "local", "test-1", "0", "a" * 40])
def test_good_names_pass(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a.b", "a/b", "..", "a b", "a\n", "ä", "a" * 41, "٣"])
def test_bad_names_are_refused_by_name(name: str) -> None:
    with pytest.raises(LocalClusterError, match="cannot name a cluster") as caught:
        check_name(name)
    assert repr(name) in str(caught.value)


@given(st.text(max_size=50))
def test_an_accepted_name_stays_one_folder_below_home(name: str) -> None:
    try:
        check_name(name)
    except LocalClusterError:
        return
    home = Path("/home/someone/state")
    assert Layout(home=home, name=name).root.parent == home


def test_homes_follow_xdg_and_ignore_relative_values() -> None:
    assert state_home({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/berthmaster")
    assert cache_home({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/berthmaster")
    assert state_home({"XDG_STATE_HOME": "s", "HOME": "/h"}) == Path("/h/.local/state/berthmaster")
    assert cache_home({"HOME": "/h"}) == Path("/h/.cache/berthmaster")


def test_the_lock_lies_outside_the_folder_that_down_removes() -> None:
    layout = Layout(home=Path("/s"), name="a")
    assert layout.root not in layout.lock.parents
    assert layout.lock != Layout(home=Path("/s"), name="b").lock
