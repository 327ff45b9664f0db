"""Pools, pods and agents as a controller reads them, in few words."""

from __future__ import annotations

from typing import Any

import msgspec

from fleet import labels
from tests.support.warming import a_pool
from warmpool.controller.agents import Agent, agent_of
from warmpool.controller.objects import AgentObject, PoolObject, ScalerObject
from warmpool.controller.world import Pool, World
from warmpool.nodes.reading import WarmNode, WarmPod

Object = dict[str, Any]


def read(obj: Object, kind: type) -> Any:
    return msgspec.json.decode(msgspec.json.encode(obj), type=kind)


def pool_object(
    name: str = "g1", *, generation: int = 1, uid: str = "", meta: Object | None = None, **spec: Any
) -> Any:
    obj = a_pool(name, **spec)
    obj["metadata"] |= {"uid": uid or f"uid-{name}", "generation": generation} | (meta or {})
    return read(obj, PoolObject)


def a_world(*names: str, **spec: Any) -> World:
    """Return a world with pools."""
    world = World()
    for name in names or ("g1",):
        world.set_pool(pool_object(name, **spec))
    return world


def pool_in(world: World, name: str = "g1") -> Pool:
    return world.pools[name]


def a_node(name: str, pool: str = "g1", **parts: Object) -> WarmNode:
    """Return a Node of a pool as the API shows it."""
    obj: Object = {"metadata": {"name": name, "uid": f"uid-{name}", "labels": {labels.POOL: pool}}}
    for part, value in parts.items():
        obj[part] = {**obj.get(part, {}), **value}
    return read(obj, WarmNode)


def a_pod(
    name: str,
    node: str = "",
    *,
    requests: Object | None = None,
    tags: dict[str, str] | None = None,
    notes: dict[str, str] | None = None,
    owner: tuple[str, str] | None = None,
    namespace: str = "shop",
    phase: str = "Running",
) -> WarmPod:
    meta: Object = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": tags, "annotations": notes}
    if owner is not None:
        meta["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    spec: Object = {"containers": [{"name": "main", "resources": {"requests": requests or {}}}]}
    if node:
        spec["nodeName"] = node
    return read({"metadata": meta, "spec": spec, "status": {"phase": phase}}, WarmPod)


def a_puller(name: str, node: str, pool: str = "g1") -> WarmPod:
    return a_pod(name, node, tags={labels.POOL: pool, labels.PULLER: "true"}, namespace=labels.PULL_NAMESPACE)


def an_agent(name: str, namespace: str = "kube-system", **spec: Any) -> Agent:
    return agent_of(
        read({"metadata": {"name": name, "namespace": namespace}, "spec": {"template": {"spec": spec}}}, AgentObject)
    )


def a_scaler(name: str = "llm", current: Any = 2, need: Any = (), **spec: Any) -> ScalerObject:
    target = {"kind": "Deployment", "name": name}
    obj = {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"targetRef": target} | spec,
        "status": {"currentReplicas": current, "need": list(need)},
    }
    return read(obj, ScalerObject)  # type: ignore[no-any-return]
