"""Readings as DCGM exporter's metric families, with its labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily

from scaler.observer.readings import MEANING, DeviceReading, Field
from scaler.signals.metrics_values import PodKey

_LABELS = ("gpu", "UUID", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname", "namespace", "pod")


def families(
    readings: Iterable[DeviceReading], pods: Mapping[int, PodKey], hostname: str
) -> Iterator[GaugeMetricFamily]:
    """Yield one family per field that was read at all; absent is absent, an empty label is none to Prometheus.

    A device that several pods compute on gives each of them its series, as DCGM exporter does for shared devices: the
    reading is the device's, not the pod's part of it.

    Args:
        readings: Of one look.
        pods: By host pid.
        hostname: Of the node.
    """
    readings = tuple(readings)
    for field in Field:
        family = GaugeMetricFamily(field, MEANING[field], labels=_LABELS)
        for reading in readings:
            if (value := reading.values.get(field)) is not None:
                for labels in _labels(reading, pods, hostname):
                    family.add_metric(labels, value)
        if family.samples:
            yield family


def _labels(reading: DeviceReading, pods: Mapping[int, PodKey], hostname: str) -> Iterator[tuple[str, ...]]:
    device = (
        str(reading.gpu),
        reading.uuid,
        f"nvidia{reading.gpu}",
        reading.model,
        reading.profile,
        "" if reading.instance is None else str(reading.instance),
        hostname,
    )
    users = sorted({pods[pid] for pid in reading.processes if pid in pods})
    for namespace, pod in users or [("", "")]:
        yield (*device, namespace, pod)
