"""The pods that matter to pools: who is on which node, who pulls, and who drew from a pool, with or without success."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet import labels
from fleet.draw import Draw, read_draw
from fleet.kube.requests import Requests, requests_of
from warmpool.nodes.reading import WarmPod, users


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One pod.

    Attributes:
        node: That it is bound or pinned to; "" = none.
        is_bound: It is bound there.
        is_user: It uses its node: no DaemonSet's, no static one, none of ours, and not ended.
        pool: The pool that its label names; "" = none.
        draw: How its draw from a pool ended, as the planner noted; None = it drew from none.
        owner: Kind and name of what would make it anew.
        requests: What it asks for, devices among them.
    """

    uid: str
    namespace: str
    name: str
    node: str
    is_bound: bool
    is_user: bool
    pool: str
    draw: Draw | None
    labels: Mapping[str, str]
    owner: tuple[str, str]
    requests: Requests

    @property
    def key(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PullerView:
    """One pod of ours that pulls images onto a node and holds them there."""

    pool: str
    node: str
    pod: WarmPod


@dataclass(slots=True)
class PodBook:
    """Pods by node.

    Attributes:
        pods: Those that use a node or would.
        pullers: Our own.
    """

    pods: dict[str, PodView] = field(default_factory=dict)
    pullers: dict[str, PullerView] = field(default_factory=dict)
    _on: dict[str, dict[str, PodView]] = field(default_factory=dict)
    _pulling: dict[tuple[str, str], dict[str, PullerView]] = field(default_factory=dict)
    _drawn: dict[str, dict[str, PodView]] = field(default_factory=dict)
    _owned: dict[tuple[str, str, str], dict[str, PodView]] = field(default_factory=dict)

    def set(self, obj: WarmPod) -> tuple[PodView | None, PodView | None]:
        """Take a pod; returns what it was and what it is, None for what is of no interest."""
        uid = obj.metadata.uid
        before = self.remove(uid)
        marks = obj.metadata.labels or {}
        if labels.PULLER in marks:
            puller = PullerView(pool=marks.get(labels.POOL, ""), node=obj.spec.node_name or "", pod=obj)
            self.pullers[uid] = puller
            self._pulling.setdefault((puller.pool, puller.node), {})[uid] = puller
            return before, None
        view = view_of(obj)
        if not view.is_user:
            return before, None
        self.pods[uid] = view
        if view.node:
            self._on.setdefault(view.node, {})[uid] = view
        if view.draw is not None:
            self._drawn.setdefault(view.draw.pool, {})[uid] = view
        self._owned.setdefault((view.namespace, *view.owner), {})[uid] = view
        return before, view

    def remove(self, uid: str) -> PodView | None:
        """Forget a pod; returns what it was."""
        puller = self.pullers.pop(uid, None)
        if puller is not None:
            _drop(self._pulling, (puller.pool, puller.node), uid)
        view = self.pods.pop(uid, None)
        if view is None:
            return None
        if view.node:
            _drop(self._on, view.node, uid)
        if view.draw is not None:
            _drop(self._drawn, view.draw.pool, uid)
        _drop(self._owned, (view.namespace, *view.owner), uid)
        return view

    def on(self, node: str) -> tuple[str, ...]:
        """Return the UIDs of the pods that use a node, sorted."""
        return tuple(sorted(self._on.get(node, ())))

    def gone(self, uids: Iterable[str]) -> frozenset[str]:
        """Return those of these pods that are not there, or use no node any more."""
        return frozenset(uid for uid in uids if uid not in self.pods)

    def drawn(self, pool: str) -> Iterable[PodView]:
        """Return the pods that say how their draw from a pool ended."""
        return tuple(self._drawn.get(pool, {}).values())

    def missing(self, pool: str) -> Iterable[PodView]:
        """Return the pods that drew from a pool, missed, and still have no node."""
        return tuple(
            pod for pod in self._drawn.get(pool, {}).values() if pod.draw and not pod.draw.is_hit and not pod.node
        )

    def owners(self) -> Iterable[tuple[tuple[str, str, str], PodView]]:
        """Return namespace, kind and name of what makes pods, each with one of its pods."""
        return [(owner, next(iter(pods.values()))) for owner, pods in self._owned.items()]

    def of_pool(self, pool: str) -> Iterable[PullerView]:
        """Return our own pods of a pool."""
        return tuple(puller for puller in self.pullers.values() if puller.pool == pool)

    def pulling(self, pool: str, node: str) -> Iterable[PullerView]:
        """Return our own pods of a pool on a node."""
        return tuple(self._pulling.get((pool, node), {}).values())


def view_of(obj: WarmPod) -> PodView:
    """Return what matters of a pod."""
    meta = obj.metadata
    notes, marks = meta.annotations or {}, meta.labels or {}
    owner = next((owner for owner in meta.owner_references or () if owner.controller), None)
    return PodView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        node=obj.node,
        is_bound=bool(obj.spec.node_name),
        is_user=bool(users((obj,))),
        pool=marks.get(labels.POOL, ""),
        draw=read_draw(notes.get(labels.DRAW, "")),
        labels=marks,
        owner=(owner.kind, owner.name) if owner else ("", ""),
        requests=requests_of(obj.spec),
    )


def _drop(index: dict, key: object, uid: str) -> None:  # type: ignore[type-arg]
    found = index.get(key)
    if found is not None:
        found.pop(uid, None)
        if not found:
            del index[key]
