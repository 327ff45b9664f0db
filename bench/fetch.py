"""Downloads on loopback from a server that limits each connection: many streams beside one, and kills at any moment.

    python -m bench.fetch                # about five minutes, mostly waiting for the limited server
    python -m bench.fetch --quick        # half a minute: does it work?

Speed: the command itself (process start, checksum, sync and rename included), with 8 streams beside one; where curl is
there, one curl as well. Every figure is a ratio within this run. Kills: a child is fetching, and gets SIGKILL after a
drawn time; after each kill the final name is looked for, and whatever is under it is compared with the truth. The child
goes on with the same file until it is whole; then the next file begins.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from aiohttp import web
from yarl import URL

from bench.measured import commit
from fleet.clock import SystemClock
from warmpool.fetch.download import Wanted, fetch
from warmpool.fetch.http_source import HttpSource
from warmpool.fetch.lanes import Lanes
from warmpool.fetch.means import Means
from warmpool.fetch.meter import Meter
from warmpool.fetch.names import JOURNAL_SUFFIX
from warmpool.fetch.room import Room
from warmpool.fetch.web import Anonymous, Web

RESULTS = Path(__file__).parent / "results" / "fetch.json"
STREAMS = 8
PROMISED_RATIO = 5.0
_RATE_BYTES_PER_S = 4 * 2**20
_CHUNK_BYTES = 2**17
_TELLS_RSS = """
import sys
from pathlib import Path
from warmpool.fetch.command import command
command(sys.argv[1:], standalone_mode=False)
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""
_KILL_SIZE_BYTES = 6 * 2**20
_KILL_RATE_BYTES_PER_S = 3 * 2**20


def main() -> int:
    given = _arguments()
    if given.serve:
        asyncio.run(_serve(Path(given.serve), given.rate))
        return 0
    with tempfile.TemporaryDirectory(prefix="berthmaster-fetch-") as place:
        folder = Path(place)
        speed = _speed(folder, 3 if not given.quick else 1, 2**27 if not given.quick else 2**25)
        kills = _kills(folder, 400 if not given.quick else 30, given.seed)
    found = {
        "command": "python -m bench.fetch",
        "commit": commit(),
        "machine": {"cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "speed": speed,
        "kills": kills,
        "promised": {"ratio": PROMISED_RATIO, "wrong_files": 0},
        "is_reached": speed["ratio"] >= PROMISED_RATIO and kills["wrong_files"] == 0,
    }
    if not given.quick:
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")
    click.echo(json.dumps(found, indent=2))
    return 0 if found["is_reached"] else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


async def _serve(folder: Path, rate_bytes_per_s: int) -> None:
    """Serve a folder with ranges; each connection gets so many bytes a second, 0 = as many as it takes."""
    clock = SystemClock()

    async def handle(request: web.Request) -> web.StreamResponse:
        path = folder / request.match_info["name"]
        size = path.stat().st_size
        start, end = _span(request.headers.get("Range"), size)
        headers = {"ETag": '"1"', "Content-Range": f"bytes {start}-{end - 1}/{size}"}
        answer = web.StreamResponse(status=206 if "Range" in request.headers else 200, headers=headers)
        if answer.status == 200:
            del answer.headers["Content-Range"]
        answer.content_length = end - start
        # The client may be killed at any moment.
        with suppress(ConnectionError), path.open("rb") as file:
            await answer.prepare(request)
            began_s, position = clock.monotonic_s(), start
            while position < end:
                chunk = os.pread(file.fileno(), min(_CHUNK_BYTES, end - position), position)
                await answer.write(chunk)
                position += len(chunk)
                if rate_bytes_per_s:
                    await clock.sleep(began_s + (position - start) / rate_bytes_per_s - clock.monotonic_s())
        return answer

    app = web.Application()
    app.router.add_get("/{name}", handle)
    runner = web.AppRunner(app, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def _span(asked: str | None, size: int) -> tuple[int, int]:
    if asked is None:
        return 0, size
    first, _, last = asked.removeprefix("bytes=").partition("-")
    return int(first), min(size, int(last) + 1)


class Server:
    """The limited server in a process of its own."""

    def __init__(self, folder: Path, rate_bytes_per_s: int) -> None:
        command = [sys.executable, "-m", "bench.fetch", f"--serve={folder}", f"--rate={rate_bytes_per_s}"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _speed(folder: Path, repeats: int, size: int) -> dict[str, Any]:
    truth = hashlib.sha256(_made(folder / "model.bin", size, 1)).hexdigest()
    with Server(folder, _RATE_BYTES_PER_S) as server:
        url = f"{server.url}/model.bin"
        seconds: dict[str, list[float]] = {"one stream": [], f"{STREAMS} streams": []}
        for number in range(repeats):
            for name, streams in (("one stream", 1), (f"{STREAMS} streams", STREAMS)):
                into = folder / f"{streams}-{number}"
                command = [sys.executable, "-m", "warmpool.fetch", "file", url, f"--into={into}", "--reserve=0"]
                seconds[name].append(_timed([*command, f"--streams={streams}", "--quiet"]))
                assert hashlib.sha256((into / "model.bin").read_bytes()).hexdigest() == truth
        if shutil.which("curl"):
            seconds["one curl"] = [
                _timed(["curl", "--silent", "--output", str(folder / "curl.bin"), url]) for _ in range(min(2, repeats))
            ]
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    one = min(value for name, value in medians.items() if name.startswith("one"))
    with Server(folder, 0) as server:
        arguments = ["file", f"{server.url}/model.bin", "--reserve=0", "--quiet"]
        command = [sys.executable, "-m", "warmpool.fetch", *arguments]
        unlimited_s = min(_timed([*command, f"--into={folder / 'unlimited'}"]) for _ in range(repeats))
        rss_bytes = _largest_rss_bytes([*arguments, f"--into={folder / 'rss'}"])
    return {
        "size_bytes": size,
        "bytes_per_s_per_connection": _RATE_BYTES_PER_S,
        "seconds": {name: [round(second, 3) for second in found] for name, found in seconds.items()},
        "ratio": round(one / medians[f"{STREAMS} streams"], 2),
        "ratio_is": "the faster single stream over 8 streams, medians",
        "unlimited_bytes_per_s": round(size / unlimited_s),
        "largest_rss_bytes": rss_bytes,
    }


def _timed(command: list[str]) -> float:
    began_s = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def _largest_rss_bytes(arguments: list[str]) -> int:
    """Run the command and return its largest resident set, as it sees it (the one of wait4 holds the parent's, too)."""
    command = [sys.executable, "-c", _TELLS_RSS, *arguments]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    return int(said) * 1024


def _kills(folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill again and again; a file is finished only by a child that is let live as long as it needs."""
    draw = random.Random(seed)
    found = dict.fromkeys(
        ("kills", "files", "journals_left", "kills_before_the_name", "kills_after_the_name", "wrong_files"), 0
    )
    # The longest life is a little more than a fetch takes, so that kills fall on its end, too.
    longest_s = 1.3 * _KILL_SIZE_BYTES / (4 * _KILL_RATE_BYTES_PER_S) + 0.1
    with Server(folder, _KILL_RATE_BYTES_PER_S) as server:
        while found["kills"] < kills:
            number = found["files"]
            content = _made(folder / f"{number}.bin", _KILL_SIZE_BYTES + number, number)
            target = folder / "killed" / f"{number}.bin"
            # Every other file without a checksum: then only version and journal protect it.
            sha256 = hashlib.sha256(content).hexdigest() if number % 2 else None
            while not target.exists():
                child = _child(f"{server.url}/{number}.bin", target, sha256)
                time.sleep(draw.uniform(0.0, longest_s))  # noqa: TID251 (a child's life is real time)
                os.kill(child, signal.SIGKILL)
                _, status = os.waitpid(child, 0)
                found["kills"] += os.WIFSIGNALED(status)
                if os.WIFSIGNALED(status):
                    found["kills_after_the_name" if target.exists() else "kills_before_the_name"] += 1
                journal = target.with_name(f".{target.name}{JOURNAL_SUFFIX}")
                found["journals_left"] += journal.exists()
                if target.exists() and target.read_bytes() != content:
                    found["wrong_files"] += 1
            for path in (folder / f"{number}.bin", target):
                path.unlink()
            found["files"] += 1
    return found | {"size_bytes": _KILL_SIZE_BYTES, "streams": 4, "seed": seed}


def _child(url: str, target: Path, sha256: str | None) -> int:
    """Fork a child that fetches; forked rather than started, so that kills meet the fetch and not Python's start."""
    child = os.fork()
    if child:
        return child
    try:
        asyncio.run(_fetched(url, target, sha256))
    finally:
        os._exit(0)


async def _fetched(url: str, target: Path, sha256: str | None) -> None:
    means = Means(clock=Often(), lanes=Lanes(4), room=Room(0), meter=Meter(), draw=random.Random())
    async with Web() as session:
        await fetch(Wanted(target=target, sha256=sha256), [HttpSource(session, URL(url), Anonymous())], means)


class Often(SystemClock):
    """Keeps the journal every few milliseconds instead of seconds, so that kills meet it being written."""

    async def sleep(self, seconds: float) -> None:
        """Sleep a hundredth of it."""
        await super().sleep(seconds / 100)


def _made(path: Path, size: int, seed: int) -> bytes:
    content = random.Random(seed).randbytes(size)
    path.write_bytes(content)
    return content


if __name__ == "__main__":
    sys.exit(main())
