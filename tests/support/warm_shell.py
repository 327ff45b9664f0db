"""The smallest controller there can be: lists everything, advances every node, writes what is wanted. For providers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from fleet.claim import unclaim_patch
from fleet.clock import SystemClock
from fleet.errors import Conflict, Invalid, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from warmpool.nodes.action import Action, Forget, Mark, Outcome, Pull, Release, Tell, Unclaim
from warmpool.nodes.advance import advance
from warmpool.nodes.limits import Limits
from warmpool.nodes.marks import mark_patch, tell_patch
from warmpool.nodes.puller import puller_name, puller_pod
from warmpool.nodes.reading import WarmNode, WarmPod, facts_from, puller_of, users
from warmpool.nodes.reconcile import PoolPlan, carried, reconcile
from warmpool.nodes.seen import NodeSeen
from warmpool.providers.breaker import Breakers
from warmpool.providers.provider import Machine, Provider
from warmpool.values import PoolNode, PoolSpec

T = TypeVar("T")
CLOCK = SystemClock()
TOOLS = Path(__file__).resolve().parents[2] / "tools"


class _Listed(msgspec.Struct, Generic[T]):
    items: list[T]


_nodes = msgspec.json.Decoder(_Listed[WarmNode]).decode
_pods = msgspec.json.Decoder(_Listed[WarmPod]).decode


class Shell:
    """One pool's controller, tick by tick."""

    def __init__(self, client: Client, provider: Provider, pool: PoolSpec, *, namespace: str, target: int) -> None:
        self.client = client
        self.provider = provider
        self.pool = pool
        self.namespace = namespace
        self.target = target
        self.limits = Limits(settle_s=0.5, retell_s=5.0, lost_s=3.0)
        self.is_retiring = False
        self.nodes: dict[str, PoolNode] = {}
        self.breakers = Breakers()
        self.news: list[Action] = []
        self._orders = 0
        self._nameless: dict[str, float] = {}

    async def tick(self) -> PoolPlan:
        """Look at everything, and do what follows."""
        await self.provider.turn()
        machines = {machine.name: machine for machine in await self.provider.list((self.pool,))}
        now_s = CLOCK.monotonic_s()
        for name, seen in (await self._seen(machines)).items():
            node = self.nodes.get(name) or PoolNode.found(name, now_s)
            node, actions = advance(seen, node, self.pool, now_s, self.limits)
            self.nodes[name] = node
            for action in actions:
                await self._carry_out(action, machines)
        plan = reconcile(
            self.pool,
            tuple(self.nodes.values()),
            self.target,
            now_s,
            breakers=self.breakers,
            limits=self.limits,
            capabilities=self.provider.capabilities(),
            is_retiring=self.is_retiring,
        )
        self.nodes = {node.name: node for node in carried(tuple(self.nodes.values()), plan)}
        for offer, count in plan.orders:
            self._orders += 1
            receipt = await self.provider.provision(self.pool, offer, count, f"k{self._orders}")
            self.breakers = self.breakers.ordered(self.pool.shape, offer, now_s)
            for name in receipt.names:
                self.nodes[name] = PoolNode.ordered(name, offer, now_s)
        if plan.resize is not None:
            await self.provider.resize(self.pool, plan.resize)
        return plan

    def states(self) -> list[str]:
        return sorted(node.state.value for node in self.nodes.values())

    def warm(self) -> list[PoolNode]:
        return sorted((node for node in self.nodes.values() if node.is_claimable), key=lambda node: node.name)

    async def _seen(self, machines: dict[str, Machine]) -> dict[str, NodeSeen]:
        nodes = {node.metadata.name: node for node in _nodes(await self.client.get(paths.NODES)).items}
        pods = _pods(await self.client.get(paths.PODS)).items
        seen: dict[str, NodeSeen] = {}
        named = {machine.node_name for machine in machines.values()} | {one.node_name for one in self.nodes.values()}
        orphans = {name for name, node in nodes.items() if node.pool == self.pool.name} - named - set(machines)
        now_s = CLOCK.monotonic_s()
        self._nameless = {name: self._nameless.get(name, now_s) for name in orphans}
        orphans = {name for name, since_s in self._nameless.items() if now_s - since_s > 3.0}
        for name in {*machines, *self.nodes, *orphans}:
            machine = machines.get(name)
            known = self.nodes.get(name)
            node_name = (machine.node_name if machine else "") or (known.node_name if known else name)
            node = nodes.get(node_name)
            if node is None:
                seen[name] = NodeSeen(machine=machine)
                continue
            there = [pod for pod in pods if pod.node == node_name]
            own = [pod for pod in there if pod.metadata.name == puller_name(self.pool, node_name)]
            seen[name] = NodeSeen(
                machine=machine,
                facts=facts_from(node, self.pool),
                pods=users(there),
                puller=puller_of(own[0] if own else None),
            )
        return seen

    async def _carry_out(self, action: Action, machines: dict[str, Machine]) -> None:
        with contextlib.suppress(Conflict, Invalid, NotFound):
            match action:
                case Mark():
                    await self.client.json_patch(paths.node(action.node), mark_patch(action))
                case Unclaim():
                    await self.client.json_patch(paths.node(action.node), unclaim_patch(action.uid, action.text))
                case Tell():
                    body = tell_patch(action, "2026-01-01T00:00:00Z")
                    await self.client.merge_patch(f"{paths.node(action.node)}/status", body, strategic=True)
                case Pull():
                    body = msgspec.json.encode(puller_pod(self.pool, action.node, namespace=self.namespace))
                    await self.client.create(paths.pods(self.namespace), body)
                case Release():
                    await self._release(action, machines)
                case Forget():
                    del self.nodes[action.name]
                case Outcome(why=None):
                    self.breakers = self.breakers.launched(self.pool.shape, action.offer, action.ordered_at_s)
                case Outcome():
                    assert action.why is not None
                    self.breakers = self.breakers.failed(
                        self.pool.shape,
                        action.offer,
                        action.ordered_at_s,
                        CLOCK.monotonic_s(),
                        action.why,
                        action.detail,
                    )
                    self.news.append(action)
                case _:
                    self.news.append(action)

    async def _release(self, release: Release, machines: dict[str, Machine]) -> None:
        if release.must_look:
            on_node = {"fieldSelector": f"spec.nodeName={release.node}"}
            if users(_pods(await self.client.get(paths.PODS, on_node)).items):
                node = self.nodes[release.name]
                self.nodes[release.name] = replace(node, release_told_s=None)
                return
        unknown = Machine(name=release.name, pool=self.pool.name, node_name=release.node)
        await self.provider.release(self.pool, machines.get(release.name, unknown))
        if release.node:
            await self.client.delete(paths.pod(self.namespace, puller_name(self.pool, release.node)), grace_s=0)


@cache
def module_folder(module: str) -> Path | None:
    """Return where a Go module of tools/crds lies, unpacked; None where it is not and cannot be fetched."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, json.JSONDecodeError):
        done = subprocess.run(
            ["go", "mod", "download", "-json", module],
            cwd=TOOLS / "crds",
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            env=_go_environment(),
        )
        return Path(json.loads(done.stdout)["Dir"])
    return None


def _go_environment() -> dict[str, str]:
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/go/bin"))
    return {**os.environ, "PATH": places, "GOFLAGS": "-mod=mod", "GOWORK": "off"}


def definition(path: Path) -> str:
    """Return a custom resource definition as it may be applied where no conversion webhook runs."""
    crd: dict[str, Any] = yaml.safe_load(path.read_text())
    crd["spec"].pop("conversion", None)
    return yaml.safe_dump(crd)
