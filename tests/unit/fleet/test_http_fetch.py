"""Questions over HTTP: bounded in time and size, with a token that may be rotated."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from fleet.errors import ConfigError
from fleet.http import FetchError, Http, TokenFile, tls_context

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextlib.asynccontextmanager
async def serving(handle: Handle) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def kind_of(handle: Handle, **given: object) -> tuple[str, int]:
    async with serving(handle) as url, Http() as http:
        with pytest.raises(FetchError) as failed:
            await http.get(url, **({"timeout_s": 2.0} | given))  # type: ignore[arg-type]
    assert url in str(failed.value)
    return failed.value.kind, failed.value.status


async def test_a_body_comes_back_whole_and_the_query_is_quoted() -> None:
    async def echo(request: web.Request) -> web.Response:
        form = await request.post()
        return web.json_response({"query": request.query.get("q"), "form": form.get("q"), "is": request.method})

    async with serving(echo) as url, Http() as http:
        text = 'up{a="b & c"} + 1'
        assert await http.get(url, params={"q": text}, timeout_s=2.0) == await _json(text, None, "GET")
        assert await http.post_form(url, {"q": text}, timeout_s=2.0) == await _json(None, text, "POST")


async def _json(query: str | None, form: str | None, method: str) -> bytes:
    body = web.json_response({"query": query, "form": form, "is": method}).body
    assert isinstance(body, bytes)
    return body


async def test_a_silent_peer_costs_one_time_out() -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    assert await kind_of(silent, timeout_s=0.1) == ("timeout", 0)


async def test_a_peer_that_drips_costs_one_time_out_too() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b" ")
            await asyncio.Event().wait() if request.query else await _turn()

    assert (await kind_of(drip, timeout_s=0.2, largest_bytes=10**9))[0] == "timeout"


async def _turn() -> None:
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)


@pytest.mark.parametrize("status", [204, 401, 404, 500, 503])
async def test_another_status_is_told(status: int) -> None:
    async def say(_: web.Request) -> web.Response:
        return web.Response(status=status)

    assert await kind_of(say) == ("status", status)


async def test_nobody_is_sent_elsewhere_with_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")

    async def elsewhere(request: web.Request) -> web.Response:
        assert request.path == "/", "was followed"
        return web.Response(status=302, headers={"Location": "/other"})

    assert await kind_of(elsewhere, token=TokenFile(tmp_path / "token")) == ("redirect", 302)


@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_an_answer_that_is_too_large_is_not_read_to_its_end(encoding: str) -> None:
    async def large(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        if encoding:
            answer.enable_compression(web.ContentCoding.gzip)
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                await answer.write(b" " * 100_000)
        return answer

    assert (await kind_of(large, largest_bytes=1_000_000, timeout_s=20.0))[0] == "too-large"


async def test_a_connection_that_breaks_and_a_port_without_a_server() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"x")
        assert request.transport is not None
        request.transport.abort()
        return answer

    assert (await kind_of(broken))[0] == "broken"
    async with serving(broken) as url:
        pass
    async with Http() as http:
        with pytest.raises(FetchError) as failed:
            await http.get(url, timeout_s=1.0)
    assert failed.value.kind == "unreachable"


async def test_a_rotated_token_is_used_at_once(tmp_path: Path) -> None:
    seen: list[str] = []

    async def note(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.Response()

    path = tmp_path / "token"
    path.write_text("one\n")
    token = TokenFile(path)
    async with serving(note) as url, Http() as http:
        await http.get(url, token=token, timeout_s=2.0)
        (tmp_path / "new").write_text("two\n")
        os.replace(tmp_path / "new", path)  # as a projected volume does
        await http.get(url, token=token, timeout_s=2.0)
        path.unlink()
        with pytest.raises(FetchError) as failed:
            await http.get(url, token=token, timeout_s=2.0)
    assert seen == ["Bearer one", "Bearer two"]
    assert failed.value.kind == "token"


@pytest.mark.parametrize("raw", [b"", b"\n", b"two words", b"two\nlines", b"\xff\xfe", b"a\x00b"])
def test_a_file_without_a_token_is_named(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(raw)
    with pytest.raises(ConfigError, match=str(path)):
        TokenFile(path).read()


def test_tls_files_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    with pytest.raises(ConfigError, match="ca"):
        tls_context(tmp_path / "ca")
    with pytest.raises(ConfigError, match="missing"):
        tls_context(tmp_path / "missing")
