"""What was read of one GPU or one MIG instance; what could not be read is absent, never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Field(StrEnum):
    """Fields by the names of DCGM, in DCGM's units."""

    GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
    MEM_COPY_UTIL = "DCGM_FI_DEV_MEM_COPY_UTIL"
    FB_USED = "DCGM_FI_DEV_FB_USED"
    FB_FREE = "DCGM_FI_DEV_FB_FREE"
    POWER_USAGE = "DCGM_FI_DEV_POWER_USAGE"
    GPU_TEMP = "DCGM_FI_DEV_GPU_TEMP"
    GR_ENGINE_ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
    SM_OCCUPANCY = "DCGM_FI_PROF_SM_OCCUPANCY"
    PIPE_TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
    DRAM_ACTIVE = "DCGM_FI_PROF_DRAM_ACTIVE"


# As the DCGM exporter's own default counters describe them.
MEANING: Mapping[Field, str] = {
    Field.GPU_UTIL: "GPU utilization (in %).",
    Field.MEM_COPY_UTIL: "Memory utilization (in %).",
    Field.FB_USED: "Framebuffer memory used (in MiB).",
    Field.FB_FREE: "Framebuffer memory free (in MiB).",
    Field.POWER_USAGE: "Power draw (in W).",
    Field.GPU_TEMP: "GPU temperature (in C).",
    Field.GR_ENGINE_ACTIVE: "Ratio of time the graphics engine is active.",
    Field.SM_ACTIVE: "The ratio of cycles an SM has at least 1 warp assigned.",
    Field.SM_OCCUPANCY: "The ratio of number of warps resident on an SM.",
    Field.PIPE_TENSOR_ACTIVE: "Ratio of cycles the tensor (HMMA) pipe is active.",
    Field.DRAM_ACTIVE: "Ratio of cycles the device memory interface is active sending or receiving data.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """One device, or one MIG instance of it.

    Attributes:
        gpu: NVML's index of the device.
        uuid: Of the device; that of the parent for an instance, as DCGM says it.
        model: Of the device.
        instance: Number of the GPU instance; None = the whole device.
        profile: Of the instance, such as 1g.10gb.
        values: What could be read.
        processes: Host pids that compute on it.
    """

    gpu: int
    uuid: str
    model: str
    instance: int | None = None
    profile: str = ""
    values: Mapping[Field, float] = field(default_factory=dict)
    processes: tuple[int, ...] = ()
