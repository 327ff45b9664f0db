"""One run of the command: settings into tools, wishes into files, signals into a state that can be gone on with."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import click
import uvloop
from rich.console import Console

from fleet.clock import SystemClock
from fleet.http import TokenFile, tls_context
from fleet.quantity import whole
from warmpool.fetch.answer import Answer
from warmpool.fetch.download import Fetched, Wanted, fetch
from warmpool.fetch.errors import DownloadError, Refused
from warmpool.fetch.lanes import Lanes
from warmpool.fetch.means import Means
from warmpool.fetch.meter import Meter
from warmpool.fetch.names import inside
from warmpool.fetch.places import Places
from warmpool.fetch.registry.challenge import Credential
from warmpool.fetch.registry.client import Repository
from warmpool.fetch.registry.image import fetch_image
from warmpool.fetch.registry.layout import Layout
from warmpool.fetch.registry.reference import Reference
from warmpool.fetch.room import Room
from warmpool.fetch.s3 import Bucket, bucket_and_key
from warmpool.fetch.several import at_once
from warmpool.fetch.show import shown
from warmpool.fetch.wanted import Item, check_names
from warmpool.fetch.web import Web

_LARGEST_CONFIG_BYTES = 2**20

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a run.

    Attributes:
        streams: At once over all files, None to find out.
        reserve_bytes: Of the disk, never filled.
        keep: Folder that becomes a cache, or None.
    """

    streams: int | None
    caches: tuple[str, ...]
    keep: Path | None
    reserve_bytes: int
    retries: int
    ca_file: str | None
    token_file: str | None
    s3_endpoint: str | None
    is_quiet: bool

    @classmethod
    def given(cls, *, reserve: str, **others: Any) -> Self:
        """Return the settings, the reserve read as a Kubernetes quantity."""
        return cls(reserve_bytes=whole(reserve), **others)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tools:
    means: Means
    places: Places


@asynccontextmanager
async def _tools(settings: Settings) -> AsyncIterator[_Tools]:
    clock = SystemClock()
    meter = Meter()
    lanes = Lanes(settings.streams)
    room = Room(settings.reserve_bytes)
    means = Means(clock=clock, lanes=lanes, room=room, meter=meter, retries=settings.retries, draw=random.Random())
    tls = tls_context(settings.ca_file) if settings.ca_file else None
    ca = await asyncio.to_thread(Path(settings.ca_file).read_bytes) if settings.ca_file else None
    token = TokenFile(settings.token_file) if settings.token_file else None
    buckets: dict[str, Bucket] = {}

    def bucket(name: str) -> Bucket:
        if name not in buckets:
            buckets[name] = Bucket(name, endpoint=settings.s3_endpoint, ca=ca)
        return buckets[name]

    async with Web(tls=tls) as web:
        places = Places(web=web, caches=settings.caches, token=token, bucket=bucket)
        steering = None if lanes.is_fixed else asyncio.ensure_future(lanes.steer(meter, clock))
        try:
            async with shown(meter, clock, Console(stderr=True, highlight=False), is_quiet=settings.is_quiet):
                yield _Tools(means=means, places=places)
        finally:
            if steering is not None:
                steering.cancel()


async def fetch_files(items: Sequence[Item], into: Path, settings: Settings) -> Answer:
    """Have these files in the folder.

    Raises:
        DownloadError: The first that is not to be had; the others are stopped and can be gone on with.
    """
    async with _tools(settings) as tools:
        began_s = tools.means.clock.monotonic_s()
        single = [single for item in items for single in await _each(item, tools.places)]
        check_names(single)

        def had(item: Item) -> Callable[[], Awaitable[Fetched]]:
            wanted = Wanted(target=inside(into, item.name), sha256=item.sha256)
            return lambda: fetch(wanted, tools.places.sources(item), tools.means)

        fetched = await at_once([had(item) for item in single])
        await _kept(fetched, settings.keep)
        return Answer(files=tuple(fetched), seconds=tools.means.clock.monotonic_s() - began_s)


async def _each(item: Item, places: Places) -> Sequence[Item]:
    if not item.is_prefix:
        return (item,)
    name, prefix = bucket_and_key(item.url)
    keys = await places.bucket(name).keys(prefix)
    # Built here and not read from an address again: a key may hold any sign.
    return [Item(url=f"s3://{name}/{_quoted(key)}", name=key.removeprefix(prefix), sha256=None) for key in keys]


def _quoted(key: str) -> str:
    return key.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


async def fetch_one_image(
    reference: Reference,
    credential: Credential | None,
    into: Path,
    platform: str,
    settings: Settings,
    *,
    is_plain: bool,
) -> Answer:
    """Have an image in the layout.

    Raises:
        DownloadError: It is not to be had whole.
    """
    async with _tools(settings) as tools:
        means, places = tools.means, tools.places
        began_s = means.clock.monotonic_s()
        repository = Repository(places.web, reference, credential, means.clock, is_plain=is_plain)
        image = await fetch_image(reference, repository, Layout(into), platform, places.cached, means)
        await _kept(image.blobs, settings.keep)
        return Answer(
            files=image.blobs, seconds=means.clock.monotonic_s() - began_s, image=image.reference, digest=image.digest
        )


async def _kept(fetched: Sequence[Fetched], keep: Path | None) -> None:
    """Link what came into a folder that serves as a cache."""
    if keep is None:
        return

    def link() -> None:
        folder = keep / "blobs" / "sha256"
        folder.mkdir(parents=True, exist_ok=True)
        for file in fetched:
            with suppress(FileExistsError):
                os.link(file.target, folder / file.sha256)

    try:
        await asyncio.to_thread(link)
    except OSError as error:
        raise DownloadError(f"{keep}: cannot keep what came (hard links need one file system): {error}") from error


def config_file(named: Path | None) -> tuple[Path, bytes] | None:
    """Return the pull secret's file and content, None where there is none.

    Raises:
        Refused: It is named and cannot be read.
    """
    path = named or Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_CONFIG_BYTES + 1)
    except OSError as error:
        if named is None:
            return None
        raise Refused(f"{path}: {error.strerror}") from error
    if len(raw) > _LARGEST_CONFIG_BYTES:
        raise Refused(f"{path}: larger than {_LARGEST_CONFIG_BYTES} bytes")
    return path, raw


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; SIGINT and SIGTERM stop it in a state that can be gone on with, exit status 130 and 143."""
    stopped_by: list[signal.Signals] = []

    async def stoppable() -> T:
        task = asyncio.ensure_future(work)

        def stop(number: signal.Signals) -> None:
            stopped_by.append(number)
            task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        return await task

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(stoppable())
    except asyncio.CancelledError:
        number = stopped_by[0] if stopped_by else signal.SIGINT
        click.echo("berthmaster-fetch: stopped; the same command goes on where it was", err=True)
        raise SystemExit(128 + number) from None
