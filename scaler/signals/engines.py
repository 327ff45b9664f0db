"""What model servers say of themselves: requests running and waiting, cache use, latency.

Sources: vLLM and SGLang "Production Metrics"; TensorRT-LLM `trtllm-serve` metrics; Triton "Metrics" and those of its
TensorRT-LLM backend; the metric protocol of llm-d's inference router for which of them mean the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from scaler.signals.metrics_values import Reading
from scaler.signals.promql import Choice, fullest, query, rate, stamp, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The names of one model server; "" = it has none.

    Attributes:
        parts: Labels that part one pod's requests: their values add up, other labels only repeat a value.
        running: Gauge of requests worked on.
        waiting: Gauge of requests queued.
        cache: Gauge of cache use, 0..1.
        latency_total: Counter of time spent in requests that ended.
        latency_count: Counter of those requests.
        latency_unit_s: Of `latency_total`.
    """

    parts: str
    running: str = ""
    waiting: str = ""
    cache: tuple[str, ...] = ()
    latency_total: str = ""
    latency_count: str = ""
    latency_unit_s: float = 1.0


VLLM = Engine(
    parts="model_name, engine",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    cache=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),  # the second before version 0.10
    latency_total="vllm:e2e_request_latency_seconds_sum",
    latency_count="vllm:e2e_request_latency_seconds_count",
)
SGLANG = Engine(
    parts="model_name, dp_rank",  # every tensor-parallel rank repeats the same requests
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    cache=("sglang:token_usage",),
    latency_total="sglang:e2e_request_latency_seconds_sum",
    latency_count="sglang:e2e_request_latency_seconds_count",
)
TENSORRT_LLM = Engine(
    parts="model_name",
    running="trtllm_num_requests_running",
    waiting="trtllm_num_requests_waiting",
    cache=("trtllm_kv_cache_utilization",),
    latency_total="trtllm_e2e_request_latency_seconds_sum",
    latency_count="trtllm_e2e_request_latency_seconds_count",
)
TRITON_LLM = Engine(
    parts="model, version",
    running='nv_trt_llm_request_metrics{request_type="scheduled"}',
    waiting='nv_trt_llm_request_metrics{request_type="waiting"}',
    cache=('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}',),
)
TRITON = Engine(
    parts="model, version",
    waiting="nv_inference_pending_request_count",
    latency_total="nv_inference_request_duration_us",
    latency_count="nv_inference_request_success",
    latency_unit_s=1e-6,
)
# Triton's own counts stand behind those of the backend that runs inside it.
ENGINES = (VLLM, SGLANG, TENSORRT_LLM, TRITON_LLM, TRITON)


def _summed(selector: str, engine: Engine) -> Choice:
    return Choice(value=total(selector, engine.parts), stamp=stamp(selector))


def _latency(engine: Engine) -> Choice:
    # Without an ended request there is no mean: the comparison leaves nothing, where 0 / 0 would be not a number.
    spent = total(rate(engine.latency_total), engine.parts)
    ended = total(rate(engine.latency_count), engine.parts)
    scale = "" if engine.latency_unit_s == 1.0 else f" * {engine.latency_unit_s:g}"
    return Choice(value=f"({spent} / ({ended} > 0){scale})", stamp=stamp(engine.latency_count))


QUERIES: dict[Reading, str] = {
    Reading.RUNNING: query(*(_summed(engine.running, engine) for engine in ENGINES if engine.running)),
    Reading.WAITING: query(*(_summed(engine.waiting, engine) for engine in ENGINES if engine.waiting)),
    Reading.KV_CACHE: query(
        *(Choice(value=fullest(name), stamp=stamp(name)) for engine in ENGINES for name in engine.cache)
    ),
    Reading.LATENCY: query(*(_latency(engine) for engine in ENGINES if engine.latency_count)),
}
