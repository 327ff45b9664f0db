"""Exporters and balancers that lie, flood or break cost their own seconds, never anybody else's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from fleet import labels
from fleet.clock import SystemClock
from fleet.errors import DecodeError
from fleet.http import FetchError, Http, TokenFile
from scaler.balancer.allowances import Allowances, AutoscalerObject
from scaler.balancer.latency import LatencyBook
from scaler.balancer.seconds import Meter
from scaler.balancer.server import Listener, application
from scaler.balancer.stat import backends, gauges
from scaler.balancer.values import BackendSecond, ServerSecond, ServerState
from scaler.balancer.wire import Journal, samples_from
from scaler.controller.server import add_history
from scaler.signals.balancer import BalancerSource
from scaler.signals.balancer_timeline import Timeline
from tests.support.clock import ManualClock
from tests.support.haproxy import backend, server, stat_text

CLOCK = SystemClock()


def an_answer(*seconds: tuple[int, float, dict[str, Any]], run: str = "a") -> bytes:
    """Return an exporter's answer; a second is its number, its age and the numbers of backend `e`."""
    return msgspec.json.encode(
        {
            "exporter": run,
            "next": 1,
            "seconds": [
                {"seq": seq, "age_s": age_s, "backends": [{"name": "e", "at_s": 0.0} | said]}
                for seq, age_s, said in seconds
            ],
        }
    )


class Answers:
    """Stands in for HTTP: says the next body, by address."""

    def __init__(self, **bodies: bytes) -> None:
        self.bodies = bodies
        self.asked: list[Mapping[str, str]] = []

    async def get(self, url: str, *, params: Mapping[str, str], **_: object) -> bytes:
        self.asked.append(params)
        body = self.bodies[url.removeprefix("http://").partition("/")[0]]
        if not body:
            raise FetchError("timeout", "silent")
        return body


def a_source(http: Answers, clock: ManualClock) -> BalancerSource:
    return BalancerSource("main", [f"http://{host}" for host in http.bodies], http, clock)  # type: ignore[arg-type]


DEEP = b'{"exporter":"a","next":1,"seconds":[],"x":' + b"[" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        b'{"exporter":"\xff","next":1,"seconds":[]}',
        b"\x00" * 1000,
        b"[" * 1_000_000,
        an_answer((1, 0.0, {"servers": [{"name": "s", "address": "", "state": "flying"}]})),
    ],
    ids=["deep", "not UTF-8", "zeros", "open", "unknown state"],
)
async def test_an_answer_that_is_none_is_told(body: bytes) -> None:
    """Told, not only dropped: an endpoint without samples has to say why."""
    with pytest.raises(DecodeError):
        samples_from(body)
    http = Answers(x=body)
    source = a_source(http, ManualClock())
    for _ in range(3):
        await source.poll()
    (state,) = source.states()
    assert state.failures == 3
    assert "x" in state.failure
    assert len(state.failure) < 1000
    http.bodies["x"] = an_answer((1, 0.0, {"arrivals": 3.0}))
    source.take("e")
    await source.poll()
    assert [second.arrivals for second in source.take("e")] == [3.0]


@pytest.mark.parametrize("seq", [10**400, 10**30, 2**62])
async def test_a_number_that_no_exporter_reaches_does_not_deafen_for_ever(seq: int) -> None:
    """The next question asks from that number on: one that an honest exporter could not even read."""
    clock, http = ManualClock(), Answers(x=an_answer((seq, 0.0, {"arrivals": 1.0})))
    source = a_source(http, clock)
    source.take("e")
    await source.poll()
    assert source.take("e") == []
    http.bodies["x"] = an_answer((7, 0.0, {"arrivals": 2.0}))
    await clock.advance(1.0)
    await source.poll()
    assert [second.arrivals for second in source.take("e")] == [2.0]
    assert all(len(params["since"]) < 18 for params in http.asked)


def test_seconds_without_their_ages_do_not_run_ahead_of_the_clock() -> None:
    """Two balancers: one sends hours at once. The other's seconds are heard all the same, and soon both are whole."""
    line = Timeline(senders=2)
    line.take(0, samples_from(an_answer(*((seq, 0.0, {"arrivals": 1.0}) for seq in range(1, 5000)))), 1000.0)
    line.ready(1000.0)
    heard = []
    for turn in range(1, 30):
        now_s = 1000.0 + turn
        line.take(0, samples_from(an_answer((5000 + turn, 0.0, {"arrivals": float(turn)}))), now_s)
        line.take(1, samples_from(an_answer((turn, 0.0, {"arrivals": 1000.0 * turn}), run="b")), now_s)
        heard += line.ready(now_s)
    assert line.counts.ahead > 100
    # Which second of the one belongs to which of the other is known to 3 s: clocks drift, and ages are rounded.
    for turn, second in zip(range(15, 30), heard[-15:], strict=True):
        assert second.arrivals is not None
        assert abs(second.arrivals - 1001.0 * turn) <= 3.0
    assert not any(second.is_partial for second in heard[-15:])


def test_an_hour_asleep_is_a_gap() -> None:
    """The machine of the controller slept: its clock stood still while the exporter's went on."""
    line = Timeline(senders=1)
    for seq in range(1, 11):
        line.take(0, samples_from(an_answer((seq, 0.0, {"arrivals": 1.0}))), 1000.0 + seq)
    line.ready(1010.0)
    behind = [(3600 + seq, 30.0 - seq, {"arrivals": 2.0}) for seq in range(30)]
    line.take(0, samples_from(an_answer(*behind)), 1011.0)
    line.ready(1011.0)
    heard = []
    for turn in range(1, 10):
        line.take(0, samples_from(an_answer((3629 + turn, 0.0, {"arrivals": 3.0}))), 1011.0 + turn)
        heard += line.ready(1011.0 + turn)
    assert [(second.arrivals, second.at_s) for second in heard[-5:]] == [(3.0, 1011.0 + turn) for turn in range(5, 10)]


@pytest.mark.parametrize("value", [-1.0, 1e308, 1e10])
def test_a_count_that_no_traffic_reaches_is_not_known(value: float) -> None:
    line = Timeline(senders=2)
    for sender in (0, 1):
        servers = [{"name": "s", "address": "10.0.0.1:80", "state": "serving", "in_flight": value}]
        said = {"arrivals": value, "in_flight": value, "queued": value, "servers": servers}
        line.take(sender, samples_from(an_answer((1, 0.0, said))), 1000.0)
    (second,) = line.ready(1000.0)
    assert (second.arrivals, second.in_flight, second.queued, second.servers[0].in_flight) == (None, None, None, None)
    assert line.counts.unusable == 8


async def test_backends_that_nobody_asks_for_cost_no_memory() -> None:
    clock, http = ManualClock(), Answers(x=b"")
    source = a_source(http, clock)
    for turn in range(1, 200):
        named = [{"name": f"{turn}-{number}", "at_s": 0.0, "arrivals": 1.0} for number in range(500)]
        named.append({"name": "mine", "at_s": 0.0, "arrivals": float(turn)})
        http.bodies["x"] = msgspec.json.encode(
            {"exporter": "a", "next": turn, "seconds": [{"seq": turn, "age_s": 0.0, "backends": named}]}
        )
        await source.poll()
        if turn < 3:
            assert [second.arrivals for second in source.take("mine")] == [float(turn)]
        await clock.advance(1.0)
    assert 60 < len(source.take("mine")) <= 120
    assert vars(source)["_untaken_rows"] <= 50_000
    held = [vars(source)[name] for name in ("_seconds", "_newest_s", "_taken_at")]
    assert sum(len(each) for each in held) <= 3
    assert sum(len(each) for each in vars(source)["_untaken"].values()) <= 50_000


async def test_a_balancer_with_thousands_of_replicas_can_be_met_late() -> None:
    """Half a minute of 5,000 replicas are 29 MB: more than is read, so that nothing would ever be known."""
    servers = tuple(
        ServerSecond(
            name=f"slot-{number}",
            address=f"10.244.{number // 256}.{number % 256}:8000",
            state=ServerState.SERVING,
            in_flight=3.25,
            completions=12.0,
            latency_p95_s=0.4567,
            limit=12,
        )
        for number in range(5000)
    )
    journal = Journal("a")
    for seq in range(1, 31):
        journal.add(seq, 970.0 + seq, [BackendSecond(name="e", at_s=0.0, arrivals=float(seq), servers=servers)])
    body = journal.answer(0, 1000.0)
    assert len(body) < 4 * 2**20
    seconds = samples_from(body).seconds
    assert seconds[-1].seq == 30
    assert [second.seq for second in seconds] == list(range(seconds[0].seq, 31))


async def test_an_endless_or_dripping_answer_ends_in_time() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await answer.write(b"[" * 2**16)
        return answer

    async def dripping(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(50):
                await answer.write(b" ")
                await CLOCK.sleep(0.05)
        return answer

    app = web.Application()
    app.router.add_get("/endless/v1/samples", endless)
    app.router.add_get("/dripping/v1/samples", dripping)
    async with Listener(app, "127.0.0.1", 0) as listener, Http() as http:
        for path, kind in (("endless", "too-large"), ("dripping", "timeout")):
            with pytest.raises(FetchError) as failed:
                await http.get(
                    f"http://127.0.0.1:{listener.port}/{path}/v1/samples", timeout_s=0.5, largest_bytes=2**20
                )
            assert failed.value.kind == kind


@pytest.mark.parametrize("column", ["scur", "qcur", "stot", "hrsp_5xx", "slim"])
@pytest.mark.parametrize("value", ["-1", "9" * 400, "9" * 5000, "1e3", "0x10", "1_0 ", "\u0664"])
def test_a_balancer_that_counts_oddly_costs_a_reading(column: str, value: str) -> None:
    head, row, *rest = stat_text([backend(server("slot1", in_flight=3, sessions=9), in_progress=3)]).splitlines()
    cells = row.split(",")
    cells[head.removeprefix("# ").split(",").index(column)] = value
    text = "\n".join([head, ",".join(cells), *rest, "", ""])
    meter = Meter()
    meter.close(1.0, backends(stat_text([backend(server("slot1"))])), {})
    for read in (gauges, backends):
        with contextlib.suppress(DecodeError):
            found = read(text)
            if read is gauges:
                meter.note(1.5, found)  # type: ignore[arg-type]
                assert all(count >= 0 for count in found.values())  # type: ignore[operator]
            else:
                (second,) = meter.close(2.0, found, {})  # type: ignore[arg-type]
                assert second.in_flight is not None
                assert second.in_flight >= 0
                Journal("a").add(1, 2.0, [second])


LINES = (
    b"bm1 be s 200 0 0 " + b"9" * 400 + b" 0 --",
    b"bm1 be s 200 0 0 " + b"9" * 900 + b" 0 --",
    b"bm1 \xff s 200 0 0 1 0 --",
    b"bm1 " * 200,
    b"",
    b"bm1 be s 200 0 0 1e3 0 --",
)


@pytest.mark.parametrize("line", LINES)
def test_a_log_line_of_any_kind_is_counted_or_kept(line: bytes) -> None:
    book = LatencyBook()
    book.add(line)
    book.add(b"bm1 be s 200 0 0 8 2 --")
    assert book.close()["be", "s"].mean_s == pytest.approx(0.01)


def test_a_flood_of_log_lines_while_the_balancer_keeps_silent_is_bounded() -> None:
    """A second ends when the runtime socket answers; until then 5,000 servers could fill hundreds of megabytes."""
    book = LatencyBook()
    for number in range(250_000):
        book.add(b"bm1 be server-%d 200 0 0 8 2 --" % (number % 20_000))
    assert book.dropped == 50_000
    assert sum(latency.requests for latency in book.close().values()) == 200_000
    book.add(b"bm1 be server-1 200 0 0 8 2 --")
    assert len(book.close()) == 1


def test_who_comes_later_takes_no_backend_from_its_owner() -> None:
    """Who may make autoscalers in some namespace must not limit another's replicas by a name that sorts first."""

    def claim(namespace: str, created: str, limit: str) -> AutoscalerObject:
        meta = {
            "name": "a",
            "namespace": namespace,
            "creationTimestamp": created,
            "annotations": {labels.CONCURRENCY_LIMIT: limit},
        }
        return msgspec.convert(
            {"metadata": meta, "spec": {"signals": {"balancer": {"name": "edge", "backend": "shop"}}}}, AutoscalerObject
        )

    made = Allowances("edge")
    made.upsert(claim("shop", "2026-01-01T00:00:00Z", "100"))
    made.upsert(claim("aaa-evil", "2026-02-01T00:00:00Z", "1"))
    assert made.by_backend()["shop"].limit == 100
    assert "belongs to shop/a" in made.problems["aaa-evil/a"][-1]


async def test_a_header_that_is_no_text_is_refused_and_not_a_fault(tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "token").write_text("secret")
    token = TokenFile(tmp_path / "token")
    app = application(
        samples=lambda since: b"{}",
        registry=None,  # type: ignore[arg-type]
        not_ready=lambda: "",
        token=token,
        refused=lambda: None,
    )
    history = web.Application()
    add_history(history, token, lambda key, begin, end: b"{}")
    for served, path in ((app, "/v1/samples"), (history, "/v1/history/n/a")):
        async with Listener(served, "127.0.0.1", 0) as listener:
            for shown in (b"Bearer \xff\xfe", b"Bearer", b"", b"Basic secret", b"Bearer secret "):
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                writer.write(
                    b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: %s\r\n\r\n"
                    % (path.encode(), shown)
                )
                status = (await reader.readline()).split()[1]
                assert status == (b"200" if shown == b"Bearer secret " else b"401"), shown
                writer.close()
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("from=1e308", 200),
        ("from=nan", 400),
        ("from=-1", 400),
        ("to=inf", 400),
        ("from=%00", 400),
        ("from=1&from=2", 200),
        ("from=" + "9" * 4000, 400),
    ],
)
async def test_the_history_takes_any_time_or_says_why_not(tmp_path: Path, query: str, status: int) -> None:
    (tmp_path / "token").write_text("secret")
    asked: list[str] = []
    app = web.Application()
    add_history(app, TokenFile(tmp_path / "token"), lambda key, begin, end: asked.append(str(key)) or b"{}")  # type: ignore[func-returns-value]
    async with Listener(app, "127.0.0.1", 0) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        request = f"GET /v1/history/..%2f..%2fetc/passwd%0a?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        writer.write(f"{request}Authorization: Bearer secret\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    assert int(answer.split()[1]) == status
    assert len(answer) < 6000


async def test_a_token_that_went_away_lets_nobody_in_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret")
    token = TokenFile(path)
    token.read()
    path.unlink()
    async with Http() as http:
        with pytest.raises(FetchError, match=str(path)) as failed:
            await http.get("http://127.0.0.1:1/", token=token, timeout_s=1.0)
    assert failed.value.kind == "token"
    assert "secret" not in str(failed.value)


async def test_an_error_page_that_repeats_the_question_tells_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cr3t-" * 20)

    async def echo(request: web.Request) -> web.Response:
        return web.Response(status=400, reason="x", text="y" * 150 + str(dict(request.headers)))

    app = web.Application()
    app.router.add_get("/", echo)
    async with Listener(app, "127.0.0.1", 0) as listener, Http() as http:
        with pytest.raises(FetchError) as failed:
            await http.get(f"http://127.0.0.1:{listener.port}/", token=TokenFile(tmp_path / "token"), timeout_s=2.0)
    assert "s3cr3t" not in str(failed.value)
