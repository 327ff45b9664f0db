"""What is known of one pod from Prometheus: each reading with its age, missing apart from zero."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scaler.seen import Signal

PodKey = tuple[str, str]  # namespace, name


class Reading(StrEnum):
    """What can be read of a pod; the names are the fields of `PodMetrics`."""

    MEMORY = "memory_ratio"
    CPU = "cpu_ratio"
    IO_WAIT = "io_wait_ratio"
    GPU_UTILISATION = "gpu_utilisation_ratio"
    GPU_MEMORY = "gpu_memory_ratio"
    GPU_BANDWIDTH = "gpu_bandwidth_ratio"
    TENSOR = "tensor_ratio"
    SM = "sm_ratio"
    RUNNING = "running"
    WAITING = "waiting"
    KV_CACHE = "kv_cache_ratio"
    LATENCY = "latency_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMetrics:
    """One pod; where it has several containers or devices, the fullest counts, because it is the one that limits.

    Attributes:
        memory_ratio: Working set / limit.
        cpu_ratio: CPU time / quota; missing where a container has no CPU limit.
        io_wait_ratio: Share of the time in which something in the pod waited for I/O.
        gpu_utilisation_ratio: Share of the time in which a kernel ran; not how full the GPU is.
        gpu_memory_ratio: Used / usable.
        gpu_bandwidth_ratio: Share of the cycles in which device memory was moving data.
        tensor_ratio: Share of the cycles in which tensor cores worked.
        sm_ratio: Share of the multiprocessors that had work.
        running: Requests that the engine works on, over all its models and ranks.
        waiting: Requests that wait inside the engine.
        kv_cache_ratio: Share of the key-value cache in use.
        latency_s: Mean of the requests that ended between the last two scrapes; missing when none ended.
    """

    memory_ratio: Signal
    cpu_ratio: Signal
    io_wait_ratio: Signal
    gpu_utilisation_ratio: Signal
    gpu_memory_ratio: Signal
    gpu_bandwidth_ratio: Signal
    tensor_ratio: Signal
    sm_ratio: Signal
    running: Signal
    waiting: Signal
    kv_cache_ratio: Signal
    latency_s: Signal
