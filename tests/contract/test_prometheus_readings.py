"""A real Prometheus between what is scraped and what the scaler believes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from fleet.clock import SystemClock
from fleet.http import Http
from fleet.prom import Prometheus
from fleet.prom_answer import Outcome
from scaler.seen import Sample, SignalState
from scaler.signals.metrics import MetricsSource
from scaler.signals.metrics_catalogue import CATALOGUE
from scaler.signals.metrics_endpoint import EndpointQueries, EndpointSource
from scaler.signals.metrics_values import PodKey, PodMetrics, Reading
from tests.support.eventually import eventually
from tests.support.prometheus import PrometheusProcess, Target, a_prometheus, a_target

# One server for all: Prometheus takes five seconds to begin scraping. Each test says what the targets show.
pytestmark = [pytest.mark.contract, pytest.mark.asyncio(loop_scope="module")]

LABELS = {"namespace": "shop"}
A, B, OLD, SLOW, GHOST = [("shop", name) for name in ("a", "b", "old", "slow", "gone")]
TIMEOUT_S = 1.0
CLOCK = SystemClock()


class Site:
    """Two targets under four jobs, the Prometheus that scrapes them, and a client of it.

    The jobs `pods` and `again` scrape the same target: every series of it is there twice. `gpu` stands for an exporter
    with a pod of its own, whose labels lose against those of the scrape, as without `honor_labels`.
    """

    def __init__(self, pods: Target, gpu: Target, server: PrometheusProcess, http: Http) -> None:
        self.pods = pods
        self.gpu = gpu
        self.server = server
        self.http = http
        self.prometheus = Prometheus(server.url, http, timeout_s=TIMEOUT_S)
        self.renew()

    def renew(self) -> None:
        """Show nothing, know nothing."""
        self.pods.text = self.gpu.text = ""
        self.pods.is_silent = False
        self.source = MetricsSource(self.prometheus, CLOCK, stale_after_s=3.0, timeout_s=TIMEOUT_S)

    async def reads(self, pod: PodKey, holds: Callable[[PodMetrics], object], what: str) -> PodMetrics:
        async def look() -> PodMetrics:
            return (await self.source.poll([A, B, OLD]))[pod]

        return await eventually(look, holds, within_s=20.0, every_s=0.2, what=what)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        pods, gpu = [await stack.enter_async_context(a_target()) for _ in range(2)]
        jobs = {
            "pods": (pods, LABELS),
            "again": (pods, LABELS | {"endpoint": "http"}),
            "gpu": (gpu, {"namespace": "gpu-operator", "pod": "exporter-x"}),
        }
        server = await stack.enter_async_context(a_prometheus(tmp_path_factory.mktemp("prometheus"), jobs))
        yield Site(pods, gpu, server, await stack.enter_async_context(Http()))


@pytest.fixture
def site(shared: Site) -> Site:
    shared.renew()
    return shared


def engine(pod: str, running: object, waiting: object = 0) -> str:
    return (
        f'vllm:num_requests_running{{pod="{pod}",model_name="m",engine="0"}} {running}\n'
        f'vllm:num_requests_running{{pod="{pod}",model_name="m",engine="1"}} {running}\n'
        f'vllm:num_requests_waiting{{pod="{pod}",model_name="m",engine="0"}} {waiting}\n'
    )


async def test_values_duplicates_ghosts_and_not_a_number(site: Site) -> None:
    site.pods.text = engine("a", 12) + engine("b", "NaN") + engine("gone", 30)
    seen = await site.reads(A, lambda it: it.running.value is not None, "pod a is seen")
    # Two ranks of 12 add up; the second job's copies of both do not.
    assert (seen.running.value, seen.waiting.value, seen.waiting.state) == (24.0, 0.0, SignalState.ZERO)
    assert site.source.of(B).running.state is SignalState.MISSING
    assert site.source.of(B).waiting.state is SignalState.ZERO
    assert site.source.of(GHOST).running.state is SignalState.MISSING
    assert site.source.counts["foreign", Reading.RUNNING] >= 1
    assert site.source.counts["rejected", Reading.RUNNING] >= 1
    assert seen.memory_ratio.state is SignalState.MISSING
    assert not site.source.problems


async def test_every_query_of_the_catalogue_is_understood(site: Site) -> None:
    answers = await site.prometheus.instant_many([asked.query for asked in CATALOGUE], is_dated=True)
    assert [(answer.outcome, answer.text) for answer in answers] == [(Outcome.ANSWERED, "") for _ in CATALOGUE]


async def test_ratios_of_containers_and_devices(site: Site) -> None:
    site.gpu.text = (
        'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="u0",namespace="shop",pod="a"} 55\n'
        'DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="u1",namespace="shop",pod="a"} 80\n'
        'DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="u2"} 99\n'
        'DCGM_FI_DEV_FB_USED{gpu="0",UUID="u0",namespace="shop",pod="a"} 30000\n'
        'DCGM_FI_DEV_FB_FREE{gpu="0",UUID="u0",namespace="shop",pod="a"} 10000\n'
        'DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="u0",namespace="shop",pod="a"} 0.4\n'
        'DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0",UUID="u0",namespace="shop",pod="a"} 90\n'
        'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="u0",namespace="shop",pod="a"} 9223372036854775794\n'
    )

    def container(cpu_s: float, ended: float) -> str:
        one = 'namespace="shop",pod="a",container'
        return (
            f'container_memory_working_set_bytes{{{one}="main"}} 900\n'
            f'container_spec_memory_limit_bytes{{{one}="main"}} 1000\n'
            f'container_memory_working_set_bytes{{{one}="sidecar"}} 500\n'
            f'container_spec_memory_limit_bytes{{{one}="sidecar"}} 0\n'
            f'container_memory_working_set_bytes{{{one}=""}} 5000\n'
            f'container_spec_memory_limit_bytes{{{one}=""}} 100\n'
            f'container_cpu_usage_seconds_total{{{one}="main",cpu="total"}} {cpu_s}\n'
            f'container_spec_cpu_quota{{{one}="main"}} 400000\n'
            f'container_spec_cpu_period{{{one}="main"}} 100000\n'
            f'container_pressure_io_waiting_seconds_total{{{one}="main"}} {cpu_s / 8}\n'
            f'vllm:e2e_request_latency_seconds_sum{{pod="a",model_name="m",engine="0"}} {ended * 3}\n'
            f'vllm:e2e_request_latency_seconds_count{{pod="a",model_name="m",engine="0"}} {ended}\n'
        )

    # Two cores of four busy, an eighth of that waited for; the counters start anew half-way, as after a restart.
    began_s = time.perf_counter()

    async def look() -> PodMetrics:
        age_s = time.perf_counter() - began_s
        site.pods.text = container(2 * (age_s if age_s < 2 else age_s - 2), age_s)
        return (await site.source.poll([A]))[A]

    seen = await eventually(
        look,
        lambda it: (
            None not in (it.cpu_ratio.value, it.latency_s.value, it.gpu_memory_ratio.value)
            and time.perf_counter() - began_s > 5
        ),
        every_s=0.1,
    )
    assert seen.memory_ratio.value == pytest.approx(0.9)
    assert seen.cpu_ratio.value == pytest.approx(0.5, abs=0.2)
    assert seen.io_wait_ratio.value == pytest.approx(0.25, abs=0.1)
    assert seen.latency_s.value == pytest.approx(3.0, abs=0.01)
    assert seen.gpu_utilisation_ratio.value == pytest.approx(0.8)
    assert seen.gpu_memory_ratio.value == pytest.approx(0.75)
    assert seen.gpu_bandwidth_ratio.value == pytest.approx(0.4)  # the profiling counter before the coarse one
    assert seen.tensor_ratio.state is SignalState.MISSING  # DCGM's "blank"
    assert site.source.counts["impossible", Reading.TENSOR] >= 1


ENGINE_TEXT = """
sglang:num_running_reqs{pod="sglang",model_name="m",tp_rank="0",dp_rank="0"} 4
sglang:num_running_reqs{pod="sglang",model_name="m",tp_rank="1",dp_rank="0"} 4
sglang:num_running_reqs{pod="sglang",model_name="m",tp_rank="0",dp_rank="1"} 5
sglang:num_queue_reqs{pod="sglang",model_name="m"} 2
sglang:token_usage{pod="sglang",model_name="m"} 0.28
trtllm_num_requests_running{pod="trtllm",model_name="m"} 6
trtllm_num_requests_waiting{pod="trtllm",model_name="m"} 0
trtllm_kv_cache_utilization{pod="trtllm",model_name="m"} 0.3
nv_trt_llm_request_metrics{pod="triton-llm",model="m",version="1",request_type="scheduled"} 7
nv_trt_llm_request_metrics{pod="triton-llm",model="m",version="1",request_type="waiting"} 3
nv_trt_llm_request_metrics{pod="triton-llm",model="m",version="1",request_type="max"} 512
nv_trt_llm_kv_cache_block_metrics{pod="triton-llm",model="m",version="1",kv_cache_block_type="fraction"} 0.4
nv_inference_pending_request_count{pod="triton-llm",model="m",version="1"} 9
nv_inference_pending_request_count{pod="triton",model="m",version="1"} 1
nv_inference_pending_request_count{pod="triton",model="n",version="1"} 2
vllm:num_requests_running{pod="vllm",model_name="m",engine="0"} 8
vllm:gpu_cache_usage_perc{pod="vllm",model_name="m",engine="0"} 0.5
vllm:kv_cache_usage_perc{pod="vllm",model_name="m",engine="0"} 0.6
"""
ENGINES = {
    "sglang": (9.0, 2.0, 0.28),
    "trtllm": (6.0, 0.0, 0.3),
    "triton-llm": (7.0, 3.0, 0.4),
    "triton": (None, 3.0, None),
    "vllm": (8.0, None, 0.6),
}


async def test_every_engine_is_read_by_its_own_names(site: Site) -> None:
    site.pods.text = ENGINE_TEXT
    pods = [("shop", name) for name in ENGINES]

    async def look() -> dict[str, tuple[float | None, ...]]:
        view = await site.source.poll(pods)
        return {
            name: (view[pod].running.value, view[pod].waiting.value, view[pod].kv_cache_ratio.value)
            for name, pod in zip(ENGINES, pods, strict=True)
        }

    await eventually(look, lambda seen: seen == ENGINES, every_s=0.2)
    assert not site.source.problems


async def test_limits_are_those_that_pods_declare_where_the_containers_tell_none(site: Site) -> None:
    """kube-state-metrics, scraped without `honor_labels`, joined with cAdvisor."""
    one = 'namespace="shop",pod="b",container="main"'
    site.pods.text = f"container_memory_working_set_bytes{{{one}}} 900\n"
    site.gpu.text = (
        f'kube_pod_container_resource_limits{{{one},resource="memory",unit="byte"}} 1200\n'
        f'kube_pod_container_resource_limits{{{one},resource="cpu",unit="core"}} 2\n'
    )
    site.pods.text += f'container_cpu_usage_seconds_total{{{one},cpu="total"}} 5\n'
    known = ("memory_ratio", "cpu_ratio")
    seen = await site.reads(B, lambda it: all(getattr(it, name).value is not None for name in known), "pod b is seen")
    assert seen.memory_ratio.value == pytest.approx(0.75)
    assert seen.cpu_ratio.state is SignalState.ZERO
    assert not site.source.problems


async def test_a_dead_target_leaves_its_readings_to_go_stale(site: Site) -> None:
    site.pods.text = engine("a", 3)
    await site.reads(A, lambda it: it.running.state is SignalState.VALUE, "pod a is seen")
    site.pods.is_silent = True
    seen = await site.reads(A, lambda it: it.running.state is SignalState.STALE, "pod a goes stale")
    assert seen.running.value == 6.0
    assert not site.source.problems  # Prometheus itself answers


async def test_the_age_is_the_samples_even_where_prometheus_looks_back(site: Site) -> None:
    """Samples with stamps of their own get no stale mark: Prometheus shows the last one for five minutes."""
    stamp_ms = int(CLOCK.now_s() * 1000) - 3000
    site.pods.text = f'vllm:kv_cache_usage_perc{{pod="old"}} 0.5 {stamp_ms}\n'
    seen = await site.reads(OLD, lambda it: it.kv_cache_ratio.value is not None, "the sample is seen")
    assert seen.kv_cache_ratio.age_s >= 3.0
    await site.reads(OLD, lambda it: it.kv_cache_ratio.state is SignalState.STALE, "it goes stale at its own age")


async def test_a_node_whose_clock_is_a_minute_behind_is_believed_from_the_second_poll(site: Site) -> None:
    async def look() -> PodMetrics:
        stamp_ms = int(CLOCK.now_s() * 1000) - 60_000
        site.pods.text = f'vllm:kv_cache_usage_perc{{pod="slow"}} 0.5 {stamp_ms}\n'
        return (await site.source.poll([SLOW]))[SLOW]

    seen = await eventually(look, lambda it: it.kv_cache_ratio.value is not None)
    assert seen.kv_cache_ratio.state is SignalState.STALE
    seen = await eventually(look, lambda it: it.kv_cache_ratio.state is SignalState.VALUE, every_s=0.5)
    assert seen.kv_cache_ratio.age_s < 5.0


async def test_endpoint_queries_tell_missing_from_zero(site: Site) -> None:
    """Field case kedacore/keda 3065: an empty answer is no zero."""
    site.pods.text = "gateway_in_flight 118\ngateway_queued 0\ngateway_bad NaN\ngateway_negative -1\n"
    site.gpu.text = 'tokens{replica="x"} 5\ntokens{replica="y"} 7\n'
    source = EndpointSource(site.prometheus, CLOCK)
    asked = EndpointQueries(
        in_flight="max(gateway_in_flight)",
        queued="max(gateway_queued)",
        arrivals="max(gateway_bad)",
        completions="max(gateway_negative)",
        errors="max(there_is_no_such_metric)",
        extra={"tokens": "sum(tokens)", "each": "tokens", "wrong": "sum(", "scalar": "scalar(max(gateway_in_flight))"},
    )
    source.watch("shop/x", asked)

    async def look() -> Sample:
        await source.poll()
        return source.sample("shop/x", CLOCK.monotonic_s())

    await eventually(look, lambda it: it.in_flight is not None and it.extra["tokens"] is not None)
    sample = await look()  # the queries of one poll are evaluated one after the other: now all have seen both targets
    assert (sample.in_flight, sample.queued) == (118.0, 0.0)
    assert (sample.arrivals, sample.completions, sample.errors) == (None, None, None)
    assert sample.extra == {"tokens": 12.0, "each": None, "wrong": None, "scalar": 118.0}
    problems = source.problems("shop/x")
    assert set(problems) == {"arrivals", "completions", "errors", "extra.each", "extra.wrong"}
    assert "2 series" in problems["extra.each"]
    assert "parse error" in problems["extra.wrong"]
    assert "missing" in problems["errors"]


async def test_people_can_bound_how_far_prometheus_looks_back(site: Site) -> None:
    """Stamps of the target's own leave no stale mark: a series that ended would live for five minutes."""
    # Servers before 2.43 do not know the parameter and go on with five minutes: a range in the query bounds everywhere.
    prometheus = Prometheus(site.server.url, site.http, timeout_s=TIMEOUT_S, lookback_s=3.0)
    source = EndpointSource(prometheus, CLOCK)
    source.watch("e", EndpointQueries(in_flight="max(last_over_time(own_stamps[3s]))"))

    async def look() -> float | None:
        await source.poll()
        return source.sample("e", CLOCK.monotonic_s()).in_flight

    site.pods.text = f"own_stamps 7 {int(CLOCK.now_s() * 1000)}\n"
    assert await eventually(look, lambda value: value is not None) == 7.0
    site.pods.text = ""
    assert await eventually(look, lambda value: value is None, within_s=10.0) is None


async def test_silent_prometheus_costs_one_time_out_and_an_ended_one_none(site: Site) -> None:
    site.pods.text = engine("a", 3)
    await site.reads(A, lambda it: it.running.state is SignalState.VALUE, "pod a is seen")
    await site.server.freeze()
    began_s = time.perf_counter()
    view = await site.source.poll([A])
    assert time.perf_counter() - began_s < 2 * TIMEOUT_S
    assert view[A].running.value == 6.0  # what was known ages, it is not lost
    assert set(site.source.problems) == {asked.reading for asked in CATALOGUE}
    assert site.source.counts[Outcome.TIMED_OUT, Reading.RUNNING] == 1
    site.server.thaw()
    await site.reads(A, lambda it: not site.source.problems, "Prometheus answers again")
    await site.server.stop()
    began_s = time.perf_counter()
    await site.source.poll([A])
    assert time.perf_counter() - began_s < TIMEOUT_S
    assert site.source.counts[Outcome.UNREACHABLE, Reading.RUNNING] == 1
    await site.server.start()
    site.pods.text = engine("a", 4)
    await site.reads(A, lambda it: it.running.value == 8.0, "values come again after a restart")


async def test_the_past_of_a_query_is_read_by_the_step_and_a_refusal_says_why(site: Site) -> None:
    site.pods.text = engine("a", 7.25)  # no other test shows that
    query = 'vllm:num_requests_running{pod="a",job="pods"}'

    async def stamps() -> list[float]:
        end_s = CLOCK.now_s()
        past = await site.prometheus.past(query, start_s=end_s - 3600.0, end_s=end_s, step_s=1.0, timeout_s=TIMEOUT_S)
        assert past.is_answered, past.text
        return [stamp_s for line in past.lines for stamp_s, value in line if value == 7.25]

    found = await eventually(stamps, within_s=20.0, every_s=0.2, what="what was scraped is part of the past")
    assert CLOCK.now_s() - max(found) < 20.0
    refused = await site.prometheus.past(query, start_s=0.0, end_s=9e5, step_s=1.0, timeout_s=TIMEOUT_S)
    assert refused.outcome is Outcome.REFUSED
    nothing = await site.prometheus.past("absent_of_all", start_s=0.0, end_s=9.0, step_s=1.0, timeout_s=TIMEOUT_S)
    assert (nothing.is_answered, nothing.lines) == (True, ())
