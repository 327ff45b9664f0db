"""The exporter's loop against a scripted runtime socket: silence, half answers, restarts, limits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from fleet.clock import SystemClock
from scaler.balancer.exporter import Exporter
from scaler.balancer.limits import Allowance
from scaler.balancer.socket import RuntimeSocket, SocketError
from tests.support.clock import ManualClock
from tests.support.haproxy import backend, runtime_socket, seconds_of, server, stat_text


class ScriptedSocket(RuntimeSocket):
    """Answers `show stat` from `found`; raises what it is told to."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("scripted")
        self.found = [backend(server("slot1", in_flight=2, sessions=10), name="model")]
        self.fault: Exception | None = None
        self.silent_s = 0.0
        self.told: list[str] = []
        self.asked = 0
        self._clock = clock

    async def ask(self, line: str) -> str:
        self.asked += 1
        if self.silent_s:
            await self._clock.sleep(self.silent_s)
            raise SocketError("timeout", "no answer")
        if self.fault is not None:
            raise self.fault
        if line.startswith("show stat"):
            return stat_text(self.found)
        self.told += line.split(";")
        return "\n" * len(line.split(";"))


class Scene:
    def __init__(self, allowances: Mapping[str, Allowance]) -> None:
        self.clock = ManualClock()
        self.socket = ScriptedSocket(self.clock)
        self.exporter = Exporter(self.socket, self.clock, allowances=lambda: allowances)

    def count(self, name: str, **labels: str) -> float:
        return self.exporter.metrics.registry.get_sample_value(f"berthmaster_balancer_{name}_total", labels) or 0.0


@contextlib.asynccontextmanager
async def scene(**allowances: Allowance):
    made = Scene(allowances)
    task = asyncio.create_task(made.exporter.run())
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_second_ends_every_second_after_ten_readings() -> None:
    async with scene() as made:
        assert made.exporter.not_ready() != ""
        await made.clock.advance(5.01)
        assert made.socket.asked == 51
        found = seconds_of(made.exporter)
        assert len(found) == 5
        assert all((second.in_flight, second.arrivals) == (2, 0) for second in found)
        assert made.exporter.not_ready() == ""


@pytest.mark.parametrize("silent_s", [0.0, 1.0])
async def test_a_balancer_that_does_not_answer_costs_its_samples_only(silent_s: float) -> None:
    async with scene() as made:
        await made.clock.advance(3.01)
        made.socket.fault, made.socket.silent_s = SocketError("unreachable", "gone"), silent_s
        await made.clock.advance(6.0)
        assert made.exporter.not_ready() != ""
        assert made.count("reads_failed", why="timeout" if silent_s else "unreachable") >= 5
        assert made.socket.asked < 31 + 61, "no storm of questions"
        made.socket.fault, made.socket.silent_s = None, 0.0
        made.socket.found = [backend(server("slot1", in_flight=1, sessions=4), name="model")]
        await made.clock.advance(5.0)
        found = seconds_of(made.exporter)
        first_after = next(second for second in found if second.arrivals)
        assert first_after.arrivals < 4, "a restart and a gap: four requests over more than a second"
        assert (found[-1].arrivals, found[-1].in_flight) == (0, 1)
        assert made.exporter.not_ready() == ""


async def test_a_half_answer_is_counted_and_dropped() -> None:
    async with scene() as made:
        await made.clock.advance(2.01)
        made.socket.fault = None
        whole = made.socket.ask
        made.socket.ask = lambda line: _half(whole(line))  # type: ignore[method-assign]
        await made.clock.advance(1.0)
        assert made.count("reads_failed", why="unreadable") >= 1
        made.socket.ask = whole  # type: ignore[method-assign]
        await made.clock.advance(2.0)
        assert seconds_of(made.exporter)[-1].in_flight == 2


async def _half(answer) -> str:
    text = await answer
    return text[: len(text) // 2]


async def test_limits_are_set_again_after_a_restart_of_the_balancer() -> None:
    async with scene(model=Allowance(limit=5.5)) as made:
        await made.clock.advance(0.5)
        assert made.socket.told == ["set maxconn server model/slot1 5"]
        made.socket.found = [backend(server("slot1", limit=5), name="model")]
        await made.clock.advance(3.0)
        assert len(made.socket.told) == 1
        made.socket.found = [backend(server("slot1", limit=8), name="model")]
        await made.clock.advance(1.0)
        assert made.socket.told == ["set maxconn server model/slot1 5"] * 2
        assert made.count("settings", outcome="sent") == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(None, "timeout"), (b"", ""), (b"# pxname,svname,\n\n", "")],
)
async def test_the_socket_reads_to_the_end_or_fails_in_time(tmp_path: Path, answer: bytes | None, kind: str) -> None:
    path = tmp_path / "s"
    async with runtime_socket(path, lambda line: answer) as asked:
        client = RuntimeSocket(str(path), timeout_s=0.2)
        if kind:
            with pytest.raises(SocketError) as failed:
                await client.ask("show stat")
            assert failed.value.kind == kind
        else:
            assert (await client.ask("show stat")).encode() == answer
        assert asked == ["show stat"]


async def test_a_socket_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(SocketError, match="No such file") as failed:
        await RuntimeSocket(str(tmp_path / "none")).ask("show info")
    assert failed.value.kind == "unreachable"


async def test_commands_go_in_lines_that_fit_the_buffer_and_complaints_come_back(tmp_path: Path) -> None:
    path = tmp_path / "s"
    commands = [f"set maxconn server a-backend-with-a-long-name/slot{number} 25" for number in range(250)]
    async with runtime_socket(path, lambda line: b"\n\nNo such server.\n\n") as asked:
        complaints = await RuntimeSocket(str(path), timeout_s=2.0).tell(commands)
    assert ";".join(asked) == ";".join(commands)
    assert max(map(len, asked)) < 16384
    assert complaints == ("No such server.",) * len(asked)


async def test_the_machines_own_clock_drives_it_too(tmp_path: Path) -> None:
    """Real time, once: two seconds are enough to see that seconds keep their length."""
    path = tmp_path / "s"
    found = [backend(server("slot1", in_flight=3), name="model")]
    async with runtime_socket(path, lambda line: stat_text(found).encode()):
        exporter = Exporter(RuntimeSocket(str(path)), SystemClock())
        task = asyncio.create_task(exporter.run())
        await SystemClock().sleep(2.3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert [second.in_flight for second in seconds_of(exporter)] == [3.0, 3.0]
