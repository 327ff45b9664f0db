"""Whose process runs on a device: host pid -> cgroup -> pod, read from the node's own files.

The kubelet's pod-resources API knows what a device plugin has handed out; devices that Berthmaster places by annotation
and shares of one device it does not know. Processes are what really computes. Needed: the host's pid namespace, and the
kubelet's log folder, whose entries are called NAMESPACE_NAME_UID (Kubernetes documentation, "Logging Architecture").
A pod that holds a device and runs nothing on it stays unnamed, as it is where DCGM sees no pod.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from scaler.signals.metrics_values import PodKey

# kubepods-burstable-pod8b6c..._....slice (systemd) or /kubepods/burstable/pod8b6c...-.../ (cgroupfs).
_UID = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})\b")


def uid_of(cgroup: str) -> str | None:
    """Return the pod's uid in the text of /proc/PID/cgroup, None for a process of no pod."""
    found = _UID.search(cgroup)
    return found.group(1).replace("_", "-") if found else None


def pods_by_uid(names: Iterable[str]) -> dict[str, PodKey]:
    """Return namespace and name by uid out of the entries of the kubelet's log folder; others are skipped."""
    found = {}
    for name in names:
        parts = name.split("_")  # neither a namespace nor a pod nor a uid may hold an underscore
        if len(parts) == 3 and all(parts):
            found[parts[2]] = (parts[0], parts[1])
    return found


class NodePods:
    """The pods of this node, by the pids they compute with."""

    def __init__(self, proc: Path = Path("/proc"), logs: Path = Path("/var/log/pods")) -> None:
        self._proc = proc
        self._logs = logs

    def of(self, pids: Iterable[int]) -> Mapping[int, PodKey]:
        """Return the pod of each process that belongs to one; what cannot be read belongs to none."""
        uids = {pid: uid for pid in set(pids) if (uid := uid_of(self._cgroup(pid))) is not None}
        if not uids:
            return {}
        try:
            names = [entry.name for entry in self._logs.iterdir()]
        except OSError:
            return {}
        pods = pods_by_uid(names)
        return {pid: pods[uid] for pid, uid in uids.items() if uid in pods}

    def _cgroup(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "cgroup").read_text(errors="replace")
        except OSError:  # it has ended
            return ""
