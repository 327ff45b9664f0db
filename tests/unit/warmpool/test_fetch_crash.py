"""A process or a machine that stops between any two calls to the disk: the name never stands for wrong bytes."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.fetching import HastyClock, MemorySource, means
from warmpool.fetch import disk, spans, transfer
from warmpool.fetch.download import Wanted, fetch
from warmpool.fetch.names import JOURNAL_SUFFIX, PART_SUFFIX

CONTENT = random.Random(4).randbytes(50_001)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MUTATORS = frozenset({"open", "pwrite", "write", "fsync", "fdatasync", "rename", "ftruncate", "unlink"})


class Crash(BaseException):
    """The machine is off."""


class FragileDisk:
    """The calls of `os`, until one of them is the last; then what was not synced may be lost."""

    def __init__(self, dies_at: int, seed: int) -> None:
        self._dies_at = dies_at
        self._draw = random.Random(seed)
        self._unsynced: dict[int, list[tuple[int, int]]] = {}
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self._counted(name, found) if name in MUTATORS else found

    def _counted(self, name: str, call: Any) -> Any:
        def counted(*given: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls == self._dies_at:
                self._lose()
            if self.calls >= self._dies_at:
                raise Crash
            result = call(*given, **more)
            if name == "pwrite":
                self._unsynced.setdefault(given[0], []).append((given[2], result))
            elif name in {"fsync", "fdatasync"}:
                self._unsynced.pop(given[0], None)
            return result

        return counted

    def _lose(self) -> None:
        for descriptor, writes in self._unsynced.items():
            for position, size in writes:
                if self._draw.random() < 0.7:
                    os.pwrite(descriptor, bytes(size), position)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (spans, transfer):
        monkeypatch.setattr(module, "SMALLEST_BYTES", 6000)
    monkeypatch.setattr(transfer, "BUFFER_BYTES", 4096)


async def one_try(target: Path, *, sha256: str | None, dies_at: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many calls were made; a crash ends the try."""
    source = MemorySource(CONTENT)
    fragile = FragileDisk(dies_at, dies_at)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "os", fragile)
        with contextlib.suppress(Crash):
            await fetch(Wanted(target=target, sha256=sha256), [source], means(streams=3, clock=HastyClock(looks=50)))
    return fragile.calls


@pytest.mark.parametrize("sha256", [SHA256, None], ids=["checksum known", "version known"])
async def test_the_name_never_stands_for_wrong_bytes(
    sha256: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = await one_try(tmp_path / "whole" / "model", sha256=sha256, dies_at=10**9, monkeypatch=monkeypatch)
    assert calls > 30
    resumed = 0
    # How much a crash leaves depends on what the machine had written by then: many second crashes, so that enough do.
    for dies_at, later in itertools.product(range(1, calls + 1), (7, 11, 13)):
        target = tmp_path / f"{dies_at}-{later}" / "model"
        await one_try(target, sha256=sha256, dies_at=dies_at, monkeypatch=monkeypatch)
        assert not target.exists() or target.read_bytes() == CONTENT
        # A second crash on the way of going on, a little later each time.
        await one_try(target, sha256=sha256, dies_at=1 + dies_at * later % 23, monkeypatch=monkeypatch)
        assert not target.exists() or target.read_bytes() == CONTENT
        found = await fetch(Wanted(target=target, sha256=sha256), [MemorySource(CONTENT)], means(streams=3))
        assert target.read_bytes() == CONTENT
        assert found.sha256 == SHA256
        resumed += 0 < found.kept_bytes < len(CONTENT)
        assert [path.name for path in target.parent.iterdir()] == ["model"]
    assert resumed > 3


async def test_a_journal_says_nothing_of_another_partial_file(tmp_path: Path) -> None:
    target = tmp_path / "model"
    source = MemorySource(CONTENT)
    source.breaks_after = [1000] * 99
    with pytest.raises(Exception, match="broke off"):
        await fetch(Wanted(target=target), [source], means(retries=1))
    part, journal = disk.beside(target, PART_SUFFIX), disk.beside(target, JOURNAL_SUFFIX)
    assert journal.exists()
    other = tmp_path / "other"
    other.write_bytes(bytes(len(CONTENT)))
    other.rename(part)
    found = await fetch(Wanted(target=target), [MemorySource(CONTENT)], means())
    assert (found.kept_bytes, target.read_bytes()) == (0, CONTENT)
