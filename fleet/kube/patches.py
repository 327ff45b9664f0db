"""The patches that gate, pin, steer and explain a pod. Pure: a pod as read goes in, JSON bytes come out.

JSON patches (RFC 6902) test what they rely on, so that a pod replaced or changed meanwhile answers 422 and nothing
happens: the uid, and the gate at the position where it was read. Only our own gate is ever removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from fleet import labels
from fleet.berths import format_candidates, format_devices
from fleet.constraints import NodeTerm, Toleration
from fleet.errors import DecodeError
from fleet.pod import Berth, Pod

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

Operation = dict[str, Any]

_REQUIRED_PART = "requiredDuringSchedulingIgnoredDuringExecution"
_REQUIRED = f"/spec/affinity/nodeAffinity/{_REQUIRED_PART}"
# One empty entry: the API server's word for "keep no record of managers" (Kubernetes docs, Server-Side Apply, "Clearing
# managedFields"). Whoever applies such an object first finds all fields owned by the manager `before-first-apply`.
_FORGET_MANAGERS: Operation = {"op": "add", "path": "/metadata/managedFields", "value": [{}]}
_encode = msgspec.json.encode


def pin_patch(
    pod: Pod, berth: Berth, *, annotations: Mapping[str, str] | None = None, tolerations: Sequence[Toleration] = ()
) -> bytes:
    """Return the one JSON patch that writes the berth down, pins the pod to its node and lets the scheduler have it.

    It also ends the book-keeping of who wrote which field (`managedFields`), which only server-side apply reads: unless
    somebody applied the pod, nobody is ever asked for it, and keeping it is a third of what the patch costs the API
    server, a third of the pod's size in every watch and cache, and part of every later write by the kubelet.

    Args:
        pod: The pod as read; its gates, terms, affinity_depth and has_annotations shape the patch.
        berth: Node to pin to, noted as ours, and the devices to record there; no devices, no devices annotation.
        annotations: More annotations to set.
        tolerations: Tolerations to add (for the taint of a warm node's pool, say).

    Raises:
        DecodeError: The pod does not carry our gate, or the berth could not be read back from the annotation.
    """
    notes = {**(annotations or {}), labels.PINNED: berth.node}
    if berth.devices:
        notes[labels.DEVICES] = format_devices(berth.devices)
    return _encode(
        [
            *_guards(pod),
            *_annotate(pod, notes),
            *_tolerate(pod, tolerations),
            *_pin(pod, berth.node),
            _ungate(pod),
            *([] if pod.is_applied else [_FORGET_MANAGERS]),
        ]
    )


def candidates_patch(
    pod: Pod,
    candidates: Sequence[Berth],
    *,
    annotations: Mapping[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
) -> bytes:
    """Return the JSON patch that ungates a pod un-pinned, with the berths Filter may steer it to.

    Args:
        pod: The pod as read.
        candidates: In order of preference.
        annotations: More annotations to set.
        tolerations: Tolerations to add.

    Raises:
        DecodeError: The pod does not carry our gate, or the candidates could not be read back.
    """
    notes = {**(annotations or {}), labels.CANDIDATES: format_candidates(candidates)}
    return _encode([*_guards(pod), *_annotate(pod, notes), *_tolerate(pod, tolerations), _ungate(pod)])


def seat_patch(pod: Pod, berth: Berth) -> bytes:
    """Return the JSON patch that writes down which berth is kept for a gated pod, if it still is gated.

    Raises:
        DecodeError: The pod does not carry our gate, or the berth could not be read back.
    """
    return _encode([*_guards(pod), *_annotate(pod, {labels.SEAT: format_candidates((berth,))})])


def unseat_patch(pod: Pod) -> bytes:
    """Return the JSON patch that takes the seat of a gated pod back.

    Raises:
        DecodeError: The pod does not carry our gate.
    """
    return _encode([*_guards(pod), {"op": "remove", "path": f"/metadata/annotations/{_escape(labels.SEAT)}"}])


def notes_patch(pod: Pod, notes: Mapping[str, str], *, absent: Iterable[str] = ()) -> bytes:
    """Return the JSON patch that sets annotations of this very pod, if it has none of those in `absent`."""
    guards: list[Operation] = [{"op": "test", "path": "/metadata/uid", "value": pod.uid}]
    if _has_annotations(pod):  # else there must be none at all, and what is tested in nothing fails
        guards += [_absent(f"/metadata/annotations/{_escape(name)}") for name in absent]
    return _encode([*guards, *_annotate(pod, notes)])


def ungate_patch(pod: Pod) -> bytes:
    """Return the JSON patch that removes our gate and nothing else: hand-over, release, uninstall.

    Raises:
        DecodeError: The pod does not carry our gate.
    """
    return _encode([*_guards(pod), _ungate(pod)])


def condition_patch(
    kind: str,
    *,
    status: bool,
    reason: str,
    message: str,
    at: str,
    uid: str = "",
    annotations: Mapping[str, str] | None = None,
) -> bytes:
    """Return the strategic merge patch of /status that sets one pod condition and leaves the others alone.

    Args:
        kind: Condition type, merged by it.
        status: Whether the condition holds.
        reason: CamelCase word.
        message: Text for people, with the numbers.
        at: RFC 3339 time of the transition.
        uid: Of the pod that is meant; one that took over its name is then left alone. "" = whoever has the name.
        annotations: To set in the same write; /status takes a pod's annotations as well.
    """
    condition = {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": at,
    }
    meta: dict[str, Any] = {"uid": uid} if uid else {}
    if annotations:
        meta["annotations"] = dict(annotations)
    guard = {"metadata": meta} if meta else {}
    return _encode({**guard, "status": {"conditions": [condition]}})


def _guards(pod: Pod) -> list[Operation]:
    return [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": f"/spec/schedulingGates/{_gate_position(pod)}/name", "value": labels.PLAN_GATE},
    ]


def _ungate(pod: Pod) -> Operation:
    return {"op": "remove", "path": f"/spec/schedulingGates/{_gate_position(pod)}"}


def _gate_position(pod: Pod) -> int:
    if labels.PLAN_GATE not in pod.gates:
        raise DecodeError(f"pod {pod.key} does not carry the gate {labels.PLAN_GATE}")
    return pod.gates.index(labels.PLAN_GATE)


def _annotate(pod: Pod, notes: Mapping[str, str]) -> list[Operation]:
    if not notes:
        return []
    if not _has_annotations(pod):
        return [
            _absent("/metadata/annotations"),
            {"op": "add", "path": "/metadata/annotations", "value": dict(notes)},
        ]
    return [
        {"op": "add", "path": f"/metadata/annotations/{_escape(name)}", "value": value} for name, value in notes.items()
    ]


def _has_annotations(pod: Pod) -> bool:
    return pod.has_annotations or pod.seat is not None


def _absent(path: str) -> Operation:
    """Guard an `add` that makes something anew: what somebody else put there meanwhile must not be replaced."""
    return {"op": "test", "path": path, "value": None}


def _tolerate(pod: Pod, tolerations: Sequence[Toleration]) -> list[Operation]:
    values = [
        {name: value for name, value in asdict(toleration).items() if value or name == "operator"}
        for toleration in tolerations
    ]
    if not values:
        return []
    if not pod.constraints.tolerations:
        return [_absent("/spec/tolerations"), {"op": "add", "path": "/spec/tolerations", "value": values}]
    return [{"op": "add", "path": "/spec/tolerations/-", "value": value} for value in values]


def _pin(pod: Pod, node: str) -> list[Operation]:
    pin = {"key": labels.NODE_NAME_FIELD, "operator": "In", "values": [node]}
    if pod.constraints.terms is None:
        path, value = _NEW_AFFINITY[pod.affinity_depth]([pin])
        return [{"op": "add", "path": path, "value": value}]
    # An empty term matches no node, and the API lets nobody add to it.
    pins = [
        {"op": "add", "path": f"{_REQUIRED}/nodeSelectorTerms/{position}/matchFields/-", "value": pin}
        if term.fields
        else {"op": "add", "path": f"{_REQUIRED}/nodeSelectorTerms/{position}/matchFields", "value": [pin]}
        for position, term in enumerate(pod.constraints.terms)
        if not _is_empty(term)
    ]
    if not pins:
        raise DecodeError(f"pod {pod.key} has a required node affinity that matches no node; it cannot be pinned")
    return pins


def _required(fields: list[Operation]) -> Operation:
    return {"nodeSelectorTerms": [{"matchFields": fields}]}


# What to add where, by how much of the affinity exists already (Pod.affinity_depth).
_NEW_AFFINITY: dict[int, Callable[[list[Operation]], tuple[str, Operation]]] = {
    0: lambda fields: ("/spec/affinity", {"nodeAffinity": {_REQUIRED_PART: _required(fields)}}),
    1: lambda fields: ("/spec/affinity/nodeAffinity", {_REQUIRED_PART: _required(fields)}),
    2: lambda fields: (_REQUIRED, _required(fields)),
}


def _is_empty(term: NodeTerm) -> bool:
    return not term.labels and not term.fields


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
