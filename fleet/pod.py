"""One pod as the planner sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from fleet.company import NOBODY, Guest
from fleet.constraints import NodeConstraints, NodeTerm
from fleet.device import DeviceAsk
from fleet.dra import ClaimChoice, PodClaim
from fleet.resources import Resources


class Phase(Enum):
    """Pod phase; UNKNOWN also stands for a phase this version has never heard of."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def is_terminal(self) -> bool:
        """Return True once the pod holds nothing any more, even while the object exists."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The controller that would recreate the pod."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Berth:
    """A node and the device ids on it; empty devices for a CPU-only pod or a classic count.

    Attributes:
        choices: Devices chosen for those of the pod's resource claims that have none yet.
    """

    node: str
    devices: tuple[str, ...] = ()
    choices: tuple[ClaimChoice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod's identity, state, requests and what was recorded about its berth.

    Attributes:
        is_unschedulable: kube-scheduler tried and refused it (condition PodScheduled False, reason Unschedulable).
        says_waiting: Our own condition says that it waits or was handed over (berthmaster.dev/Waiting True).
        requests: Effective request as Kubernetes counts it (init containers, sidecars, overhead), with one pod slot.
        ask: What it asks of GPUs; None = CPU only.
        gates: Names of its scheduling gates, in order.
        pinned_node: Node named by a required matchFields term of every affinity term; "" = not pinned.
        is_pin_ours: The planner wrote that pin (annotation berthmaster.dev/pinned), so it may also give it up.
        devices: The devices annotation, parsed; None = no such annotation.
        candidates: The candidates annotation, parsed, in order of preference; empty = none.
        guest: The pod as rules between pods see it: spread, (anti-)affinity, host ports, replicas.
        preferred_nodes: (weight 1..100, term) of preferred node affinity.
        claims: Names of the volume claims that it mounts, sorted; read of gated pods alone.
        moving_to: The moving-to annotation, parsed: the berth that its successor gets; None = it is not being moved.
        moving_by: By which way it is being moved, as written; "" = it is not.
        moved_from: uid of the pod whose place it takes; "" = nobody's.
        deletion_cost: The annotation by which its controller chooses who goes, as written; "" = none.
        seat: The seat annotation of a gated pod, parsed: the berth that is kept for it; None = none.
        gang: Whom it must be placed together with: the name in its gang label, or podgroup/NAME; "" = nobody.
        gang_size: How many members its label says the gang has; 0 = not said by a label.
        never_preempts: Nobody may be made to go for its sake (spec.preemptionPolicy Never).
        unmodelled: Constraints that can make kube-scheduler refuse a node and that the planner does not model.
        affinity_depth: How much of spec.affinity.nodeAffinity.required... exists: 0 nothing, 1 affinity, 2 node
            affinity, 3 its required part. A JSON patch needs to know.
        has_annotations: Whether metadata.annotations exists beside `seat`, for the same reason: without its last entry
            the API drops it.
        is_ready: Its condition Ready is True.
        keeps_still: Its annotations say that nobody may move it (fleet/labels.py, `KEEP_STILL`).
        images: Images of its containers as they are written, sorted; read of gated pods alone.
        has_drawn: Whether it says already how its draw from a warm pool ended (fleet/draw.py); of gated pods alone.
        is_applied: Whether anybody owns fields of it by server-side apply; read of gated pods alone.
        has_claims: Whether it has claims on devices (DRA).
        resource_claims: Its claims on devices (DRA).
        problems: Why this pod cannot be read (malformed request or record); such a pod is never planned.
        record_problem: The one of `problems` about the devices or candidates annotation; "" = none. Nobody knows what
            such a pod holds, so its node gives no devices.
    """

    uid: str
    namespace: str = "default"
    name: str
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at_s: float = 0.0
    scheduler_name: str = "default-scheduler"
    phase: Phase = Phase.PENDING
    node_name: str = ""
    is_terminating: bool = False
    is_unschedulable: bool = False
    says_waiting: bool = False
    priority: int = 0
    gates: tuple[str, ...] = ()
    requests: Resources = Resources(pod_slots=1)
    ask: DeviceAsk | None = None
    constraints: NodeConstraints = NodeConstraints()
    owner: Owner | None = None
    pinned_node: str = ""
    is_pin_ours: bool = False
    devices: tuple[str, ...] | None = None
    candidates: tuple[Berth, ...] = ()
    guest: Guest = NOBODY
    preferred_nodes: tuple[tuple[int, NodeTerm], ...] = ()
    claims: tuple[str, ...] = ()
    seat: Berth | None = None
    moving_to: Berth | None = None
    moving_by: str = ""
    moved_from: str = ""
    deletion_cost: str = ""
    gang: str = ""
    gang_size: int = 0
    never_preempts: bool = False
    unmodelled: tuple[str, ...] = ()
    affinity_depth: int = 0
    has_annotations: bool = False
    is_ready: bool = False
    keeps_still: bool = False
    images: tuple[str, ...] = ()
    has_drawn: bool = False
    is_applied: bool = False
    has_claims: bool = False
    resource_claims: tuple[PodClaim, ...] = ()
    problems: tuple[str, ...] = ()
    record_problem: str = ""

    @property
    def key(self) -> str:
        """Return namespace/name, for people."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_live(self) -> bool:
        """Return True while the pod can hold a berth: not terminal; a terminating pod still holds its own."""
        return not self.phase.is_terminal
