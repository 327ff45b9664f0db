"""The sources follow their file: what is new is asked, what is gone is not, and a wrong file changes nothing."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from berthmaster.local import pki
from fleet.errors import ConfigError
from scaler.config import SourcesFile
from scaler.controller.supply import Supply
from tests.support.clock import ManualClock

A, B = "  a: {url: http://a:1}\n", "  b: {urls: [http://b:1, http://b:2]}\n"
_STAMPS = count(1_800_000_000)


class Written:
    """A sources file, and how often what it said could not be taken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures = 0

    def say(self, text: str) -> None:
        self.path.write_text(text)
        stamp = next(_STAMPS)
        os.utime(self.path, (stamp, stamp))

    def failed(self) -> None:
        self.failures += 1

    def supply(self) -> Supply:
        return Supply(SourcesFile(str(self.path)), ManualClock(), self.failed)


@pytest.fixture
def file(tmp_path: Path) -> Written:
    written = Written(tmp_path / "sources.yaml")
    written.say(f"balancers:\n{A}")
    return written


async def test_a_source_that_is_added_is_asked_and_the_others_go_on(file: Written) -> None:
    async with file.supply() as supply:
        before = supply.balancers["a"]
        file.say(f"balancers:\n{A}{B}prometheus:\n  default: {{url: http://p:1}}\n")
        await supply.turn()
        assert supply.balancers.keys() == {"a", "b"}
        assert supply.balancers["a"] is before
        assert supply.meters.keys() == {"default"}
        assert len(supply.balancers["b"].states()) == 2
        assert file.failures == 0


async def test_one_that_is_changed_begins_anew_and_one_that_is_gone_is_not_asked(file: Written) -> None:
    async with file.supply() as supply:
        before = supply.balancers["a"]
        file.say("balancers:\n  a: {url: http://elsewhere:1}\n")
        await supply.turn()
        assert supply.balancers["a"] is not before
        assert supply.balancers["a"].states()[0].url == "http://elsewhere:1"
        file.say("balancers: {}\n")
        await supply.turn()
        assert not supply.balancers
        await supply.turn()


@pytest.mark.parametrize("wrong", ["balancers: [", "balancers:\n  a: {url: ftp://a}\n", "balancer: {}\n"])
async def test_a_wrong_file_changes_nothing_and_is_told_once(file: Written, wrong: str, caplog) -> None:
    async with file.supply() as supply:
        before = supply.balancers["a"]
        file.say(wrong)
        for _ in range(3):
            await supply.turn()
        assert supply.balancers == {"a": before}
        assert (file.failures, caplog.text.count("the sources stay as they were")) == (1, 1)
        file.path.unlink()
        await supply.turn()
        assert supply.balancers == {"a": before}
        file.say(f"balancers:\n{A}{B}")
        await supply.turn()
        assert supply.balancers.keys() == {"a", "b"}
        assert supply.balancers["a"] is before


async def test_a_source_whose_files_are_missing_is_asked_once_they_are_there(file: Written, tmp_path: Path) -> None:
    async with file.supply() as supply:
        before = supply.balancers["a"]
        authority = tmp_path / "ca.crt"
        file.say(f"balancers:\n  a: {{url: https://a:1, caFile: {authority}}}\n")
        for _ in range(2):
            await supply.turn()
        assert supply.balancers["a"] is before  # the old address is better than none
        assert file.failures == 1
        pki.write_all(tmp_path, now_s=1_800_000_000.0)
        await supply.turn()
        assert supply.balancers["a"].states()[0].url == "https://a:1"


async def test_a_second_prometheus_takes_the_default_from_one_that_was_alone(file: Written) -> None:
    file.say("prometheus:\n  main: {url: http://p:1}\n")
    async with file.supply() as supply:
        assert supply.meters["main"]._is_default
        file.say("prometheus:\n  main: {url: http://p:1}\n  other: {url: http://q:1}\n")
        await supply.turn()
        assert not any(meter._is_default for meter in supply.meters.values())


def test_a_controller_does_not_start_with_a_wrong_file(file: Written) -> None:
    file.say("balancers: [")
    with pytest.raises(ConfigError, match="not YAML"):
        file.supply()
