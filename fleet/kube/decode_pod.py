"""A v1 Pod to a `Pod`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache

from fleet import berths, labels
from fleet.constraints import NodeConstraints, NodeTerm, Requirement, Toleration
from fleet.dra import PodClaim
from fleet.errors import DecodeError
from fleet.kube.asks import ask_of
from fleet.kube.company import MOST_RULES, guest_of, has_too_many_rules, preferred_nodes
from fleet.kube.decode_gang import gang_of, seat_of
from fleet.kube.decode_move import moving_to_of
from fleet.kube.objects import (
    AffinityObject,
    MetaObject,
    NodeSelectorObject,
    PodObject,
    PodSpecObject,
    RequirementObject,
    SpreadObject,
    TolerationObject,
    VolumeObject,
)
from fleet.kube.requests import requests_of
from fleet.pod import Berth, Owner, Phase, Pod

_PHASES = {phase.value: phase for phase in Phase}


def pod_from(obj: PodObject) -> Pod:
    """Return the pod; what cannot be read stands in `problems`, never as zero or as absent."""
    meta, spec = obj.metadata, obj.spec
    annotations = meta.annotations
    requests = requests_of(spec)
    asked = ask_of(requests.devices, annotations)
    devices, candidates, record_problem = _record(annotations)
    affinity = spec.affinity
    required = _required(affinity)
    constraints, pinned_node = _constraints(
        tuple(sorted(spec.node_selector.items())) if spec.node_selector else (), required, spec.tolerations
    )
    gang, gang_size, gang_problems = gang_of(meta, spec)
    problems = requests.problems + asked.problems + gang_problems
    owner = _owner(meta)
    gates = tuple([gate.name for gate in spec.scheduling_gates]) if spec.scheduling_gates else ()
    seat = seat_of(annotations) if gates else None
    return Pod(
        uid=meta.uid,
        namespace=sys.intern(meta.namespace),
        name=meta.name,
        resource_version=meta.resource_version,
        labels=meta.labels or {},
        created_at_s=_epoch_s(meta.creation_timestamp) if meta.creation_timestamp else 0.0,
        scheduler_name=sys.intern(spec.scheduler_name or "default-scheduler"),
        phase=_phase(obj),
        node_name=sys.intern(spec.node_name or ""),
        is_terminating=meta.deletion_timestamp is not None,
        is_unschedulable=not spec.node_name and _is_unschedulable(obj),
        says_waiting=_says_waiting(obj),
        priority=spec.priority or 0,
        gates=gates,
        requests=requests.resources,
        ask=None if requests.problems else asked.ask,
        constraints=constraints,
        owner=owner,
        pinned_node=pinned_node,
        is_pin_ours=bool(pinned_node and annotations and annotations.get(labels.PINNED) == pinned_node),
        devices=devices,
        candidates=candidates,
        guest=guest_of(meta, spec, owner),
        preferred_nodes=preferred_nodes(affinity),
        claims=_claims(meta.name, spec) if gates else (),
        moving_to=moving_to_of(annotations),
        moving_by=annotations.get(labels.MOVING_BY, "") if annotations else "",
        moved_from=annotations.get(labels.MOVED_FROM, "") if annotations else "",
        deletion_cost=annotations.get(labels.POD_DELETION_COST, "") if annotations else "",
        seat=seat,
        gang=gang,
        gang_size=gang_size,
        never_preempts=spec.preemption_policy == "Never",
        unmodelled=asked.unmodelled + _unmodelled(meta, spec),
        affinity_depth=_depth(affinity, required),
        has_annotations=annotations is not None and (seat is None or len(annotations) > 1),
        is_ready=_is_ready(obj),
        keeps_still=bool(annotations) and _keeps_still(annotations or {}),
        images=_images(spec) if gates else (),
        has_drawn=bool(gates and annotations and labels.DRAW in annotations),
        is_applied=bool(gates) and any(one.operation == "Apply" for one in meta.managed_fields or ()),
        has_claims=bool(spec.resource_claims),
        resource_claims=_resource_claims(obj) if spec.resource_claims else (),
        problems=(*problems, record_problem) if record_problem else problems,
        record_problem=record_problem,
    )


def _phase(obj: PodObject) -> Phase:
    if obj.status is None or not obj.status.phase:
        return Phase.PENDING
    return _PHASES.get(obj.status.phase, Phase.UNKNOWN)


def _is_unschedulable(obj: PodObject) -> bool:
    conditions = obj.status.conditions if obj.status is not None else None
    return any(
        c.type == "PodScheduled" and c.status == "False" and c.reason == "Unschedulable" for c in conditions or ()
    )


def _says_waiting(obj: PodObject) -> bool:
    conditions = obj.status.conditions if obj.status is not None else None
    return any(c.type == labels.WAITING_CONDITION and c.status == "True" for c in conditions or ())


def _is_ready(obj: PodObject) -> bool:
    conditions = obj.status.conditions if obj.status is not None else None
    return any(c.type == "Ready" and c.status == "True" for c in conditions or ())


def _keeps_still(annotations: Mapping[str, str]) -> bool:
    return any(annotations.get(name) == text for name, text in labels.KEEP_STILL)


def _epoch_s(text: str) -> float:
    """Return an RFC 3339 time in seconds since the epoch; 0.0, the oldest, where it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return moment.timestamp() if moment.tzinfo is not None else 0.0


def _resource_claims(obj: PodObject) -> tuple[PodClaim, ...]:
    """Return the pod's claims; one from a template has its name in the status as soon as it is made."""
    statuses = obj.status.resource_claim_statuses if obj.status is not None else None
    made = {status.name: status.resource_claim_name for status in statuses or ()}
    return tuple(
        PodClaim(
            name=one.name,
            claim=one.resource_claim_name or made.get(one.name) or "",
            is_none=not one.resource_claim_name and one.name in made and not made[one.name],
            template=one.resource_claim_template_name or "",
        )
        for one in obj.spec.resource_claims or ()
    )


def _owner(meta: MetaObject) -> Owner | None:
    for reference in meta.owner_references or ():
        if reference.controller:
            return Owner(kind=sys.intern(reference.kind), name=reference.name, uid=reference.uid)
    return None


def _images(spec: PodSpecObject) -> tuple[str, ...]:
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    return tuple(sorted({sys.intern(container.image) for container in containers if container.image}))


def _record(annotations: Mapping[str, str] | None) -> tuple[tuple[str, ...] | None, tuple[Berth, ...], str]:
    """Return devices, candidates and why either cannot be read."""
    if not annotations or (labels.DEVICES not in annotations and labels.CANDIDATES not in annotations):
        return None, (), ""
    devices: tuple[str, ...] | None = None
    candidates: tuple[Berth, ...] = ()
    try:
        if labels.DEVICES in annotations:
            devices = berths.parse_devices(annotations[labels.DEVICES])
        if labels.CANDIDATES in annotations:
            candidates = berths.parse_candidates(annotations[labels.CANDIDATES])
    except DecodeError as error:
        return None, (), str(error)
    return devices, candidates, ""


def _required(affinity: AffinityObject | None) -> NodeSelectorObject | None:
    if affinity is None or affinity.node_affinity is None:
        return None
    return affinity.node_affinity.required_during_scheduling_ignored_during_execution


def _depth(affinity: AffinityObject | None, required: NodeSelectorObject | None) -> int:
    if affinity is None:
        return 0
    if affinity.node_affinity is None:
        return 1
    return 2 if required is None else 3


@lru_cache(maxsize=8192)
def _constraints(
    node_selector: tuple[tuple[str, str], ...],
    required: NodeSelectorObject | None,
    tolerations: tuple[TolerationObject, ...] | None,
) -> tuple[NodeConstraints, str]:
    """Return the constraints and the one node they name; pods of one template share them."""
    terms: tuple[NodeTerm, ...] | None = None
    if required is not None:
        terms = tuple(
            NodeTerm(labels=_requirements(term.match_expressions), fields=_requirements(term.match_fields))
            for term in required.node_selector_terms or ()
        )
    constraints = NodeConstraints(
        node_selector=node_selector,
        terms=terms,
        tolerations=tuple(
            Toleration(key=t.key or "", operator=t.operator or "Equal", value=t.value or "", effect=t.effect or "")
            for t in tolerations or ()
        ),
    )
    return constraints, _pinned_node(terms or ())


def _requirements(objects: tuple[RequirementObject, ...] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(key=r.key, operator=r.operator, values=r.values or ()) for r in objects or ())


def _pinned_node(terms: tuple[NodeTerm, ...]) -> str:
    """Return the node that every term names by metadata.name, alone; "" if they leave a choice.

    A term without requirements matches no node and leaves none.
    """
    named = {_named_node(term) for term in terms if term.labels or term.fields}
    return named.pop() if len(named) == 1 else ""


def _named_node(term: NodeTerm) -> str:
    names = {
        r.values[0]
        for r in term.fields
        if r.key == labels.NODE_NAME_FIELD and r.operator == "In" and len(r.values) == 1
    }
    return names.pop() if len(names) == 1 else ""


def _unmodelled(meta: MetaObject, spec: PodSpecObject) -> tuple[str, ...]:
    """Name everything that can make kube-scheduler refuse a node and that the planner does not model."""
    names: list[str] = []
    if spec.workload_ref is not None:
        names.append("gang (spec.workloadRef)")
    if any(_is_hollow_when_pinned(spread) for spread in spec.topology_spread_constraints or ()):
        names.append("hard topology spread with minDomains")
    if has_too_many_rules(spec):
        names.append(f"more than {MOST_RULES} rules about other pods")
    if spec.affinity is not None and _selects_namespaces(spec.affinity):
        names.append(labels.NAMESPACE_SELECTORS)
    if spec.volumes:
        names += _tying_volumes(spec.volumes)
    return tuple(names)


def _is_hollow_when_pinned(spread: SpreadObject) -> bool:
    """Return True if kube-scheduler would judge a pinned pod by its one node: there are fewer domains than wanted then.

    By default only nodes that the pod's node affinity allows count as domains, and a pin allows one.
    """
    is_hard = spread.when_unsatisfiable == "DoNotSchedule"
    return is_hard and (spread.min_domains or 1) > 1 and spread.node_affinity_policy != "Ignore"


def _selects_namespaces(affinity: AffinityObject) -> bool:
    """Return True if a required rule reads the labels of namespaces, which a planner may not be let see."""
    kinds = (affinity.pod_affinity, affinity.pod_anti_affinity)
    terms = (term for kind in kinds if kind for term in kind.required_during_scheduling_ignored_during_execution or ())
    selectors = (term.namespace_selector for term in terms)
    return any(one is not None and bool(one.match_labels or one.match_expressions) for one in selectors)


def _tying_volumes(volumes: tuple[VolumeObject, ...]) -> list[str]:
    names: list[str] = []
    if any(volume.persistent_volume_claim or volume.ephemeral for volume in volumes):
        names.append(labels.VOLUME_CLAIMS)
    if any(v.aws_elastic_block_store or v.gce_persistent_disk or v.iscsi or v.rbd for v in volumes):
        names.append("disk volumes")
    return names


def _claims(pod: str, spec: PodSpecObject) -> tuple[str, ...]:
    """Return the names of the volume claims that the pod mounts; an ephemeral volume's is made of both names."""
    found = {v.persistent_volume_claim.claim_name for v in spec.volumes or () if v.persistent_volume_claim is not None}
    found.update(f"{pod}-{volume.name}" for volume in spec.volumes or () if volume.ephemeral is not None)
    return tuple(sorted(found))
