"""The watcher of pools' nodes: each thing that must never be is named when it is, and a sound life is not."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec
import pytest

from fleet import labels
from fleet.claim import Claim, format_claim
from fleet.draw import format_draw, hit
from tests.support import warm_invariants as must
from tests.support.warm_invariants import PoolTruth, Seen, faults_of
from tests.support.warm_seen import SeenNode, SeenPod

POOL, IMAGE = "llm", "reg.example/rt@sha256:aa"
TRUTH = PoolTruth(name=POOL, devices=2, images=(IMAGE,), namespaces=frozenset({"serving"}))
READY = f"{labels.READINESS_PREFIX}{POOL}"
LATE_S = 30.0


@dataclass
class Tape:
    """Events as they come, a second apart; the node is warm at first, the pods are on it."""

    events: list[Seen] = field(default_factory=list)
    _version: count[int] = field(default_factory=lambda: count(1))

    def node(self, *, gone: bool = False, wait_s: float = 1.0, **parts: Any) -> Tape:
        notes = {labels.WARM: IMAGE} | parts.pop("notes", {})
        body = {
            "metadata": {
                "name": "n",
                "uid": "node-uid",
                "labels": {labels.POOL: POOL},
                "annotations": {key: text for key, text in notes.items() if text},
            },
            "spec": {"taints": [{"key": key} for key in parts.pop("taints", (labels.POOL,))]},
            "status": {
                "allocatable": {"pods": "8", labels.NVIDIA_GPU: parts.pop("gpus", "2")},
                "conditions": [{"type": "Ready", "status": parts.pop("ready", "True")}],
                "images": [{"names": parts.pop("images", [IMAGE])}],
            },
        }
        assert not parts
        return self._add(wait_s, node=msgspec.convert(body, SeenNode), is_gone=gone)

    def pod(self, name: str, *, gone: bool = False, leaving: bool = False, wait_s: float = 1.0, **parts: Any) -> Tape:
        requests = {labels.NVIDIA_GPU: parts.pop("gpus", "1")}
        body = {
            "metadata": {
                "name": name,
                "namespace": parts.pop("namespace", "serving"),
                "uid": f"{name}-uid",
                "annotations": {labels.DRAW: parts.pop("draw", "")},
            }
            | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}),
            "spec": {"nodeName": parts.pop("on", "n"), "containers": [{"resources": {"requests": requests}}]},
        }
        assert not parts
        return self._add(wait_s, pod=msgspec.convert(body, SeenPod), is_gone=gone)

    def _add(self, wait_s: float, **seen: Any) -> Tape:
        at_s = (self.events[-1].at_s if self.events else 0.0) + wait_s
        self.events.append(Seen(version=next(self._version), at_s=at_s, **seen))
        return self

    def kinds(self) -> list[str]:
        return [fault.kind for fault in faults_of(self.events, [TRUTH], late_s=LATE_S)]


def claimed(set_id: str, *pods: str, token: str = "") -> dict[str, str]:
    uids = tuple(f"{pod}-uid" for pod in pods)
    return {labels.CLAIM: format_claim(Claim(set_id=set_id, pods=uids, is_firm=True, token=token))}


HIT = format_draw(hit(POOL, "n"))


def test_a_sound_life_has_no_faults():
    life = Tape().node(notes={labels.WARM: ""}, taints=(labels.POOL, READY), images=[], gpus="0").node()
    life.node(notes=claimed("one", "a")).node(notes=claimed("one", "a", "b")).pod("a", draw=HIT).pod("b", draw=HIT)
    life.node(notes={labels.WARM: ""}).pod("a", gone=True).pod("b", gone=True).node(wait_s=100.0)
    life.node(notes=claimed("two", "c")).pod("c", draw=HIT).pod("c", gone=True)
    assert life.node(notes={labels.WARM: "", labels.CLOSING: "Surplus"}).node(gone=True).kinds() == []


STORIES: dict[str, tuple[Tape, str]] = {
    "a claim over another set's": (
        Tape().node(notes=claimed("one", "a")).node(notes=claimed("two", "b")),
        must.DOUBLE_CLAIM,
    ),
    "a draw of a node whose drawers are there": (
        Tape().node(notes=claimed("one", "a")).pod("a").node().node(notes=claimed("two", "b")),
        must.DOUBLE_CLAIM,
    ),
    "more devices given than there are": (
        Tape().node(notes={labels.WARM: ""}).pod("a").pod("b").pod("c"),
        must.OVER_ALLOCATED,
    ),
    "a stranger's pod": (Tape().node().pod("a", namespace="elsewhere"), must.STRANGER),
    "another pool's pod": (Tape().node().pod("a", draw=format_draw(hit("other", "m"))), must.STRANGER),
    "a pod before the node is ready": (Tape().node(notes={labels.WARM: ""}, taints=(READY,)).pod("a"), must.STRANGER),
    "open without its image": (Tape().node(images=["reg.example/rt@sha256:bb"]), must.UNPROVEN),
    "open without its devices": (Tape().node(gpus="1"), must.UNPROVEN),
    "open and not Ready": (Tape().node(ready="False"), must.UNPROVEN),
    "open with its readiness taint": (Tape().node(taints=(labels.POOL, READY)), must.UNPROVEN),
    "open long after the image went": (Tape().node().node(images=[]).node(images=[], wait_s=31.0), must.UNPROVEN),
    "proven, and the taint stays": (
        Tape()
        .node(notes={labels.WARM: ""}, taints=(READY,))
        .node(notes={labels.WARM: ""}, taints=(READY,), wait_s=31.0),
        must.TAINT_STAYS,
    ),
    "sent to an open node that no claim names it on": (
        Tape().node(notes=claimed("one", "a")).pod("b", draw=HIT, wait_s=9.0),
        must.UNCLAIMED,
    ),
    "deleted under a pod": (Tape().node().pod("a").node(gone=True), must.DELETED_IN_USE),
    "bound to a node that is gone": (Tape().node().node(gone=True).pod("a"), must.NO_NODE),
}


@pytest.mark.parametrize("story", STORIES)
def test_what_must_never_be_is_named(story):
    tape, kind = STORIES[story]
    assert tape.kinds() == [kind]


def test_what_is_being_put_right_is_no_fault():
    assert Tape().node().node(images=[]).node(notes={labels.WARM: ""}, images=[], wait_s=29.0).kinds() == []
    assert Tape().node().pod("a").pod("a", leaving=True).node(gone=True).kinds() == []
    assert Tape().node(notes={labels.WARM: ""}).node().pod("a", draw=HIT).kinds() == []


def test_the_order_is_the_apis_not_the_watches():
    tape = Tape().node().pod("a").pod("a", gone=True).node(gone=True)
    tape.events.insert(0, tape.events.pop())
    assert tape.kinds() == []
