"""The values that all parts of the warm pool share: what a person asks for, and one node of the pool.

Times are seconds on the controller's own monotonic clock, noted when a change was seen; a time that another machine
wrote is never compared with them (kubernetes/kubernetes#6193).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fleet import labels
from fleet.claim import Claim
from fleet.constraints import Taint
from fleet.resources import Resources


class Mode(StrEnum):
    """Whether decisions are carried out or only told."""

    OBSERVE = "observe"
    ACT = "act"


class ProviderKind(StrEnum):
    """Who makes the nodes."""

    KWOK = "kwok"
    KARPENTER = "karpenter"
    CAPACITY_BUFFER = "capacitybuffer"
    MACHINE_DEPLOYMENT = "machinedeployment"
    ADOPT = "adopt"


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRate:
    """Keep this share of draws from missing: the smallest size that does so."""

    goal_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Weigh a missed draw against an idle node; any one currency."""

    per_miss: float
    per_idle_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Static:
    """Keep this many, whatever comes."""

    count: int


Objective = HitRate | Costs | Static


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One way to buy the shape; "" = the provider chooses. The unit of a capacity shortage."""

    zone: str = ""
    capacity_type: str = ""

    def __str__(self) -> str:
        """Return `zone/capacity type`, `any` standing for a free choice."""
        return f"{self.zone or 'any'}/{self.capacity_type or 'any'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What one node of the pool is.

    Attributes:
        instance_type: The provider's word for it; "" = any that has the resources.
        allocatable: What pods may use. Needed where we make the node (kwok) or ask for resources (karpenter).
        device_resource: Extended resource that its devices are advertised as.
        devices: How many of them must be allocatable before the node is of use; 0 = a node without devices.
        device_model: Product name that feature discovery would label, "" = unknown.
        labels: More labels for its nodes, sorted by name.
        offers: Zones and capacity types in order of preference; an order spills over to the next.
    """

    instance_type: str = ""
    allocatable: Resources = Resources()
    device_resource: str = labels.NVIDIA_GPU
    devices: int = 0
    device_model: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    offers: tuple[Offer, ...] = (Offer(),)

    @property
    def fingerprint(self) -> str:
        """Return a short text that differs for shapes whose nodes differ; offers are not part of it."""
        parts = (self.instance_type, self.allocatable, self.device_resource, self.devices, self.device_model)
        return hashlib.sha256(repr((*parts, self.labels)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image that must lie on the node.

    Attributes:
        reference: Repository with or without tag, as the replicas write it.
        digest: `sha256:…`; "" = not known, so the tag must do (and a moved tag goes unnoticed).
    """

    reference: str
    digest: str = ""

    @property
    def repository(self) -> str:
        """Return the reference without tag or digest."""
        name = self.reference.partition("@")[0]
        head, slash, last = name.rpartition("/")
        return f"{head}{slash}{last.partition(':')[0]}"

    @property
    def pinned(self) -> str:
        """Return what to pull and what to look for on the node: by digest where it is known, as kubelets list it."""
        digest = self.digest or self.reference.partition("@")[2]
        return f"{self.repository}@{digest}" if digest else self.reference


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSpec:
    """What a person says about one pool.

    Attributes:
        name: Of the WarmPool; stands in labels and taints.
        images: Images that must be there before a node is warm.
        pull_secrets: Secrets that the replicas pull with; the pool pulls with the same ones (the kubelet checks).
        models: Artifacts that must be fetched before a node is warm, as URLs.
        min_nodes: Fewest warm unclaimed nodes.
        max_nodes: Most nodes of the pool, claimed and serving ones included.
        objective: What the size is chosen by.
        provider: Who makes the nodes.
        provider_settings: What that provider needs to know (node class, name of a MachineDeployment, …), as text.
        mode: Whether to carry decisions out.
        expire_after_s: Age at which an unclaimed node is rotated out; None = never.
        surge_nodes: How many nodes rotation may add for a while.
        warm_timeout_s: A person's own bound from order to warm; None = learnt.
        idle_hour_cost: Cost of one idle node for an hour, 0 = not told.
    """

    name: str
    shape: Shape
    images: tuple[Image, ...] = ()
    pull_secrets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    min_nodes: int = 0
    max_nodes: int = 10
    objective: Objective = field(default_factory=lambda: HitRate(goal_ratio=0.99))
    provider: ProviderKind = ProviderKind.KWOK
    provider_settings: Mapping[str, str] = field(default_factory=dict)
    mode: Mode = Mode.OBSERVE
    expire_after_s: float | None = None
    surge_nodes: int = 1
    warm_timeout_s: float | None = None
    idle_hour_cost: float = 0.0

    @property
    def readiness_taint(self) -> Taint:
        """Return the taint that a node carries until it is proven warm."""
        return Taint(key=f"{labels.READINESS_PREFIX}{self.name}", effect="NoSchedule")

    @property
    def pool_taint(self) -> Taint:
        """Return the taint that keeps everybody else's pods off; the planner's pin brings the toleration."""
        return Taint(key=labels.POOL, value=self.name, effect="NoSchedule")


class NodeState(StrEnum):
    """How far one node is: the last step that is proven, in the order of its life."""

    ORDERED = "ordered"
    LAUNCHED = "launched"
    REGISTERED = "registered"
    DEVICES = "devices"
    IMAGES = "images"
    WARM = "warm"
    CLAIMED = "claimed"
    SERVING = "serving"
    RELEASING = "releasing"
    RELEASED = "released"
    FAILED = "failed"


COMING = frozenset(
    {NodeState.ORDERED, NodeState.LAUNCHED, NodeState.REGISTERED, NodeState.DEVICES, NodeState.IMAGES}
)  # ordered and not yet proven warm
GONE = frozenset({NodeState.RELEASED, NodeState.FAILED})


class Why(StrEnum):
    """Reasons: of a state, of an action, of the condition berthmaster.dev/Warm."""

    # What is missing before the node is warm.
    NOT_LAUNCHED = "NotLaunched"
    NOT_REGISTERED = "NotRegistered"
    NOT_READY = "NotReady"
    SILENT = "Silent"
    DEVICES_MISSING = "DevicesMissing"
    IMAGES_MISSING = "ImagesMissing"
    MODELS_MISSING = "ModelsMissing"
    CORDONED = "Cordoned"
    # What it is.
    PROVEN = "Proven"
    CLAIM_STANDS = "ClaimStands"
    PODS_HERE = "PodsHere"
    # Why it is given up.
    GOING = "Going"  # somebody else removes it
    WARM_TIMEOUT = "WarmTimeout"
    STEP_TIMEOUT = "StepTimeout"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    REFUSED = "Refused"
    VANISHED = "Vanished"
    SURPLUS = "Surplus"
    USELESS = "Useless"  # cordoned by somebody, empty, and not needed
    EXPIRING = "Expiring"
    DRIFTED = "Drifted"
    SPARE = "Spare"
    POOL_GONE = "PoolGone"
    # What undoes or follows.
    POD_CAME = "PodCame"
    CLAIM_CAME = "ClaimCame"
    WANTED_AGAIN = "WantedAgain"
    CLAIM_LAPSED = "ClaimLapsed"
    CLAIM_VOID = "ClaimVoid"
    CLAIM_SPENT = "ClaimSpent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNode:
    """One node of a pool as the controller knows it after a tick.

    Everything here can be seen again after a restart, but for the times, which then begin anew.

    Attributes:
        name: Of the machine that was ordered; of the node itself where nothing else stands for it.
        node_name: metadata.name of the Node; "" = there is none yet.
        state: Last proven step.
        why: What is missing, or why it is where it is.
        detail: The numbers behind `why`, for people.
        offer: What it was ordered as.
        shape: Fingerprint of the shape it was ordered as; "" = not told.
        ordered_at_s: When it was ordered, or first seen.
        state_since_s: When this state began.
        coming_since_s: When it was ordered, or when it last fell out of warm: what time-outs count from.
        born_at_s: When it was made; age is counted from here. Survives a restart: see NodeSeen.age_s.
        node_since_s: When the Node was first seen; None = never.
        warm_at_s: When it was first proven warm; None = never. `warm_at_s - ordered_at_s` is its lead time.
        expires_at_s: When it must be gone; None = never.
        devices: Allocatable devices; None = not announced.
        claim: The claim on it; None = none.
        claim_text: The annotation as read, "" = none: what a compare-and-swap compares with.
        claim_seen_s: When that text was first seen.
        arrived: The claim's pods that were seen on the node under that very text. All of them: the claim is spent.
        pods: UIDs of the pods that are bound or pinned to it, the pool's own and DaemonSets' left out.
        heartbeat: Last sign of life, as written by the node: only its changing means anything.
        heartbeat_seen_s: When it last changed.
        pulled_since_s: Since when the pulling pod says that it holds the images; None = it does not.
        is_cordoned: Somebody else closed it to pods.
        is_kept: A person wants it left alone.
        is_spare: The planner says that its pods fit elsewhere.
        close_why: Why it is being given up; None = it is not.
        closed_seen_s: When it was first seen closed to pods and claims; None = not closed.
        release_told_s: When its release was last asked for; None = never.
        is_ordered_here: This process ordered it, so that its times are known from the beginning.
        lost_since_s: Since when the provider no longer knows it, though the Node is there; None = it does.
        is_orphan: The provider never knew it, as long as this process watched. It is not counted on.
        is_placeholder: Nothing but a count stands behind it yet.
        uid: Of the Node.
    """

    name: str
    ordered_at_s: float
    state_since_s: float
    coming_since_s: float
    born_at_s: float
    node_name: str = ""
    uid: str = ""
    state: NodeState = NodeState.ORDERED
    why: Why = Why.NOT_LAUNCHED
    detail: str = ""
    offer: Offer = Offer()
    shape: str = ""
    node_since_s: float | None = None
    warm_at_s: float | None = None
    expires_at_s: float | None = None
    devices: int | None = None
    claim: Claim | None = None
    claim_text: str = ""
    claim_seen_s: float = 0.0
    arrived: frozenset[str] = frozenset()
    pods: tuple[str, ...] = ()
    heartbeat: str = ""
    heartbeat_seen_s: float = 0.0
    pulled_since_s: float | None = None
    is_cordoned: bool = False
    is_kept: bool = False
    is_spare: bool = False
    close_why: Why | None = None
    closed_seen_s: float | None = None
    release_told_s: float | None = None
    is_ordered_here: bool = False
    lost_since_s: float | None = None
    is_orphan: bool = False
    is_placeholder: bool = False

    @staticmethod
    def found(name: str, now_s: float, *, age_s: float | None = None) -> PoolNode:
        """Return a machine or node at its first sight; the age is what the API server's own clock tells of it."""
        born_at_s = now_s - max(0.0, age_s or 0.0)
        return PoolNode(name=name, ordered_at_s=now_s, state_since_s=now_s, coming_since_s=now_s, born_at_s=born_at_s)

    @staticmethod
    def ordered(name: str, offer: Offer, now_s: float) -> PoolNode:
        """Return a machine that this process has just ordered."""
        return replace(PoolNode.found(name, now_s), offer=offer, is_ordered_here=True)

    @property
    def is_coming(self) -> bool:
        """Return True while it is ordered and not proven warm."""
        return self.state in COMING

    @property
    def is_in_position(self) -> bool:
        """Return True if it counts as warm or coming: neither claimed, nor given up, nor closed, nor an orphan."""
        return self.is_idle and not self.is_cordoned and not self.is_orphan

    @property
    def is_idle(self) -> bool:
        """Return True if nobody uses it and nobody has spoken for it."""
        return self.is_coming or self.state is NodeState.WARM

    @property
    def is_claimable(self) -> bool:
        """Return True if a draw now would get it."""
        return self.state is NodeState.WARM and not self.is_cordoned

    @property
    def lead_s(self) -> float | None:
        """Return the seconds from order to warm; None where it was never proven warm, or ordered before a restart."""
        return self.warm_at_s - self.ordered_at_s if self.warm_at_s is not None and self.is_ordered_here else None
