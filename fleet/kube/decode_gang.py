"""Which gang a pod belongs to, which berth is kept for it, and the PodGroup object that stands for a gang."""

from __future__ import annotations

from collections.abc import Mapping

from fleet import berths, labels
from fleet.errors import DecodeError
from fleet.kube.objects import MetaObject, PodSpecObject
from fleet.pod import Berth

_MOST_MEMBERS = 100_000


def gang_of(meta: MetaObject, spec: PodSpecObject) -> tuple[str, int, tuple[str, ...]]:
    """Return the gang's name, the size that its label tells (0 = none), and why either cannot be read.

    A PodGroup comes before a label: whoever names one means it.
    """
    group = spec.scheduling_group
    if group is not None:
        if not group.pod_group_name:
            return "", 0, ("spec.schedulingGroup names no PodGroup",)
        return labels.POD_GROUP_PREFIX + group.pod_group_name, 0, ()
    if not meta.labels or labels.GANG not in meta.labels:
        return "", 0, ()
    name, text = meta.labels[labels.GANG], meta.labels.get(labels.GANG_SIZE, "")
    if not name:
        return "", 0, (f"label {labels.GANG} is empty",)
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= _MOST_MEMBERS and len(text) < 9):
        return name, 0, (f"label {labels.GANG_SIZE}: {text[:80]!r} is not a number of pods",)
    return name, int(text), ()


def seat_of(annotations: Mapping[str, str] | None) -> Berth | None:
    """Return the berth that is kept for a gated pod; None = none, or nobody can read which."""
    if not annotations or labels.SEAT not in annotations:
        return None
    try:
        found = berths.parse_candidates(annotations[labels.SEAT])
    except DecodeError:
        return None
    return found[0] if len(found) == 1 else None
