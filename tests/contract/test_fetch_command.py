"""The command as a process: killed, stopped, refused; its exit status, its output, and what it leaves on the disk."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.fetching import ranged, serving
from tests.support.registry import FakeRegistry

pytestmark = pytest.mark.contract

CONTENT = random.Random(11).randbytes(4 * 2**20 + 5)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@asynccontextmanager
async def command(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "warmpool.fetch",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "HOME": "/nonexistent", "DOCKER_CONFIG": "/nonexistent"},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def run(*arguments: str) -> tuple[int, str, str]:
    async with command(*arguments) as process:
        out, err = await process.communicate()
        assert process.returncode is not None
        assert b"Traceback" not in err, err.decode()
        return process.returncode, out.decode(), err.decode()


class Slow:
    """Sends the first half of each span, then waits until it is let go; says when bytes have flowed."""

    def __init__(self) -> None:
        self.halves = 0
        self.flowed = asyncio.Event()
        self.let_go = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        whole = ranged(request, CONTENT)
        if request.headers.get("Range") == "bytes=0-0" or self.let_go.is_set():
            return whole
        assert isinstance(whole.body, bytes)
        answer = web.StreamResponse(status=206, headers=whole.headers)
        answer.content_length = len(whole.body)
        await answer.prepare(request)
        await answer.write(whole.body[: len(whole.body) // 2])
        self.halves += 1
        if self.halves == 4:
            self.flowed.set()
        await self.let_go.wait()
        return answer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_a_stop_in_the_middle_is_gone_on_with(number: signal.Signals, tmp_path: Path) -> None:
    slow = Slow()
    async with serving(slow.handle) as url:
        async with command("file", f"{url}/model.bin", f"--into={tmp_path}", "--reserve=0", "--streams=4") as process:
            await asyncio.wait_for(slow.flowed.wait(), 60)
            if number == signal.SIGKILL:
                # Until the journal has been written once.
                while not (tmp_path / ".model.bin.berthmaster-journal").exists():
                    await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=0.05)
            process.send_signal(number)
            _, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == (-number if number == signal.SIGKILL else 128 + number)
        assert number == signal.SIGKILL or err.decode().endswith("stopped; the same command goes on where it was\n")
        assert set(os.listdir(tmp_path)) == {
            ".model.bin.berthmaster-part",
            ".model.bin.berthmaster-journal",
        }
        slow.let_go.set()
        status, out, _ = await run("file", f"{url}/model.bin", f"--into={tmp_path}", "--reserve=0", "--json")
    (found,) = json.loads(out)["files"]
    assert (status, found["sha256"]) == (0, SHA256)
    # A stop that is announced keeps what had been written; a kill keeps what the last look had synced.
    assert found["kept_bytes"] > 0 or number == signal.SIGKILL
    assert found["kept_bytes"] + found["received_bytes"] == len(CONTENT)
    assert os.listdir(tmp_path) == ["model.bin"]


async def test_each_failure_has_its_status_and_one_clear_line(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return ranged(request, CONTENT) if request.path == "/model.bin" else web.Response(status=404)

    async with serving(handle) as url:
        cases = (
            (1, "404", ["file", f"{url}/none"]),
            (1, "not one of file, http, https, s3", ["file", "ftp://host/a"]),
            (2, "for one address", ["file", "--sha256", SHA256, f"{url}/a", f"{url}/b"]),
            (3, SHA256, ["file", f"{url}/model.bin#sha256={'0' * 64}"]),
            (4, "stay free", ["file", f"{url}/model.bin", "--name=other", "--reserve=1Ei"]),
            (5, "Cannot connect", ["file", "http://127.0.0.1:1/a", "--retries=0"]),
        )
        results = await asyncio.gather(*(run(*given, f"--into={tmp_path}", "--quiet") for _, _, given in cases))
    for (status, words, _), found in zip(cases, results, strict=True):
        assert found[0] == status, found
        assert words in found[2]
        assert found[1] == ""
    assert os.listdir(tmp_path) == []


async def test_a_list_goes_into_folders_and_is_kept_as_a_cache(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return ranged(request, CONTENT if request.path == "/model.bin" else b"{}")

    async with serving(handle) as url:
        wishes = [
            {"url": f"{url}/model.bin", "sha256": SHA256, "path": "llm/weights/model.bin"},
            {"url": f"{url}/config.json", "path": "llm/config.json"},
        ]
        (tmp_path / "models.json").write_text(json.dumps(wishes))
        places = (f"--into={tmp_path / 'models'}", f"--keep={tmp_path / 'cache'}", "--reserve=0", "--streams=auto")
        status, out, err = await run("list", str(tmp_path / "models.json"), *places)
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == f"{SHA256}  {tmp_path / 'models' / 'llm' / 'weights' / 'model.bin'}"
    assert (tmp_path / "models" / "llm" / "config.json").read_bytes() == b"{}"
    assert (tmp_path / "cache" / "blobs" / "sha256" / SHA256).read_bytes() == CONTENT
    (tmp_path / "models.json").write_text('[{"url": "http://host/a", "path": "../a"}]')
    status, _, err = await run("list", str(tmp_path / "models.json"), f"--into={tmp_path / 'models'}")
    assert status == 1
    assert "cannot be the name" in err


async def test_an_image_with_a_pull_secret(tmp_path: Path) -> None:
    fake = FakeRegistry(auth="bearer", user="me:pass")
    fake.manifest([CONTENT], "v1")
    async with serving(fake.handle) as url:
        host = url.removeprefix("http://")
        secret = tmp_path / "config.json"
        secret.write_text(json.dumps({"auths": {host: {"username": "me", "password": "pass"}}}))
        given = ("image", f"{host}/team/llm:v1", f"--into={tmp_path / 'images'}", "--reserve=0", "--json")
        refused, done = await asyncio.gather(
            run(*given[:2], f"--into={tmp_path / 'other'}"), run(*given, f"--docker-config={secret}")
        )
    assert refused[0] == 1
    assert "401" in refused[2]
    assert done[0] == 0, done
    assert json.loads(done[1])["image"] == f"{host}/team/llm:v1"
    assert (tmp_path / "images" / "blobs" / "sha256" / SHA256).read_bytes() == CONTENT
