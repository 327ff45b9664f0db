"""Collects what each replica did, second by second, into the cycle that the vertical axis learns from."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

import numpy as np

from scaler.controller.join import Row
from scaler.vertical.thresholds import THRESHOLDS
from scaler.vertical.values import Cycle

# Columns before those of the resources.
_FIXED = ("replica", "second", "in_flight", "latency_s", "p95_s", "completions", "errors", "memory_ratio")
RESOURCES = tuple(THRESHOLDS)
_WIDTH = len(_FIXED) + len(RESOURCES)
_NAN = float("nan")
# Seconds of replicas in one cycle: a larger fleet is learnt from by part of its replicas.
MOST_ROWS = 20_000
_NO_METRICS: Mapping[str, float] = {}


class CycleRows:
    """Rows since the last cycle, as doubles: 120 bytes a replica and second."""

    def __init__(self, begun_s: float) -> None:
        self.begun_s = begun_s
        self._cells = array("d")
        self._names: dict[str, int] = {}

    def add(self, at_s: float, rows: Iterable[Row], metrics: Mapping[str, Mapping[str, float]]) -> None:
        """Take one second; `metrics` are ratios by pod and name, without those that are missing or stale."""
        cells, names = self._cells, self._names
        for row in rows:
            if len(cells) >= MOST_ROWS * _WIDTH:
                return
            known = metrics.get(row.pod, _NO_METRICS)
            cells.extend(
                (
                    names.setdefault(row.pod, len(names)),
                    at_s - self.begun_s,
                    row.in_flight,
                    _NAN if row.latency_s is None else row.latency_s,
                    _NAN if row.p95_s is None else row.p95_s,
                    row.completions,
                    row.errors,
                    known.get("memory_ratio", _NAN),
                    *(known.get(name, _NAN) for name in RESOURCES),
                )
            )

    def close(
        self, now_s: float, *, replicas: int, starting: int, is_late: bool, since_rollout_s: float
    ) -> tuple[Cycle, CycleRows]:
        """Return the cycle, and an empty one that begins now."""
        table = np.frombuffer(self._cells, dtype=np.float64).reshape(-1, _WIDTH)
        known = {name: table[:, len(_FIXED) + at] for at, name in enumerate(RESOURCES)}
        cycle = Cycle(
            replica=table[:, 0].astype(np.int64),
            second=table[:, 1],
            in_flight=table[:, 2],
            latency_s=table[:, 3],
            p95_s=table[:, 4],
            completions=table[:, 5],
            errors=table[:, 6],
            memory_ratio=table[:, 7],
            size=np.full(len(table), np.nan),
            resources={name: values for name, values in known.items() if np.isfinite(values).any()},
            names=tuple(self._names),
            replicas=replicas,
            starting=starting,
            is_late=is_late,
            since_rollout_s=since_rollout_s,
        )
        return cycle, CycleRows(now_s)
