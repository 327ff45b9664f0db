"""What /proc says of a process: processor time, memory, parent. Gone processes count nothing."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KEPT = ("Rss", "Pss")
OWN = os.getpid()


def parent(pid: int) -> int | None:
    """Return the parent's pid, None once the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def cpu_s(pid: int) -> float:
    """Return user and system time so far, of the process itself, in seconds."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S if fields else 0.0


def memory_mb(pid: int) -> dict[str, float]:
    """Return resident memory now, its share after dividing shared pages, and the most ever resident, in MB (10^6)."""
    found: dict[str, float] = {}
    with suppress(OSError):
        rollup = dict(_lines(Path(f"/proc/{pid}/smaps_rollup").read_text()))
        found = {f"{name.lower()}_mb": rollup[name] for name in _KEPT}
        found["peak_rss_mb"] = dict(_lines(Path(f"/proc/{pid}/status").read_text()))["VmHWM"]
    return found


def _lines(text: str) -> list[tuple[str, float]]:
    """Return name and MB of every line that gives kB (units of 1,024 bytes, proc(5))."""
    parts = [line.split() for line in text.splitlines()]
    return [(p[0].rstrip(":"), int(p[1]) * 1024 / 1e6) for p in parts if len(p) == 3 and p[2] == "kB"]


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, which may itself hold blanks and parentheses."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []
