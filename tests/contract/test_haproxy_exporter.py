"""What the exporter tells of a real HAProxy, against what the load generator did and the replicas saw."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from berthmaster.traffic.arrivals import poisson, steps
from berthmaster.traffic.generator import run_load
from berthmaster.traffic.tally import Tally
from fleet.http import FetchError, Http, TokenFile
from scaler.balancer.exporter import Exporter
from scaler.balancer.limits import Allowance
from scaler.balancer.values import BackendSecond
from scaler.balancer.wire import samples_from
from scaler.signals.balancer import BalancerSource
from tests.support.eventually import eventually
from tests.support.haproxy import CLOCK, Site, a_site, running, seconds_of

pytestmark = pytest.mark.contract


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_site(tmp_path / "haproxy") as made:
        yield made


def exporter_of(site: Site, allowances: Mapping[str, Allowance] | None = None) -> Exporter:
    return Exporter(site.haproxy.runtime, CLOCK, allowances=lambda: allowances or {})


def constant(rate_rps: float, until_s: float, seed: int = 1) -> tuple[float, ...]:
    return poisson(steps((0.0, rate_rps)), until_s=until_s, most_rps=rate_rps, seed=seed)


def total(seconds: list[BackendSecond], name: str) -> float:
    return sum(getattr(second, name) or 0.0 for second in seconds)


async def quiet(exporter: Exporter, *, within_s: float = 15.0) -> list[BackendSecond]:
    """Wait for a whole second after now in which nothing is left, and return all seconds so far."""
    known = samples_from(exporter.samples(0)).next

    async def look() -> list[BackendSecond]:
        newest = samples_from(exporter.samples(0)).next
        return seconds_of(exporter) if newest >= known + 2 else []

    return await eventually(
        look,
        lambda found: found and found[-1].in_flight == found[-1].queued == found[-1].arrivals == 0,
        within_s=within_s,
        what="a quiet second",
    )


async def first_second(exporter: Exporter) -> None:
    async def look() -> list[BackendSecond]:
        return seconds_of(exporter)

    await eventually(look, within_s=10.0, what="a first second")


async def replica_figure(address: str, name: str) -> float:
    async with Http() as http:
        text = (await http.get(f"http://{address}/metrics", timeout_s=5.0)).decode()
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])


async def most_in_progress(address: str) -> float:
    return await replica_figure(address, "replica_in_progress_most")


async def test_samples_are_what_the_generator_did(site: Site) -> None:
    exporter = exporter_of(site)
    addresses = await site.start_replicas(3, "batching")
    await site.settle(addresses)
    async with running(exporter, site.haproxy.log_path):
        await first_second(exporter)
        tally = await run_load(site.url, constant(25, 4.0), CLOCK)
        seconds = await quiet(exporter)
    assert tally.good == tally.due
    assert total(seconds, "arrivals") == tally.due
    assert total(seconds, "completions") == tally.due
    assert total(seconds, "errors") == total(seconds, "given_up") == 0
    logged = sum((row.latency_mean_s or 0.0) * (row.completions or 0.0) for second in seconds for row in second.servers)
    # Little's law over the whole load, in which nothing is left at the end: two independent ways to the same work.
    assert total(seconds, "in_flight") == pytest.approx(logged, rel=0.1)
    assert logged == pytest.approx(tally.due * 0.21, rel=0.2)
    assert any(row.latency_p95_s for second in seconds for row in second.servers)


async def test_a_full_fleet_shows_its_queue_and_no_replica_holds_more_than_its_limit(site: Site) -> None:
    exporter = exporter_of(site, {"model": Allowance(limit=2.9)})
    addresses = await site.start_replicas(2)
    async with running(exporter):
        await first_second(exporter)
        await site.settle(addresses)
        tally = await run_load(site.url, [0.0] * 60, CLOCK)
        seconds = await quiet(exporter)
    assert tally.good == 60
    assert max(second.queued or 0 for second in seconds) > 20
    assert max(second.in_flight or 0 for second in seconds) > 3
    assert [await most_in_progress(address) for address in addresses] == [2, 2]


async def test_a_limit_is_changed_live_without_a_request_lost(site: Site) -> None:
    allowances = {"model": Allowance(limit=1)}
    exporter = exporter_of(site, allowances)
    addresses = await site.start_replicas(1)
    async with running(exporter):
        await first_second(exporter)
        await site.settle(addresses)
        load = asyncio.create_task(run_load(site.url, [0.0] * 60, CLOCK))
        await eventually(lambda: _now(seconds_of(exporter)), lambda found: found[-1].queued > 20, what="a queue")
        assert seconds_of(exporter)[-1].servers[0].limit == 1
        allowances["model"] = Allowance(limit=6)
        assert (await load).good == 60
    assert await most_in_progress(addresses[0]) == 6


async def _now(found: list[BackendSecond]) -> list[BackendSecond]:
    return found


async def test_clients_that_give_up_leave_no_count(site: Site) -> None:
    # One at a time, and no request is served as soon as its client leaves: how many reach the replica is the machine's
    # affair, so the replica is asked.
    exporter = exporter_of(site, {"model": Allowance(limit=1)})
    addresses = await site.start_replicas(1, "batching")
    await site.settle(addresses)
    async with running(exporter):
        await first_second(exporter)
        tally = await run_load(site.url, [0.0] * 30, CLOCK, timeout_s=0.1)
        seconds = await quiet(exporter)
    reached = await replica_figure(addresses[0], "replica_served")
    assert tally.given_up == 30
    assert total(seconds, "arrivals") == 30
    assert 0 < reached < 30
    assert total(seconds, "completions") == reached
    assert total(seconds, "given_up") == 30 - reached, "those that left the queue reached no replica"
    assert total(seconds, "errors") == 0, "a client that leaves is no fault of the model"


async def test_every_kind_of_failure_is_counted_once(site: Site) -> None:
    exporter = exporter_of(site)
    (address,) = await site.start_replicas(1, "memory")
    await site.settle([address])
    async with running(exporter):
        await first_second(exporter)
        # The profile fails from 21 in progress on, and the limit is lifted for that.
        await site.haproxy.runtime.tell(["set maxconn server model/slot1 40"])
        tally = await run_load(site.url, [0.0] * 40, CLOCK)
        seconds = await quiet(exporter)
        assert tally.answered[500] > 5
        assert total(seconds, "errors") == tally.answered[500] == 40 - tally.good
        # A replica that dies cuts what it had and refuses what comes.
        load = asyncio.create_task(run_load(site.url, [0.0] * 5, CLOCK))
        await CLOCK.sleep(0.08)
        await site.close()
        died = await load
        assert died.good < 5
        seconds = await quiet(exporter)
        assert total(seconds, "errors") == tally.answered[500] + 5 - died.good


async def test_a_restart_of_the_balancer_is_a_gap_and_no_false_count(site: Site) -> None:
    exporter = exporter_of(site, {"model": Allowance(limit=3)})
    addresses = await site.start_replicas(1)
    await site.settle(addresses)
    async with running(exporter):
        await first_second(exporter)
        await run_load(site.url, [0.0] * 20, CLOCK)
        before = total(await quiet(exporter), "arrivals")
        await site.haproxy.stop()
        await eventually(lambda: _text(exporter.not_ready()), within_s=10.0, what="not ready")
        await site.haproxy.start()
        await site.settle(addresses)
        await eventually(lambda: _text(exporter.not_ready()), lambda why: not why, within_s=10.0, what="ready")
        tally = await run_load(site.url, [0.0] * 7, CLOCK)
        seconds = await quiet(exporter)
        assert tally.good == 7
        assert before == 20
        assert total(seconds, "arrivals") == 27
        assert seconds[-1].servers[0].limit == 3, "the limit was set again"
        assert all((second.in_flight or 0) >= 0 for second in seconds)


async def _text(text: str) -> str:
    return text


async def test_the_controller_goes_on_over_restarts_of_the_exporter(site: Site) -> None:
    await site.settle(await site.start_replicas(1))
    urls: list[str] = []
    found: list[BackendSecond] = []
    async with Http() as http:
        async with running(exporter_of(site)) as first:
            urls.append(f"http://127.0.0.1:{first.port}")
            source = BalancerSource("edge", urls, http, CLOCK, timeout_s=1.0)

            async def look() -> list[BackendSecond]:
                await source.poll()
                found.extend(source.take("model"))
                return found

            await run_load(site.url, [0.0] * 5, CLOCK)
            await eventually(look, lambda told: total(told, "arrivals") == 5, every_s=0.5, what="five")
            port = first.port
        await source.poll()
        assert source.states()[0].failure
        async with running(exporter_of(site), port=port):
            await eventually(lambda: look(), lambda told: len(told) > 0 and source.counts.restarts == 1, every_s=0.5)
            await run_load(site.url, [0.0] * 4, CLOCK)
            await eventually(look, lambda told: total(told, "arrivals") == 9, every_s=0.5, what="four more")
            assert source.states()[0].failure == ""
            stamps = [second.at_s for second in found]
            assert stamps == sorted(set(stamps))
        await source.close()


async def test_the_process_serves_those_who_show_the_token(site: Site, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("only-for-this-test\n")
    command = [sys.executable, "-m", "scaler", "exporter", "--socket", str(site.haproxy.runtime_path), "--no-limits"]
    options = ["--listen", "127.0.0.1:0", "--token-file", str(token), "--log-socket", str(site.haproxy.log_path)]
    process = await asyncio.create_subprocess_exec(*command, *options, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        line = await asyncio.wait_for(process.stderr.readline(), 20)
        port = msgspec.json.decode(line)["port"]
        url = f"http://127.0.0.1:{port}"
        await site.settle(await site.start_replicas(1))
        tally = await run_load(site.url, [0.0] * 3, CLOCK)
        assert tally.good == 3
        async with Http() as http:
            with pytest.raises(FetchError, match="401"):
                await http.get(url + "/v1/samples", timeout_s=5.0)

            async def look() -> float:
                body = await http.get(url + "/v1/samples", token=TokenFile(token), timeout_s=5.0)
                found = [one for second in samples_from(body).seconds for one in second.backends]
                return total(found, "completions")

            assert await eventually(look, lambda done: done >= 3, what="three completions") == 3
            metrics = (await http.get(url + "/metrics", token=TokenFile(token), timeout_s=5.0)).decode()
        assert 'berthmaster_balancer_arrivals_total{backend="model"} 3.0' in metrics
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert not site.haproxy.log_path.exists()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_held_requests_are_seen_from_zero(site: Site) -> None:
    exporter = exporter_of(site)
    async with running(exporter):
        await first_second(exporter)
        tally = Tally()
        load = asyncio.create_task(run_load(site.url, [0.0] * 12, CLOCK, tally=tally))
        await eventually(lambda: _now(seconds_of(exporter)), lambda found: found[-1].queued == 12, what="12 held")
        assert seconds_of(exporter)[-1].in_flight == 0
        await site.settle(await site.start_replicas(1))
        await load
        assert tally.good == 12
        assert total(await quiet(exporter), "arrivals") == 12
