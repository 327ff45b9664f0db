"""One file from sources that break, change, lie or lack it: the right bytes under the name, or an error and no name."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.clock import settle
from tests.support.fetching import HastyClock, MemorySource, means
from warmpool.fetch import disk, spans, transfer
from warmpool.fetch.download import Fetched, Wanted, fetch
from warmpool.fetch.errors import Changed, DownloadError, NoRoom, Refused, Unavailable, WrongContent
from warmpool.fetch.lanes import Lanes
from warmpool.fetch.names import PART_SUFFIX
from warmpool.fetch.room import Room

CONTENT = random.Random(7).randbytes(3 * 2**20 + 17)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


async def fetched(target: Path, *sources: MemorySource, sha256: str | None = None, **more: object) -> Fetched:
    return await fetch(Wanted(target=target, sha256=sha256), sources, means(**more))  # type: ignore[arg-type]


async def fails(kind: type[DownloadError], target: Path, *sources: MemorySource, **more: object) -> str:
    with pytest.raises(kind) as failed:
        await fetched(target, *sources, **more)  # type: ignore[arg-type]
    assert failed.type is kind
    assert target.name not in os.listdir(target.parent)
    return str(failed.value)


async def test_streams_fetch_different_spans_at_once_and_never_more_of_them_than_allowed(tmp_path: Path) -> None:
    source = MemorySource(CONTENT)
    found = await fetched(tmp_path / "a" / "model", source, streams=2)
    assert (tmp_path / "a" / "model").read_bytes() == CONTENT
    assert (found.sha256, found.size_bytes, found.received_bytes) == (SHA256, len(CONTENT), len(CONTENT))
    assert source.most_reading == 2
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["model"]


@settings(max_examples=60)
@given(
    size=st.integers(0, 40_000),
    breaks=st.lists(st.one_of(st.none(), st.integers(0, 9_000)), max_size=12),
    ends_early=st.booleans(),
    is_ranged=st.booleans(),
    knows_sha256=st.booleans(),
    has_version=st.booleans(),
    tells_size=st.booleans(),
    streams=st.integers(1, 5),
    chunk_bytes=st.integers(1, 9_000),
)
def test_whatever_breaks_the_right_bytes_or_nothing(
    size: int,
    breaks: list[int | None],
    ends_early: bool,
    is_ranged: bool,
    knows_sha256: bool,
    has_version: bool,
    tells_size: bool,
    streams: int,
    chunk_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    content = CONTENT[:size]
    target = tmp_path_factory.mktemp("any") / "model"
    source = MemorySource(
        content,
        validator='"v"' if has_version else None,
        is_ranged=is_ranged,
        # A body of unknown length that ends early without a sign cannot be told from a whole one.
        tells_size=tells_size or ends_early,
        chunk_bytes=max(chunk_bytes, size // 200 + 1),
    )
    source.breaks_after, source.ends_early = list(breaks), ends_early
    with pytest.MonkeyPatch.context() as patch:
        for module in (spans, transfer):
            patch.setattr(module, "SMALLEST_BYTES", 4_000)
        patch.setattr(transfer, "BUFFER_BYTES", 3_000)
        sha256 = hashlib.sha256(content).hexdigest()
        for _ in range(20):
            try:
                found = asyncio.run(fetched(target, source, sha256=sha256 if knows_sha256 else None, streams=streams))
            except Unavailable:
                assert not target.exists()
            else:
                break
    assert target.read_bytes() == content
    assert found.sha256 == sha256


async def test_what_came_before_the_source_gave_up_is_not_fetched_again(tmp_path: Path) -> None:
    source = MemorySource(CONTENT)
    source.breaks_after = [700_000] * 4 + [0] * 99
    said = await fails(Unavailable, tmp_path / "model", source, streams=1)
    assert "broke off" in said
    source.breaks_after, source.asked = [], []
    found = await fetched(tmp_path / "model", source, streams=1)
    assert found.kept_bytes >= 2_000_000
    assert found.kept_bytes + found.received_bytes == len(CONTENT)
    assert (tmp_path / "model").read_bytes() == CONTENT


async def test_a_range_that_ended_early_goes_on_where_it_was_after_a_pause(tmp_path: Path) -> None:
    source = MemorySource(CONTENT)
    source.breaks_after, source.ends_early = [300_000], True
    clock = HastyClock()
    await fetched(tmp_path / "model", source, streams=1, clock=clock)
    first, second = source.asked[:2]
    assert first is not None
    assert second == spans.Span(300_000, first.end)
    assert 0.2 <= clock.pauses_s[0] <= 0.5


async def test_another_version_in_between_begins_anew_and_never_mixes(tmp_path: Path) -> None:
    old, new = MemorySource(CONTENT), bytes(reversed(CONTENT))
    old.breaks_after = [700_000] * 2 + [0] * 99
    await fails(Unavailable, tmp_path / "model", old, streams=1)
    now = MemorySource(new, validator='"v2"')
    found = await fetched(tmp_path / "model", now, streams=1)
    assert (found.kept_bytes, (tmp_path / "model").read_bytes()) == (0, new)


async def test_a_source_that_changes_all_the_time_is_given_up(tmp_path: Path) -> None:
    class Restless(MemorySource):
        async def describe(self):  # type: ignore[no-untyped-def]
            found = await super().describe()
            self.validator = f'"{len(self.asked)}-{id(found)}"'
            return found

    source = Restless(CONTENT)
    await fails(Changed, tmp_path / "model", source)
    assert len(source.asked) >= 3


async def test_without_version_and_checksum_only_one_request_is_made(tmp_path: Path) -> None:
    source = MemorySource(CONTENT, validator=None)
    await fetched(tmp_path / "one", source)
    assert source.asked == [None]
    await fetched(tmp_path / "many", source, sha256=SHA256)
    assert None not in source.asked[1:]


async def test_wrong_bytes_never_get_the_name_and_are_not_kept(tmp_path: Path) -> None:
    said = await fails(WrongContent, tmp_path / "model", MemorySource(CONTENT[:-1] + b"!"), sha256=SHA256)
    assert SHA256 in said
    assert os.listdir(tmp_path) == []


async def test_wrong_bytes_kept_from_an_earlier_try_are_thrown_away_once(tmp_path: Path) -> None:
    target = tmp_path / "model"
    bad = MemorySource(b"x" * len(CONTENT))
    bad.breaks_after = [900_000, *[0] * 99]
    await fails(Unavailable, target, bad, sha256=SHA256, streams=1)
    found = await fetched(target, MemorySource(CONTENT), sha256=SHA256)
    assert (found.kept_bytes, target.read_bytes()) == (0, CONTENT)


async def test_a_cache_comes_first_and_the_origin_goes_on_with_what_it_began(tmp_path: Path) -> None:
    cache = MemorySource(CONTENT, name="cache", is_cache=True, validator='"c"')
    cache.breaks_after = [900_000] + [0] * 99
    origin = MemorySource(CONTENT, name="origin")
    found = await fetched(tmp_path / "model", cache, origin, sha256=SHA256, streams=1)
    assert (found.source, found.kept_bytes) == ("origin", 900_000)
    assert found.received_bytes == len(CONTENT) - 900_000


@pytest.mark.parametrize("fault", ["lies", "lacks it", "has another size"])
async def test_a_useless_cache_costs_only_time(fault: str, tmp_path: Path) -> None:
    cache = MemorySource(CONTENT, name="cache", is_cache=True)
    cache.is_missing = fault == "lacks it"
    cache.content = {"lies": bytes(len(CONTENT)), "has another size": b"short"}.get(fault, CONTENT)
    found = await fetched(tmp_path / "model", cache, MemorySource(CONTENT, name="origin"), sha256=SHA256)
    assert (found.source, (tmp_path / "model").read_bytes()) == ("origin", CONTENT)


async def test_no_cache_is_asked_where_nothing_could_tell_that_it_is_right(tmp_path: Path) -> None:
    cache = MemorySource(bytes(len(CONTENT)), is_cache=True)
    await fetched(tmp_path / "model", cache, MemorySource(CONTENT))
    assert cache.asked == []


async def test_a_file_that_is_there_and_right_is_left_alone_and_a_wrong_one_replaced(tmp_path: Path) -> None:
    target, source = tmp_path / "model", MemorySource(CONTENT)
    target.write_bytes(b"something else")
    assert (await fetched(target, source, sha256=SHA256)).received_bytes == len(CONTENT)
    asked = len(source.asked)
    found = await fetched(target, source, sha256=SHA256)
    assert (found.received_bytes, found.kept_bytes, len(source.asked)) == (0, len(CONTENT), asked)


async def test_the_reserve_of_the_disk_is_kept(tmp_path: Path) -> None:
    said = await fails(NoRoom, tmp_path / "model", MemorySource(CONTENT), reserve_bytes=2**60)
    assert "stay free" in said


class Halting(MemorySource):
    """Brings a MiB of the first span, and then nothing more."""

    def __init__(self) -> None:
        super().__init__(CONTENT)
        self.reached = asyncio.Event()

    async def _chunks(self, span):  # type: ignore[no-untyped-def]
        yield self.content[span.start : span.start + 2**20]
        self.reached.set()
        await asyncio.get_running_loop().create_future()


async def test_a_reserve_that_others_eat_stops_it_in_a_state_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, source = means(streams=1, clock=HastyClock(looks=10**6)), Halting()

    def checked(folder: Path) -> None:
        if source.reached.is_set():
            raise NoRoom(f"{folder}: full")

    monkeypatch.setattr(tools.room, "check", checked)
    with pytest.raises(NoRoom):
        await fetch(Wanted(target=tmp_path / "model"), [source], tools)
    found = await fetched(tmp_path / "model", MemorySource(CONTENT))
    assert found.kept_bytes == 2**20
    assert (tmp_path / "model").read_bytes() == CONTENT


async def test_a_stop_keeps_what_came(tmp_path: Path) -> None:
    source = Halting()
    task = asyncio.ensure_future(fetch(Wanted(target=tmp_path / "model"), [source], means(streams=1)))
    await source.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    found = await fetched(tmp_path / "model", MemorySource(CONTENT))
    assert found.kept_bytes == 2**20
    assert (tmp_path / "model").read_bytes() == CONTENT


async def test_two_at_the_same_file_do_not_mix_the_second_waits(tmp_path: Path) -> None:
    clock = HastyClock()
    with disk.opened(tmp_path / "model"):
        second = asyncio.ensure_future(fetched(tmp_path / "model", MemorySource(CONTENT), sha256=SHA256, clock=clock))
        while len(clock.pauses_s) < 3:
            await settle(1)
        (tmp_path / "model").write_bytes(CONTENT)
    assert (await second).received_bytes == 0
    assert set(clock.pauses_s) == {1.0}


async def test_nothing_to_ask_is_an_error(tmp_path: Path) -> None:
    assert "no source" in await fails(Refused, tmp_path / "model")


async def test_lanes_let_in_as_many_as_the_limit_of_now_and_lose_no_turn() -> None:
    lanes = Lanes(2)
    inside: set[int] = set()
    leave = asyncio.Event()

    async def hold(number: int) -> None:
        async with lanes:
            inside.add(number)
            await leave.wait()

    tasks = [asyncio.ensure_future(hold(number)) for number in range(6)]
    await settle()
    assert inside == {0, 1}
    for task in (tasks[0], tasks[2]):
        task.cancel()
    await settle()
    assert inside == {0, 1, 3}
    leave.set()
    await asyncio.wait(tasks)
    assert inside == {0, 1, 3, 4, 5}


async def test_a_turn_that_comes_to_somebody_who_leaves_goes_to_the_next() -> None:
    lanes = Lanes(1)
    inside: list[int] = []

    async def hold(number: int) -> None:
        async with lanes:
            inside.append(number)

    await lanes.__aenter__()
    first, second = (asyncio.ensure_future(hold(number)) for number in (1, 2))
    await settle()
    await lanes.__aexit__(None, None, None)
    first.cancel()
    await asyncio.wait([first, second])
    assert inside == [2]


async def test_bytes_beyond_a_range_are_not_written(tmp_path: Path) -> None:
    class Generous(MemorySource):
        async def _chunks(self, span):  # type: ignore[no-untyped-def]
            async for chunk in super()._chunks(span):
                yield chunk
            yield b"more"

    assert (await fetched(tmp_path / "model", Generous(CONTENT), streams=1)).size_bytes == len(CONTENT)
    assert (tmp_path / "model").read_bytes() == CONTENT


def test_room_that_is_promised_is_not_promised_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = Room(100)
    monkeypatch.setattr(Room, "_free_bytes", staticmethod(lambda folder: 1000))
    with room.taken(tmp_path, 600):
        with pytest.raises(NoRoom, match="600 B are promised"), room.taken(tmp_path, 301):
            pass
        with room.taken(tmp_path, 300):
            pass
    room.check_for(tmp_path, 900)
    with pytest.raises(NoRoom):
        room.check_for(tmp_path, 901)


def test_a_file_that_got_its_name_while_we_waited_for_its_lock_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model"
    part = disk.beside(target, PART_SUFFIX)
    part.write_bytes(CONTENT)
    lock = disk.fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        if not target.exists():
            part.rename(target)
        lock(descriptor, operation)

    monkeypatch.setattr(disk.fcntl, "flock", late)
    with disk.opened(target) as partial:
        partial.begin("sha256:x", 10)
    assert target.read_bytes() == CONTENT
