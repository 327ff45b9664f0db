"""What a planner answers: placements, pods left out with reasons, and how good the answer is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fleet.pod import Berth


class Reason(Enum):
    """Why a pod has no berth; the text is what people and metrics see."""

    NO_NODES = "NoNodes"  # the cluster is empty
    NO_NODE_ALLOWED = "NoNodeAllowed"  # selector, affinity, taints or cordon exclude every node
    NO_SUCH_DEVICE = "NoSuchDevice"  # no allowed node has a device that could ever hold the request
    NO_LEGAL_START = "NoLegalStart"  # memory slices of MIG devices are free, none where the instance may start now
    INSUFFICIENT = "Insufficient"  # allowed nodes exist, but not enough is free on any of them now
    HOST_PORT = "HostPortTaken"  # the nodes that have room have a host port taken that it wants
    TOPOLOGY_SPREAD = "TopologySpread"  # the nodes that have room would break its topology spread constraint
    POD_AFFINITY = "PodAffinity"  # the nodes that have room are not where the pods are that it must join
    POD_ANTI_AFFINITY = "PodAntiAffinity"  # on the nodes that have room it must avoid others, or they avoid it
    VOLUME = "VolumeNotReady"  # a volume claim that it mounts does not exist, or is not bound and nobody binds it
    NO_WARM_NODE = "NoWarmNode"  # no room, and no warm node of the pool that serves it: the pool orders one
    MALFORMED = "Malformed"  # the pod cannot be read
    UNMODELLED_CONSTRAINT = "UnmodelledConstraint"  # placed by candidates, never pinned
    FOREIGN_GATE = "ForeignGate"  # somebody else holds it with another scheduling gate
    GANG_INCOMPLETE = "GangIncomplete"  # members of its gang are missing, or nobody says how many there are
    GANG_DOES_NOT_FIT = "GangDoesNotFit"  # the members of its gang do not all fit at once
    SEAT_AWAITED = "SeatAwaited"  # a berth is kept for it, and whoever holds it still leaves
    CLAIM_UNSATISFIED = "ClaimUnsatisfied"  # nodes have room, and none has the devices that resource claims ask
    CLAIM_PENDING = "ClaimPending"  # a resource claim, or its device class, is not there or cannot be read
    LEFT_TO_SCHEDULER = "LeftToScheduler"  # devices are asked in a way that kube-scheduler alone can allocate
    PLANNER_FAULT = "PlannerFault"  # planning it failed by a fault of ours; it is tried again


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The smallest change that would help, on the node nearest to fitting.

    Attributes:
        node: That node's name.
        missing: (resource, amount) pairs; "devices" counts devices, "milli_gpu"/"gpu_memory_mib" are per device.
    """

    node: str
    missing: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One pod's berth. `score` is the cost that chose it (lower is better, milli-GPU)."""

    pod_uid: str
    berth: Berth
    score: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A pod without a berth, with the reason and the numbers behind it."""

    pod_uid: str
    reason: Reason
    detail: str = ""
    allowed_nodes: int = 0
    shortfall: Shortfall | None = None


class Source(Enum):
    """Who made the plan."""

    INDEX = "index"
    SOLVER = "solver"


class SolveStatus(Enum):
    """How the solver ended; four different outcomes that must not be confused, and two of the shell."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"
    NOT_ASKED = "not-asked"
    LATE_OR_DEAD = "late-or-dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Placements and unplaced pods; every pod of the batch stands in exactly one of the two.

    Attributes:
        objective: Cost of the whole batch in milli-GPU of potential (lower is better) with unplaced demand priced in.
        bound: Proven lower limit of that cost; None where no solver proved one.
        solve_status: How the solver ended, NOT_ASKED where it was not needed.
    """

    placements: tuple[Placement, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    source: Source = Source.INDEX
    objective: float = 0.0
    bound: float | None = None
    solve_status: SolveStatus = SolveStatus.NOT_ASKED

    @property
    def gap_ratio(self) -> float | None:
        """Return (objective - bound) / max(1, |objective|); None without a bound."""
        if self.bound is None:
            return None
        return max(0.0, self.objective - self.bound) / max(1.0, abs(self.objective))


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A hard rule that a plan breaks."""

    pod_uid: str
    node: str
    rule: str
    device: str = ""
    wanted: int = 0
    free: int = 0
