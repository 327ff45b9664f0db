"""One Kubernetes node as the planner sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.constraints import Taint
from fleet.device import Device
from fleet.resources import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's identity, rules, allocatable amounts and devices.

    Attributes:
        name: metadata.name, the only identity a pin may use; the hostname label is something else.
        allocatable: What pods may use, nvidia.com/gpu among `extended` where the node advertises it.
        devices: Current inventory, ordered; on a classic node the ids are mere counters.
        is_sharing: Labelled for shares and chosen whole devices; takes no nvidia.com/gpu pods.
        device_problems: Why no device of this node may be given now (a dead card nobody can name, say); empty = fine.
        pool: The warm pool whose taint it carries; "" = none.
        warm: Text of the annotation that opens it to claims: what is proven to be there; "" = not open.
        claim: Text of the claim on it (fleet/claim.py); "" = none.
        is_spare: The planner says that everything on it fits elsewhere (annotation berthmaster.dev/spare).
        is_kept: A person wants it left alone (annotation berthmaster.dev/keep).
        closing: Why its pool gives it up; "" = it does not.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    is_cordoned: bool = False
    allocatable: Resources = Resources()
    devices: tuple[Device, ...] = ()
    is_sharing: bool = False
    device_problems: tuple[str, ...] = ()
    pool: str = ""
    warm: str = ""
    claim: str = ""
    is_spare: bool = False
    is_kept: bool = False
    closing: str = ""
