"""One file from its sources to its name: resumed, in parallel spans, checked while it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warmpool.fetch import disk, journal
from warmpool.fetch.errors import Busy, Changed, DownloadError, NotThere, Refused, Unavailable, WrongContent
from warmpool.fetch.means import Means
from warmpool.fetch.meter import FileMeter
from warmpool.fetch.source import Described, Source
from warmpool.fetch.spans import total_bytes
from warmpool.fetch.transfer import Transfer, patient

_RESTARTS = 3
_CACHE_RETRIES = 1
_BUSY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One file to have.

    Attributes:
        target: Its final name.
        sha256: 64 lower-case hex digits, None where nobody knows.
        size_bytes: None where nobody knows.
    """

    target: Path
    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A file that is there.

    Attributes:
        sha256: Of its content, always taken from the bytes on disk.
        source: Where it came from, empty where it was there before.
        received_bytes: In this run.
        kept_bytes: From earlier tries, or all of it where it was there.
    """

    target: Path
    sha256: str
    size_bytes: int
    source: str
    received_bytes: int
    kept_bytes: int


async def fetch(wanted: Wanted, sources: Sequence[Source], means: Means) -> Fetched:
    """Have the file under its name, from the first source that gives it whole.

    Caches are only asked where the checksum is known, because nothing else would say that their copy is right. What one
    source began, the next goes on with. Where another process is at the same file, wait for its end: either it is right
    then, or it is gone on with.

    Raises:
        DownloadError: None of the sources gave it; the last one's reason, with the others' before it.
    """
    seen = means.meter.file(wanted.target.name, wanted.size_bytes)
    try:
        while True:
            try:
                return await _there(wanted, seen) or await _from_any(wanted, sources, means, seen)
            except Busy:
                seen.state = "waiting for another process"
                await means.clock.sleep(_BUSY_S)
    except BaseException:
        seen.state = "failed"
        raise


async def _from_any(wanted: Wanted, sources: Sequence[Source], means: Means, seen: FileMeter) -> Fetched:
    failures: list[DownloadError] = []
    for source in sources:
        if source.is_cache and wanted.sha256 is None:
            continue
        try:
            return await _from(source, wanted, means, seen)
        except (Refused, Unavailable, WrongContent) as error:
            if not (source.is_cache and isinstance(error, NotThere)):
                failures.append(error)
    raise _summary(wanted, failures)


def _summary(wanted: Wanted, failures: list[DownloadError]) -> DownloadError:
    if not failures:
        return Refused(f"{wanted.target}: no source for it")
    return type(failures[-1])("; ".join(str(failure) for failure in failures))


async def _there(wanted: Wanted, seen: FileMeter) -> Fetched | None:
    if wanted.sha256 is None or not wanted.target.is_file():
        return None
    seen.state = "checking"
    found = await asyncio.to_thread(disk.sha256_of, wanted.target)
    if found != wanted.sha256:
        return None
    disk.sweep(wanted.target)
    size = wanted.target.stat().st_size
    seen.state, seen.size_bytes, seen.done_bytes, seen.kept_bytes = "done", size, size, size
    return Fetched(target=wanted.target, sha256=found, size_bytes=size, source="", received_bytes=0, kept_bytes=size)


async def _from(source: Source, wanted: Wanted, means: Means, seen: FileMeter) -> Fetched:
    """Fetch from one source; begins anew when it changes meanwhile, a few times."""
    if source.is_cache:
        # A peer that is away shall not cost more time than it saves.
        means = replace(means, retries=min(means.retries, _CACHE_RETRIES))
    with disk.opened(wanted.target) as partial:
        for restart in range(_RESTARTS):
            seen.state, seen.source = "asking", source.name
            version = await patient(source.describe, means, seen)
            _check_size(wanted, version, source)
            try:
                return await _one_try(source, version, wanted, means, seen, partial)
            except WrongContent as error:
                # Bytes kept from an earlier try, or from another source, may be to blame, so they go first.
                partial.reset()
                may_begin_anew = isinstance(error, Changed) or seen.kept_bytes > 0
                if restart == _RESTARTS - 1 or not may_begin_anew:
                    raise
    raise AssertionError("the last restart returns or raises")


def _check_size(wanted: Wanted, version: Described, source: Source) -> None:
    if None not in {wanted.size_bytes, version.size_bytes} and wanted.size_bytes != version.size_bytes:
        raise WrongContent(f"{source.name}: has {version.size_bytes} bytes, wanted are {wanted.size_bytes}")
    if wanted.sha256 and version.sha256 and wanted.sha256 != version.sha256:
        raise WrongContent(f"{source.name}: has sha256 {version.sha256}, wanted is {wanted.sha256}")


async def _one_try(
    source: Source, version: Described, wanted: Wanted, means: Means, seen: FileMeter, partial: disk.Partial
) -> Fetched:
    sha256 = wanted.sha256 or version.sha256
    size = version.size_bytes if version.size_bytes is not None else wanted.size_bytes
    identity = journal.identity(sha256, source.address, version.validator)
    # Without checksum and without version, two requests may be answered from two versions: then only one is made.
    is_parallel = version.is_ranged and size is not None and identity is not None
    done = partial.begin(identity if is_parallel else None, size)
    kept = total_bytes(done)
    seen.size_bytes, seen.done_bytes, seen.kept_bytes, seen.state = size, kept, kept, "fetching"
    folder = wanted.target.parent
    with means.room.taken(folder, max(0, (size or 0) - partial.allocated_bytes())):
        transfer = Transfer(source=source, version=version, partial=partial, means=means, seen=seen, done=done)
        found, size = await (transfer.parallel(size or 0, folder) if is_parallel else transfer.single(size, folder))
        if sha256 is not None and found != sha256:
            raise WrongContent(f"{source.name}: the {size} bytes have sha256 {found}, wanted is {sha256}")
        await asyncio.to_thread(partial.finish)
    seen.state, seen.size_bytes, seen.done_bytes = "done", size, size
    return Fetched(
        target=wanted.target,
        sha256=found,
        size_bytes=size,
        source=source.name,
        received_bytes=transfer.received_bytes,
        kept_bytes=kept,
    )
