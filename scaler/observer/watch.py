"""Looks at all devices; whatever fails costs only itself: a lost device its own series, a missing field that field."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from scaler.observer.nvml import Handle, Nvml, NvmlError
from scaler.observer.readings import DeviceReading, Field

T = TypeVar("T")
_Key = tuple[str, int | None]  # device's uuid, GPU instance

_MIB = 2**20
# GPM metrics by their NVML numbers; percent there, ratios in DCGM.
_COUNTERS: Mapping[int, Field] = {
    1: Field.GR_ENGINE_ACTIVE,
    2: Field.SM_ACTIVE,
    3: Field.SM_OCCUPANCY,
    5: Field.PIPE_TENSOR_ACTIVE,
    10: Field.DRAM_ACTIVE,
}


class Watcher:
    """Reads every device and MIG instance; not to be used by two threads at once.

    Attributes:
        errors: NVML's refusals by (what was asked, reason), without "not supported", which is no fault.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._is_open = False
        self._samples: dict[_Key, Handle] = {}
        self.errors: Counter[tuple[str, str]] = Counter()

    def look(self) -> tuple[DeviceReading, ...]:
        """Return what can be read now; GPM ratios are over the time since the look before, so the first has none."""
        if not self._is_open:
            # A driver that is reloaded, or comes up after this process, is found by trying again.
            self._is_open = self._try("open", self._open) is not None
            if not self._is_open:
                return ()
        count = self._try("count", self._nvml.count)
        if count is None:
            self.close()
            return ()
        readings: list[DeviceReading] = []
        for index in range(count):
            found = self._try("device", lambda index=index: self._device(index))  # type: ignore[misc]
            readings.extend(found or ())
        seen = {(reading.uuid, reading.instance) for reading in readings}
        for key in self._samples.keys() - seen:
            self._free(self._samples.pop(key))
        return tuple(readings)

    def close(self) -> None:
        """Let go of the driver; the next look takes it up again."""
        for sample in self._samples.values():
            self._free(sample)
        self._samples.clear()
        if self._is_open:
            self._try("close", self._nvml.close)
        self._is_open = False

    def _open(self) -> bool:
        self._nvml.open()
        return True

    def _device(self, index: int) -> list[DeviceReading]:
        device = self._nvml.device(index)
        uuid, model = self._nvml.uuid(device), self._nvml.model(device)
        has_counters = bool(self._try("counters", lambda: self._nvml.has_counters(device)))
        instances = self._try("instances", lambda: self._nvml.instances(device)) or ()
        values = self._memory(device)
        if (power_w := self._try("power", lambda: self._nvml.power_w(device))) is not None:
            values[Field.POWER_USAGE] = power_w
        if (temperature_c := self._try("temperature", lambda: self._nvml.temperature_c(device))) is not None:
            values[Field.GPU_TEMP] = temperature_c
        if not instances:
            rates = self._try("utilisation", lambda: self._nvml.utilisation(device))
            if rates is not None:
                values[Field.GPU_UTIL], values[Field.MEM_COPY_UTIL] = rates
            if has_counters:
                values |= self._counters(uuid, device, None)
        readings = [
            DeviceReading(
                gpu=index,
                uuid=uuid,
                model=model,
                values=values,
                # With MIG on, work runs on instances; the device would name every pod a second time.
                processes=() if instances else self._processes(device),
            )
        ]
        for number, profile, handle in instances:
            inner = self._memory(handle)
            if has_counters:
                inner |= self._counters(uuid, device, number)
            readings.append(
                DeviceReading(
                    gpu=index,
                    uuid=uuid,
                    model=model,
                    instance=number,
                    profile=profile,
                    values=inner,
                    processes=self._processes(handle),
                )
            )
        return readings

    def _memory(self, handle: Handle) -> dict[Field, float]:
        memory = self._try("memory", lambda: self._nvml.memory(handle))
        if memory is None:
            return {}
        return {Field.FB_USED: memory.used_bytes / _MIB, Field.FB_FREE: memory.free_bytes / _MIB}

    def _processes(self, handle: Handle) -> tuple[int, ...]:
        return self._try("processes", lambda: self._nvml.processes(handle)) or ()

    def _counters(self, uuid: str, device: Handle, instance: int | None) -> dict[Field, float]:
        """Return the ratios since the look before, and keep this look's sample for the next."""
        key = (uuid, instance)
        sample = self._try("sample", lambda: self._nvml.sample(device, instance))
        if sample is None:
            return {}
        before = self._samples.get(key)
        self._samples[key] = sample
        if before is None:
            return {}
        found = self._try("counters", lambda: self._nvml.between(before, sample, tuple(_COUNTERS)))
        self._free(before)
        return {
            _COUNTERS[metric]: percent / 100.0
            for metric, percent in (found or {}).items()
            if metric in _COUNTERS and math.isfinite(percent)
        }

    def _free(self, sample: Handle) -> None:
        with suppress(NvmlError):  # of a device that is gone
            self._nvml.free(sample)

    def _try(self, what: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except NvmlError as error:
            if error.reason != "not supported":
                self.errors[what, error.reason] += 1
            return None
