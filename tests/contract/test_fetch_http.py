"""Downloads from real HTTP servers that behave as servers do, well and badly."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import random
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from fleet.http import TokenFile
from tests.support.fetching import Handle, HastyClock, means, ranged, serving
from warmpool.fetch.download import Fetched, Wanted, fetch
from warmpool.fetch.errors import Changed, DownloadError, NotThere, Refused, Unavailable, WrongContent
from warmpool.fetch.http_source import HttpSource
from warmpool.fetch.places import Places
from warmpool.fetch.s3 import Bucket
from warmpool.fetch.wanted import item
from warmpool.fetch.web import Anonymous, Authorizer, FixedHeader, Web

CONTENT = random.Random(9).randbytes(5 * 2**20 + 3)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


async def fetched(
    target: Path, handle: Handle, *, sha256: str | None = None, authorizer: Authorizer | None = None, **more: object
) -> Fetched:
    async with serving(handle) as url, Web() as session:
        source = HttpSource(session, URL(f"{url}/model.bin?sig=secret"), authorizer or Anonymous())
        return await fetch(Wanted(target=target, sha256=sha256), [source], means(**more))  # type: ignore[arg-type]


async def fails(kind: type[DownloadError], target: Path, handle: Handle, **more: object) -> str:
    with pytest.raises(DownloadError) as failed:
        await fetched(target, handle, **more)  # type: ignore[arg-type]
    assert failed.type is kind, failed.value
    assert target.name not in os.listdir(target.parent)
    assert "secret" not in str(failed.value)
    return str(failed.value)


async def test_ranges_over_connections_at_once(tmp_path: Path) -> None:
    asked: list[str] = []
    conditions: set[str | None] = set()

    async def handle(request: web.Request) -> web.Response:
        if asked:
            conditions.add(request.headers.get("If-Range"))
        asked.append(request.headers.get("Range", ""))
        return ranged(request, CONTENT)

    found = await fetched(tmp_path / "model", handle)
    assert (found.sha256, found.received_bytes) == (SHA256, len(CONTENT))
    assert (tmp_path / "model").read_bytes() == CONTENT
    assert asked[0] == "bytes=0-0"
    assert conditions == {'"v1"'}
    assert len(asked) == len(set(asked)) >= 5


async def test_a_server_without_ranges_is_read_once(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=CONTENT, headers={"ETag": '"v1"'})

    assert (await fetched(tmp_path / "model", handle)).sha256 == SHA256


async def test_a_body_in_chunks_without_a_length_ends_where_it_says(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        answer.enable_chunked_encoding()
        await answer.prepare(request)
        await answer.write(CONTENT)
        return answer

    assert (await fetched(tmp_path / "model", handle)).sha256 == SHA256


async def test_a_body_whose_end_cannot_be_known_is_refused(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n" + CONTENT[:1000])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, Web() as session:
        url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/model")
        with pytest.raises(Refused, match="its end cannot be known"):
            await fetch(Wanted(target=tmp_path / "model"), [HttpSource(session, url, Anonymous())], means())


async def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return ranged(request, b"")

    assert (await fetched(tmp_path / "model", handle)).size_bytes == 0
    assert (tmp_path / "model").read_bytes() == b""


async def test_connections_that_break_are_gone_on_with(tmp_path: Path) -> None:
    draw = random.Random(3)
    breaks = 12

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal breaks
        whole = ranged(request, CONTENT)
        if breaks == 0 or request.headers.get("Range") == "bytes=0-0":
            return whole
        breaks -= 1
        assert isinstance(whole.body, bytes)
        answer = web.StreamResponse(status=206, headers=whole.headers)
        answer.content_length = len(whole.body)
        await answer.prepare(request)
        await answer.write(whole.body[: draw.randrange(len(whole.body))])
        assert request.transport is not None
        request.transport.abort()
        return answer

    found = await fetched(tmp_path / "model", handle, streams=3)
    assert (found.sha256, breaks) == (SHA256, 0)


async def test_a_throttling_server_is_waited_for_as_it_asks(tmp_path: Path) -> None:
    refusals = 2

    async def handle(request: web.Request) -> web.Response:
        nonlocal refusals
        if refusals:
            refusals -= 1
            return web.Response(status=429, headers={"Retry-After": "7"})
        return ranged(request, CONTENT)

    clock = HastyClock()
    await fetched(tmp_path / "model", handle, clock=clock)
    assert clock.pauses_s == [7.0, 7.0]


async def test_a_server_that_is_down_is_given_up_after_some_tries(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(status=503, text="try <b>later</b>\n")

    said = await fails(Unavailable, tmp_path / "model", handle, retries=2)
    assert "503 Service Unavailable: try <b>later</b> (3 times in a row)" in said


@pytest.mark.parametrize(("status", "kind"), [(401, Refused), (403, Refused), (404, NotThere), (410, NotThere)])
async def test_a_no_is_a_no_at_once(status: int, kind: type[DownloadError], tmp_path: Path) -> None:
    asked = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=status)

    assert str(status) in await fails(kind, tmp_path / "model", handle)
    assert asked == 1


async def test_a_file_that_changes_while_it_is_read_begins_anew(tmp_path: Path) -> None:
    old, asked = bytes(len(CONTENT)), 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return ranged(request, old, tag='"old"') if asked <= 3 else ranged(request, CONTENT, tag='"new"')

    assert (await fetched(tmp_path / "model", handle, streams=2)).sha256 == SHA256


async def test_versions_are_told_apart_even_where_if_range_is_ignored(tmp_path: Path) -> None:
    asked = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        answer = ranged(request, CONTENT, tag=request.headers.get("If-Range"))
        answer.headers["ETag"] = f'"{asked}"'
        return answer

    await fails(Changed, tmp_path / "model", handle)


async def test_an_encoded_body_is_refused(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=gzip.compress(CONTENT), headers={"Content-Encoding": "gzip"})

    assert "gzip" in await fails(Refused, tmp_path / "model", handle)


@pytest.mark.parametrize("shift", [(1, 0), (1, 1), (0, 1)], ids=["later begin", "shifted", "later end"])
async def test_another_range_than_asked_for_is_not_written(shift: tuple[int, int], tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        answer = ranged(request, CONTENT)
        first, last = (int(text) for text in request.headers["Range"].removeprefix("bytes=").split("-"))
        # The rest of a range is answered rightly, so that only the look at what was sent can tell.
        if last - first > 1000:
            first, last = first + shift[0], min(len(CONTENT) - 1, last + shift[1])
            answer.headers["Content-Range"] = f"bytes {first}-{last}/{len(CONTENT)}"
            answer.body = CONTENT[first : last + 1]
        return answer

    await fails(Unavailable, tmp_path / "model", handle, retries=1)


async def test_a_checksum_that_the_server_names_is_held_to(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        answer = ranged(request, CONTENT)
        answer.headers["X-Linked-ETag"] = f'"{"0" * 64}"'
        return answer

    said = await fails(WrongContent, tmp_path / "model", handle)
    assert "0" * 64 in said


async def test_a_secret_never_goes_to_another_host_and_survives_a_redirect_at_home(tmp_path: Path) -> None:
    heard: list[tuple[str, str | None]] = []

    async def elsewhere(request: web.Request) -> web.Response:
        heard.append(("elsewhere", request.headers.get("Authorization")))
        return ranged(request, CONTENT)

    async with serving(elsewhere) as other:

        async def home(request: web.Request) -> web.Response:
            heard.append((request.path, request.headers.get("Authorization")))
            if request.path == "/model.bin":
                raise web.HTTPFound("/second")
            raise web.HTTPTemporaryRedirect(f"{other.replace('http://', 'http://u:p@')}/x")

        async with serving(home) as url, Web() as session:
            authorizer = FixedHeader(URL(url), "Bearer abc")
            source = HttpSource(session, URL(f"{url}/model.bin"), authorizer)
            await fetch(Wanted(target=tmp_path / "model"), [source], means())
    assert {one for one in heard if one[0] != "elsewhere"} == {("/model.bin", "Bearer abc"), ("/second", "Bearer abc")}
    assert {secret for place, secret in heard if place == "elsewhere"} == {None}


@pytest.mark.parametrize("location", ["/again", "ftp://host/x", "file:///etc/passwd", "http://", ""])
async def test_redirects_that_are_not_followed(location: str, tmp_path: Path) -> None:
    asked = 0

    async def handle(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=302, headers={"Location": location})

    await fails(Refused, tmp_path / "model", handle)
    assert asked <= 6


async def test_a_token_goes_over_https_or_to_this_machine_only(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    async with Web() as session:
        places = Places(web=session, token=TokenFile(tmp_path / "token"), bucket=Bucket)
        places.sources(item("https://host/a"))
        places.sources(item("http://127.0.0.1/a"))
        with pytest.raises(Refused, match="only sent over https"):
            places.sources(item("http://host/a"))


async def test_a_cache_of_blobs_is_asked_first_and_its_copy_checked(tmp_path: Path) -> None:
    heard: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        heard.append(request.path)
        if request.path.startswith("/bad"):
            return ranged(request, bytes(len(CONTENT)))
        if request.path.startswith("/empty"):
            raise web.HTTPNotFound
        return ranged(request, CONTENT)

    async with serving(handle) as url, Web() as session:
        caches = (f"{url}/empty", f"{url}/bad", f"{url}/good", f"{url}/never")
        places = Places(web=session, caches=caches, bucket=Bucket)
        wish = item(f"{url}/origin.bin#sha256={SHA256}")
        found = await fetch(
            Wanted(target=tmp_path / "model", sha256=wish.sha256), places.sources(wish), means(retries=1)
        )
        assert found.source == f"{url}/good/blobs/sha256/{SHA256}"
        assert not any(path.startswith(("/never", "/origin")) for path in heard)

        (tmp_path / "local" / "blobs" / "sha256").mkdir(parents=True)
        (tmp_path / "model").rename(tmp_path / "local" / "blobs" / "sha256" / SHA256)
        places = Places(web=session, caches=(str(tmp_path / "local"), f"{url}/never"), bucket=Bucket)
        found = await fetch(Wanted(target=tmp_path / "again", sha256=SHA256), places.sources(wish), means())
        assert (found.source, found.sha256) == (str(tmp_path / "local" / "blobs" / "sha256" / SHA256), SHA256)
