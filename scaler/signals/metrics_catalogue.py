"""What is asked of Prometheus about pods: one query per reading, for all pods at once.

Sources: cAdvisor "Monitoring cAdvisor with Prometheus" as the kubelet serves it at /metrics/cadvisor (pressure stall
times since Kubernetes 1.34, KEP-4205); kube-state-metrics "Pod Metrics"; DCGM exporter's default counters and the field
identifiers of DCGM.
"""

from __future__ import annotations

from dataclasses import dataclass

from scaler.signals import engines
from scaler.signals.metrics_values import Reading
from scaler.signals.promql import Choice, fullest, named, once, query, rate, stamp

# The pod's own cgroup has no container name, the sandbox is called POD: neither has a limit of its own.
_CONTAINERS = 'container!="",container!="POD"'
_DEVICE = "UUID, GPU_I_ID"
# Larger is no reading but a sentinel: DCGM says "blank" as 9.2e18.
_MOST_RATIO = 4.0
_MOST_COUNT = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One reading and how it is asked for.

    Attributes:
        reading: What.
        query: Made by `fleet.prom_answer.dated`.
        most: Largest value that can be meant.
    """

    reading: Reading
    query: str
    most: float


def _shares(used: str, selector: str, limit: str, resource: str) -> tuple[Choice, Choice]:
    """Return used / limit of the fullest container: by cAdvisor's limit, else by the limit that the pod declares.

    Widely used configurations drop cAdvisor's `container_spec_*`; kube-state-metrics tells the declared limits.

    Args:
        used: What each container uses.
        selector: Whose samples it comes from.
        limit: Of each container, above 0.
        resource: As Kubernetes calls it.
    """
    by_container = "max by (namespace, pod, container)"
    declared = f'kube_pod_container_resource_limits{{resource="{resource}"}}'
    ratio = f"{by_container} ({named(used)}) / ({by_container} ({named(declared)}) > 0)"
    return (
        Choice(value=fullest(f"{once(used, 'container')} / {limit}"), stamp=stamp(selector)),
        Choice(
            value=f"max by (namespace, pod) ({ratio})",
            stamp=f"max by (namespace, pod) ({named(f'timestamp({selector})')})",
        ),
    )


_WORKING_SET = f"container_memory_working_set_bytes{{{_CONTAINERS}}}"
_MEMORY_LIMIT = f"({once(f'container_spec_memory_limit_bytes{{{_CONTAINERS}}}', 'container')} > 0)"
# Standalone cAdvisor counts every core apart beside the total.
_CPU_TIME = f'container_cpu_usage_seconds_total{{{_CONTAINERS},cpu=~"total|"}}'
_CORES = (
    f"({once(f'container_spec_cpu_quota{{{_CONTAINERS}}}', 'container')}"
    f" / {once(f'container_spec_cpu_period{{{_CONTAINERS}}}', 'container')} > 0)"
)
_IO_PRESSURE = f"container_pressure_io_waiting_seconds_total{{{_CONTAINERS}}}"
_DISK_BUSY = f"container_fs_io_time_seconds_total{{{_CONTAINERS}}}"
_USED, _FREE = "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"


def _busiest(name: str, full: float = 1.0) -> Choice:
    value = fullest(name) if full == 1.0 else f"({fullest(name)} / {full:g})"
    return Choice(value=value, stamp=stamp(name))


_POD_QUERIES: dict[Reading, str] = {
    Reading.MEMORY: query(*_shares(_WORKING_SET, _WORKING_SET, _MEMORY_LIMIT, "memory")),
    Reading.CPU: query(*_shares(rate(_CPU_TIME), _CPU_TIME, _CORES, "cpu")),
    Reading.IO_WAIT: query(
        Choice(value=fullest(rate(_IO_PRESSURE)), stamp=stamp(_IO_PRESSURE)),
        # Kernels without pressure stall accounting: how long a disk was busy for the container (blkio, cgroup v1).
        Choice(value=f"clamp_max({fullest(rate(_DISK_BUSY))}, 1)", stamp=stamp(_DISK_BUSY)),
    ),
    # GPU_UTIL is not defined on MIG instances; the profiling counter is.
    Reading.GPU_UTILISATION: query(_busiest("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), _busiest("DCGM_FI_DEV_GPU_UTIL", 100)),
    Reading.GPU_MEMORY: query(
        Choice(
            value=fullest(f"{once(_USED, _DEVICE)} / ({once(_USED, _DEVICE)} + {once(_FREE, _DEVICE)} > 0)"),
            stamp=stamp(_USED),
        )
    ),
    Reading.GPU_BANDWIDTH: query(_busiest("DCGM_FI_PROF_DRAM_ACTIVE"), _busiest("DCGM_FI_DEV_MEM_COPY_UTIL", 100)),
    Reading.TENSOR: query(_busiest("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")),
    Reading.SM: query(_busiest("DCGM_FI_PROF_SM_ACTIVE")),
}

_COUNTS = {Reading.RUNNING, Reading.WAITING, Reading.LATENCY}
CATALOGUE = tuple(
    Asked(reading=reading, query=text, most=_MOST_COUNT if reading in _COUNTS else _MOST_RATIO)
    for reading, text in (_POD_QUERIES | engines.QUERIES).items()
)
