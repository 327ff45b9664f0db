"""The real binding over a C library that is not there: the functions and structures it would call are stood in for."""

# ruff: noqa: N802 - methods are named as the functions in C that they stand for

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scaler.observer.nvml import Driver, Memory, NvmlError
from scaler.observer.readings import Field
from scaler.observer.watch import Watcher

pynvml = pytest.importorskip("pynvml", reason="the extra `observer` is not installed")

HANDLE, MIG, SAMPLE = 0x10, 0x20, 0x30


class Library:
    """libnvidia-ml.so.1 as far as the observer calls it; every C function is a method with C's arguments."""

    def __init__(self) -> None:
        self.is_mig = False
        self.fails: dict[str, int] = {}
        self.samples = 0
        self.freed = 0
        self.mig_sampled: list[int] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        try:
            method = object.__getattribute__(self, f"do_{name}")
        except AttributeError:
            raise AttributeError(name) from None  # the binding then says: function not found
        return lambda *arguments: self.fails.get(name, 0) or method(*arguments) or 0

    def do_nvmlInitWithFlags(self, flags: Any) -> None:
        pass

    def do_nvmlShutdown(self) -> None:
        pass

    def do_nvmlDeviceGetCount_v2(self, count: Any) -> None:
        count._obj.value = 1

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, handle: Any) -> None:
        handle._obj.contents = type(handle._obj)._type_()

    def do_nvmlDeviceGetUUID(self, handle: Any, text: Any, length: Any) -> None:
        text.value = b"GPU-real"

    def do_nvmlDeviceGetName(self, handle: Any, text: Any, length: Any) -> None:
        text.value = b"NVIDIA H100 80GB HBM3 MIG 1g.10gb" if self.is_mig else b"NVIDIA H100 80GB HBM3"

    def do_nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> None:
        current._obj.value = int(self.is_mig)

    def do_nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, count: Any) -> None:
        count._obj.value = 7

    def do_nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: Any, mig: Any) -> int:
        if index.value != 2:
            return int(pynvml.NVML_ERROR_NOT_FOUND)
        mig._obj.contents = type(mig._obj)._type_()
        return 0

    def do_nvmlDeviceGetGpuInstanceId(self, handle: Any, number: Any) -> None:
        number._obj.value = 9

    def do_nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> None:
        assert memory._obj.version == pynvml.nvmlMemory_v2
        memory._obj.used, memory._obj.free, memory._obj.reserved = 3 * 2**30, 5 * 2**30, 2**20

    def do_nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> None:
        memory._obj.used, memory._obj.free = 2**30, 2**30

    def do_nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> None:
        rates._obj.gpu, rates._obj.memory = 70, 30

    def do_nvmlDeviceGetPowerUsage(self, handle: Any, milliwatts: Any) -> None:
        milliwatts._obj.value = 123_456

    def do_nvmlDeviceGetTemperature(self, handle: Any, sensor: Any, celsius: Any) -> None:
        celsius._obj.value = 55

    def do_nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, processes: Any) -> int:
        if processes is None:
            count._obj.value = 2
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        count._obj.value = 2
        processes[0].pid, processes[1].pid = 41, 42
        return 0

    def do_nvmlGpmQueryDeviceSupport(self, handle: Any, support: Any) -> None:
        support._obj.isSupportedDevice = 1

    def do_nvmlGpmSampleAlloc(self, sample: Any) -> None:
        self.samples += 1

    def do_nvmlGpmSampleFree(self, sample: Any) -> None:
        self.freed += 1

    def do_nvmlGpmSampleGet(self, handle: Any, sample: Any) -> None:
        pass

    def do_nvmlGpmMigSampleGet(self, handle: Any, instance: Any, sample: Any) -> None:
        self.mig_sampled.append(instance)

    def do_nvmlGpmMetricsGet(self, asked: Any) -> None:
        struct = asked._obj
        assert struct.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        for slot in range(struct.numMetrics):
            metric = struct.metrics[slot]
            metric.value = 2.0 * metric.metricId
            metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if metric.metricId == 3 else pynvml.NVML_SUCCESS


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(pynvml, "nvmlLib", made)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return made


def test_a_whole_device_through_the_binding(library: Library) -> None:
    watcher = Watcher(Driver(pynvml))
    watcher.look()
    [reading] = watcher.look()
    assert (reading.uuid, reading.model, reading.instance) == ("GPU-real", "NVIDIA H100 80GB HBM3", None)
    assert reading.processes == (41, 42)
    assert reading.values == {
        Field.GPU_UTIL: 70.0,
        Field.MEM_COPY_UTIL: 30.0,
        Field.FB_USED: 3072.0,
        Field.FB_FREE: 5120.0,
        Field.POWER_USAGE: pytest.approx(123.456),
        Field.GPU_TEMP: 55.0,
        # GPM's percent are 2 x the metric's number here, and metric 3 is not supported.
        Field.GR_ENGINE_ACTIVE: 0.02,
        Field.SM_ACTIVE: 0.04,
        Field.PIPE_TENSOR_ACTIVE: 0.1,
        Field.DRAM_ACTIVE: 0.2,
    }
    watcher.close()
    assert (library.samples, library.freed) == (2, 2)
    assert watcher.errors == {}


def test_a_mig_instance_through_the_binding(library: Library) -> None:
    library.is_mig = True
    watcher = Watcher(Driver(pynvml))
    whole, instance = watcher.look()
    assert (instance.instance, instance.profile) == (9, "1g.10gb")
    assert library.mig_sampled == [9]
    assert Field.GPU_UTIL not in whole.values


def test_old_drivers_tell_memory_in_the_old_way(library: Library) -> None:
    library.fails["nvmlDeviceGetMemoryInfo_v2"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert Driver(pynvml).memory(Driver(pynvml).device(0)) == Memory(used_bytes=2**30, free_bytes=2**30)


@pytest.mark.parametrize("code", ["NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND"])
def test_what_a_device_does_not_have_is_no_fault(library: Library, code: str) -> None:
    for name in ("nvmlDeviceGetMigMode", "nvmlGpmQueryDeviceSupport"):
        library.fails[name] = getattr(pynvml, code)
    driver = Driver(pynvml)
    device = driver.device(0)
    assert (tuple(driver.instances(device)), driver.has_counters(device)) == ((), False)


def test_faults_are_named(library: Library) -> None:
    library.fails["nvmlDeviceGetHandleByIndex_v2"] = pynvml.NVML_ERROR_GPU_IS_LOST
    with pytest.raises(NvmlError, match="gpu is lost"):
        Driver(pynvml).device(0)


def test_a_sample_that_cannot_be_taken_is_freed(library: Library) -> None:
    library.fails["nvmlGpmSampleGet"] = pynvml.NVML_ERROR_UNKNOWN
    driver = Driver(pynvml)
    with pytest.raises(NvmlError):
        driver.sample(driver.device(0), None)
    assert (library.samples, library.freed) == (1, 1)


def test_where_there_is_no_driver_opening_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", missing)
    with pytest.raises(NvmlError, match="library not found"):
        Driver(pynvml).open()
