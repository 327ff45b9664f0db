"""By which way a pod may be moved: whoever else sets the count of its workload decides that. Pure.

A Deployment whose count nobody else sets is raised by one and lowered again; one that an autoscaler of ours scales is
raised by that. Where a foreign autoscaler, a GitOps tool or a StatefulSet holds the count, a replica more would be
taken for theirs: such a pod goes first, through the Eviction API, and only where a disruption budget says that it may
be missed now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from binpack.relocation.record import Way, WayKind
from fleet import labels
from fleet.budget import DisruptionBudget
from fleet.pod import Pod


class NoWay(StrEnum):
    """Why a pod is not moved."""

    NO_BUDGET = "NoDisruptionBudget"  # it would have to go first, and nobody said that it may be missed
    BUDGET_SPENT = "DisruptionBudgetSpent"
    ROLLING_OUT = "RollingOut"
    NOT_ALL_READY = "NotAllReady"
    NO_WORKLOAD = "NoWorkload"  # its controller is gone, or is not the one it was
    SHARED = "SharedAutoscaler"  # two autoscalers of ours name its workload


class NotYet(StrEnum):
    """Why a pod is not moved at this moment, though nothing is wrong: it may be as soon as what goes on is over."""

    SETTLING = "Settling"  # its count was changed a moment ago, by us or by others, and its controller follows
    MOVES_ALREADY = "MovesAlready"  # another replica of its workload does, and it has one surge at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Who has set spec.replicas, as metadata.managedFields tells it.

    Attributes:
        operation: `Apply` or `Update`.
        subresource: `scale`, or "".
    """

    manager: str
    operation: str = "Update"
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaler:
    """An autoscaler that names the workload.

    Attributes:
        is_ours: A ConcurrencyAutoscaler.
        is_acting: It sets counts; one of ours may only observe.
    """

    kind: str
    name: str
    is_ours: bool = False
    is_acting: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Who makes a pod's replicas, as read.

    Attributes:
        kind: `Deployment`, or that of the pod's own controller.
        replicas: spec.replicas.
        is_current: The pod's ReplicaSet is the one it makes pods with, as its status says.
        is_observed: Its status is of this spec: a count that was changed has been taken note of.
        updated: Pods of the current template.
        ready: Ready pods.
        writers: Of its count.
        scalers: That name it.
    """

    kind: str
    name: str
    replicas: int = 1
    is_current: bool = True
    is_observed: bool = True
    updated: int = 0
    ready: int = 0
    is_paused: bool = False
    writers: tuple[Writer, ...] = ()
    scalers: tuple[Scaler, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """No way, and why."""

    why: NoWay | NotYet
    detail: str

    @property
    def passes(self) -> bool:
        """Return True if the pod may be moved as soon as what goes on is over."""
        return isinstance(self.why, NotYet)


def way_for(pod: Pod, workload: Workload | None, budgets: Sequence[DisruptionBudget]) -> Way | Refused:
    """Return by which way a pod may be moved now, or why by none."""
    if workload is None:
        return Refused(why=NoWay.NO_WORKLOAD, detail=f"{pod.key}: its controller is not there")
    if workload.kind != "Deployment":
        return _eviction(pod, budgets, f"a {workload.kind} holds the count")
    if not workload.is_paused and (not workload.is_observed or _shrinks(workload)):
        detail = f"the count of Deployment {workload.name} was changed a moment ago"
        return Refused(why=NotYet.SETTLING, detail=detail)
    if workload.is_paused or not workload.is_current or workload.updated < workload.replicas:
        return Refused(why=NoWay.ROLLING_OUT, detail=f"Deployment {workload.name} is rolling out, or paused")
    if workload.ready < workload.replicas:
        detail = f"{workload.ready} of {workload.replicas} replicas of Deployment {workload.name} are Ready"
        return Refused(why=NoWay.NOT_ALL_READY, detail=detail)
    acting = [one for one in workload.scalers if one.is_acting]
    foreign = next((f"{one.kind} {one.name}" for one in acting if not one.is_ours), "") or _foreign(workload.writers)
    if foreign:
        return _eviction(pod, budgets, f"{foreign} holds the count")
    if len(acting) > 1:
        names = ", ".join(sorted(one.name for one in acting))
        return Refused(why=NoWay.SHARED, detail=f"{names} all name Deployment {workload.name}")
    if acting:
        return Way(kind=WayKind.AUTOSCALER, name=acting[0].name)
    return Way(kind=WayKind.SCALE, name=workload.name, base=workload.replicas)


def _shrinks(workload: Workload) -> bool:
    """Return True if pods of the present template are still to go: a surge was taken back, or a count lowered."""
    return workload.is_current and workload.updated > workload.replicas


def _foreign(writers: Sequence[Writer]) -> str:
    """Return who else keeps setting the count; "" = nobody.

    An applier puts its count back at its next sync, and whoever used the scale subresource is a program, unless it is
    kubectl: people scale by hand and expect their count to stay.
    """
    for writer in writers:
        if writer.manager in _OURS:
            continue
        if writer.operation == "Apply":
            return f"{writer.manager} (server-side apply)"
        if writer.subresource == "scale" and not writer.manager.startswith("kubectl"):
            return f"{writer.manager} (scale)"
    return ""


def _eviction(pod: Pod, budgets: Sequence[DisruptionBudget], because: str) -> Way | Refused:
    if not budgets:
        detail = f"{because}, and no disruption budget says that {pod.key} may be missed for a while"
        return Refused(why=NoWay.NO_BUDGET, detail=detail)
    if len(budgets) > 1 or not budgets[0].is_current or budgets[0].allowed < 1:
        names = ", ".join(one.key for one in budgets)
        return Refused(why=NoWay.BUDGET_SPENT, detail=f"{because}, and budget {names} lets nobody go now")
    return Way(kind=WayKind.EVICTION)


_OURS = frozenset({labels.FIELD_MANAGER})
