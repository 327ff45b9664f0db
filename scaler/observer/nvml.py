"""The NVML functions that are used, with plain values; the only file that knows the binding.

Binding: package nvidia-ml-py (imported as pynvml), which loads the driver's libnvidia-ml.so.1.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fleet.errors import BerthmasterError, ConfigError

T = TypeVar("T")
Handle = Any  # what the binding gives for a device, an instance or a sample


class NvmlError(BerthmasterError):
    """NVML refused; `reason` is bounded, for counting: not supported, gpu is lost, ..."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Device memory without what the driver reserves."""

    used_bytes: int
    free_bytes: int


class Nvml(Protocol):
    """What the observer asks; every method may raise NvmlError."""

    def open(self) -> None:
        """Load the driver's library anew."""

    def close(self) -> None:
        """Let go of it."""

    def count(self) -> int:
        """Return how many devices there are, lost ones included."""

    def device(self, index: int) -> Handle:
        """Return a device."""

    def instances(self, device: Handle) -> Sequence[tuple[int, str, Handle]]:
        """Return number, profile and handle of each MIG instance; empty where MIG is off."""

    def uuid(self, device: Handle) -> str:
        """Return the device's name for ever."""

    def model(self, device: Handle) -> str:
        """Return the product's name."""

    def memory(self, handle: Handle) -> Memory:
        """Return memory of a device or an instance."""

    def utilisation(self, device: Handle) -> tuple[float, float]:
        """Return percent of time in which a kernel ran, and in which memory was read or written."""

    def power_w(self, device: Handle) -> float:
        """Return the power drawn."""

    def temperature_c(self, device: Handle) -> float:
        """Return the GPU's temperature."""

    def processes(self, handle: Handle) -> tuple[int, ...]:
        """Return the host pids that compute on a device or an instance."""

    def has_counters(self, device: Handle) -> bool:
        """Return whether GPM works: Hopper and newer."""

    def sample(self, device: Handle, instance: int | None) -> Handle:
        """Return the state of the hardware counters; to be freed."""

    def free(self, sample: Handle) -> None:
        """Free a sample."""

    def between(self, first: Handle, second: Handle, metrics: Sequence[int]) -> Mapping[int, float]:
        """Return GPM metrics over the time between two samples, those that there are."""


def load() -> Nvml:
    """Return the driver's NVML.

    Raises:
        ConfigError: The binding is not installed.
    """
    try:
        return Driver(importlib.import_module("pynvml"))
    except ImportError as error:
        raise ConfigError(
            ["the observer needs the package nvidia-ml-py: install berthmaster with its extra `observer`"]
        ) from error


class Driver:
    """NVML through its Python binding."""

    def __init__(self, binding: Any) -> None:
        self._nvml = binding

    def open(self) -> None:
        """Load the driver's library anew."""
        with self._errors():
            self._nvml.nvmlInit()

    def close(self) -> None:
        """Let go of it."""
        with self._errors():
            self._nvml.nvmlShutdown()

    def count(self) -> int:
        """Return how many devices there are, lost ones included."""
        with self._errors():
            return int(self._nvml.nvmlDeviceGetCount())

    def device(self, index: int) -> Handle:
        """Return a device."""
        with self._errors():
            return self._nvml.nvmlDeviceGetHandleByIndex(index)

    def instances(self, device: Handle) -> Sequence[tuple[int, str, Handle]]:
        """Return number, profile and handle of each MIG instance; empty where MIG is off."""
        if not self._unless_unsupported(lambda: self._nvml.nvmlDeviceGetMigMode(device)[0], default=0):
            return ()
        found: list[tuple[int, str, Handle]] = []
        with self._errors():
            most = self._nvml.nvmlDeviceGetMaxMigDeviceCount(device)
        for index in range(most):
            try:
                handle = self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
                number = self._nvml.nvmlDeviceGetGpuInstanceId(handle)
                # "NVIDIA H100 80GB HBM3 MIG 1g.10gb": the binding has no other way from an instance to its profile.
                profile = self.model(handle).rpartition("MIG ")[2]
            except self._nvml.NVMLError:  # the slot is empty, or its instance has just been destroyed
                continue
            found.append((number, profile, handle))
        return found

    def uuid(self, device: Handle) -> str:
        """Return the device's name for ever."""
        with self._errors():
            return _text(self._nvml.nvmlDeviceGetUUID(device))

    def model(self, device: Handle) -> str:
        """Return the product's name."""
        with self._errors():
            return _text(self._nvml.nvmlDeviceGetName(device))

    def memory(self, handle: Handle) -> Memory:
        """Return memory of a device or an instance."""
        # Version 2 tells used from reserved, as DCGM does; drivers before 510 have only version 1.
        read = self._unless_unsupported(
            lambda: self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2), default=None
        )
        if read is None:
            with self._errors():
                read = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return Memory(used_bytes=int(read.used), free_bytes=int(read.free))

    def utilisation(self, device: Handle) -> tuple[float, float]:
        """Return percent of time in which a kernel ran, and in which memory was read or written."""
        with self._errors():
            rates = self._nvml.nvmlDeviceGetUtilizationRates(device)
            return float(rates.gpu), float(rates.memory)

    def power_w(self, device: Handle) -> float:
        """Return the power drawn."""
        with self._errors():
            return float(self._nvml.nvmlDeviceGetPowerUsage(device)) / 1000.0

    def temperature_c(self, device: Handle) -> float:
        """Return the GPU's temperature."""
        with self._errors():
            return float(self._nvml.nvmlDeviceGetTemperature(device, self._nvml.NVML_TEMPERATURE_GPU))

    def processes(self, handle: Handle) -> tuple[int, ...]:
        """Return the host pids that compute on a device or an instance."""
        with self._errors():
            return tuple(int(process.pid) for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle))

    def has_counters(self, device: Handle) -> bool:
        """Return whether GPM works: Hopper and newer."""
        support = self._unless_unsupported(lambda: self._nvml.nvmlGpmQueryDeviceSupport(device), default=None)
        return support is not None and bool(support.isSupportedDevice)

    def sample(self, device: Handle, instance: int | None) -> Handle:
        """Return the state of the hardware counters; to be freed."""
        with self._errors():
            sample = self._nvml.nvmlGpmSampleAlloc()
        try:
            with self._errors():
                if instance is None:
                    self._nvml.nvmlGpmSampleGet(device, sample)
                else:
                    self._nvml.nvmlGpmMigSampleGet(device, instance, sample)
        except NvmlError:
            self.free(sample)
            raise
        return sample

    def free(self, sample: Handle) -> None:
        """Free a sample."""
        with self._errors():
            self._nvml.nvmlGpmSampleFree(sample)

    def between(self, first: Handle, second: Handle, metrics: Sequence[int]) -> Mapping[int, float]:
        """Return GPM metrics over the time between two samples, those that there are."""
        asked = self._nvml.c_nvmlGpmMetricsGet_t()
        asked.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(metrics)
        asked.sample1, asked.sample2 = first, second
        for slot, metric in enumerate(metrics):
            asked.metrics[slot].metricId = metric
        with self._errors():
            self._nvml.nvmlGpmMetricsGet(asked)
        slots = [asked.metrics[slot] for slot in range(len(metrics))]
        return {int(slot.metricId): float(slot.value) for slot in slots if slot.nvmlReturn == self._nvml.NVML_SUCCESS}

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as error:
            raise NvmlError(str(error).lower()) from error

    def _unless_unsupported(self, ask: Callable[[], T], default: T) -> T:
        """Return what is asked for, `default` where the device or the driver has no such thing."""
        try:
            return ask()
        except (
            self._nvml.NVMLError_NotSupported,
            self._nvml.NVMLError_FunctionNotFound,
            self._nvml.NVMLError_InvalidArgument,
        ):
            return default
        except self._nvml.NVMLError as error:
            raise NvmlError(str(error).lower()) from error


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
