"""Logs that machines can read whatever is logged, and the address that says how a process is."""

from __future__ import annotations

import io
import json
import logging

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from fleet.telemetry import Counts, JsonFormatter, configure_logging, serve_probes


@pytest.fixture
def log():
    """Configure logging as a process does; returns what it wrote, line by line."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, logging.getLogger("fleet").level
    stream = io.StringIO()
    configure_logging("debug", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], level, ours = before[0], before[1], before[2]
    root.setLevel(level)
    logging.getLogger("fleet").setLevel(ours)
    logging.captureWarnings(capture=False)


def test_a_line_is_an_object_with_what_was_given(log):
    logging.getLogger("fleet.kube").info(
        "pinned %s", "ns/p", extra={"pod": "ns/p", "devices": ("0", "3"), "odd": object}
    )
    (line,) = log()
    assert line["message"] == "pinned ns/p"
    assert (line["level"], line["logger"], line["pod"]) == ("info", "fleet.kube", "ns/p")
    assert line["devices"] == ["0", "3"]
    assert "class" in line["odd"]
    assert line["at"].endswith("+00:00")


def test_a_trace_stays_on_its_line(log):
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        logging.getLogger("fleet").exception("failed")
    (line,) = log()
    assert "RuntimeError: two\nlines" in line["trace"]


def test_a_bad_call_is_logged_all_the_same():
    record = logging.makeLogRecord({"name": "fleet", "msg": "%d of %d", "args": ("x",)})
    line = json.loads(JsonFormatter().format(record))
    assert line["message"].startswith("%d of %d (arguments do not fit")


def test_libraries_speak_from_warnings_on(log):
    logging.getLogger("aiohttp.access").info("chatter")
    logging.getLogger("aiohttp.client").warning("trouble")
    logging.getLogger("fleet").debug("detail")
    assert [line["message"] for line in log()] == ["trouble", "detail"]


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="LOUD"):
        configure_logging("LOUD")


async def test_probes_and_metrics():
    registry = CollectorRegistry()
    Counter("things", "Things done", registry=registry).inc(3)
    watches = {("pods",): 2.0, ("nodes",): 1.0}
    registry.register(Counts("lists", "Lists fetched", ["collection"], lambda: watches))
    why = ["ledger not synced"]
    async with serve_probes("127.0.0.1", 0, registry, lambda: why[0]) as port, aiohttp.ClientSession() as session:

        async def get(path):
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.status, await answer.text()

        assert await get("/healthz") == (200, "ok\n")
        assert await get("/readyz") == (503, "ledger not synced\n")
        why[0] = ""
        assert await get("/readyz") == (200, "ok\n")
        watches["pods",] = 5.0
        status, text = await get("/metrics")
        assert status == 200
        assert "things_total 3.0" in text
        assert 'lists_total{collection="pods"} 5.0' in text
        assert 'lists_total{collection="nodes"} 1.0' in text
        assert (await get("/else"))[0] == 404
