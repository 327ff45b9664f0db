"""Two planners at once, killed between any two writes: no pod goes to a warm node that is not claimed for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.controller.writer import Outcome
from binpack.controller.yard import Yard
from fleet import labels
from fleet.claim import parse_claim, read_claim, unclaim_patch
from fleet.constraints import Taint
from fleet.kube import paths
from fleet.node import Node
from fleet.pod import Pod
from tests.support.builders import a_node, a_pod
from tests.support.claims import Nodes
from tests.support.clock import ManualClock, settle
from tests.support.planning import Bridge, FakeWriter, running


class Turns:
    """Lets other coroutines run for as many turns as the test says, before and after each write."""

    def __init__(self, hops: Sequence[int]) -> None:
        self._hops = hops
        self._count = 0

    async def __call__(self) -> None:
        self._count += 1
        for _ in range(self._hops[self._count % len(self._hops)]):
            await settle(1)


class SlowNodes(Nodes):
    """The nodes of the cluster, reached after some turns."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    async def json_patch(self, path: str, body: bytes) -> bytes:
        await self._turns()
        try:
            return await super().json_patch(path, body)
        finally:
            await self._turns()


class SlowWriter(FakeWriter):
    """The pods of the cluster; notes of each pin what stood on the node at that moment."""

    def __init__(self, pods: dict[str, Pod], api: Nodes, turns: Turns) -> None:
        super().__init__(ManualClock())
        self.pods = pods
        self.pins: list[tuple[str, str, str]] = []
        self._api = api
        self._turns = turns

    async def _call(self, verb: str, pod: Pod, what: Any, changes: dict[str, Any]) -> tuple[Outcome, str]:
        await self._turns()
        was_gated = labels.PLAN_GATE in self.pods[pod.uid].gates
        answer = await super()._call(verb, pod, what, changes)
        if verb == "pin" and was_gated and answer[0] is Outcome.DONE:
            self.pins.append((pod.uid, what.node, self._api.claim_of(what.node)))
        await self._turns()
        return answer


def _warm(name: str, gpus: int) -> Node:
    node = a_node(name, gpus=gpus, is_sharing=False, taints=(Taint(key=labels.POOL, value="g1"),))
    return replace(node, pool="g1", warm="img")


def _check(pods: dict[str, Pod], writers: Sequence[SlowWriter], gpus: int) -> None:
    pins = [pin for writer in writers for pin in writer.pins]
    for uid, node, text in pins:
        claim = parse_claim(text)
        assert claim.is_firm, f"{uid} went to {node} on a soft claim"
        assert uid in claim.pods, f"{uid} went to {node}, which is claimed for {claim.pods}"
    assert len({uid for uid, _, _ in pins}) == len(pins), "a pod was pinned twice"
    load = Counter(pod.pinned_node for pod in pods.values() if pod.pinned_node)
    assert all(count <= gpus for count in load.values()), load


async def _lapse(api: Nodes, pods: dict[str, Pod]) -> None:
    """Do what the pool's controller does once claims have lapsed: only claims of pods that are there stay."""
    used = {pod.pinned_node for pod in pods.values()}
    for name in api.objects:
        text = api.claim_of(name)
        if text and name not in used:
            await Nodes.json_patch(api, paths.node(name), unclaim_patch(f"uid-{name}", text))


def _fresh(api: Nodes, gpus: int) -> list[Node]:
    return [replace(_warm(name, gpus), claim=api.claim_of(name)) for name in api.objects]


async def _story(hops: list[int], gpus: int, count: int, theirs: int, kill_at: int | None, lost: int) -> None:
    turns = Turns(hops)
    api = SlowNodes(turns)
    api.lose = lost
    for name in ("w1", "w2"):
        api.show(_warm(name, gpus))
    pods = {f"uid-p{i}": replace(a_pod(f"p{i}", classic=1), images=("img",)) for i in range(count)}
    writers = [SlowWriter(pods, api, turns) for _ in range(3)]
    nodes = _fresh(api, gpus)

    async with running(nodes, api=api, writer=writers[1], yard=Yard("b")) as second:
        async with running(nodes, api=api, writer=writers[0], yard=Yard("a")) as first:
            await _both(first, second, pods, theirs, kill_at)
        _check(pods, writers, gpus)
        await settle(600)
    # Whoever leads next finds what they left behind.
    async with running(api=api, writer=writers[2], yard=Yard("c")) as third:
        third.world.nodes.is_new = True
        third.catch_up()
        third.add_nodes(*_fresh(api, gpus))
        await third.pass_s(1)
        await settle(600)
        _check(pods, writers, gpus)
        await _lapse(api, pods)
        third.catch_up()
        third.catch_up_nodes()
        await third.pass_s(30)
        await settle(600)
        third.catch_up()
        third.catch_up_nodes()
        await third.pass_s(30)
    _check(pods, writers, gpus)
    for name in api.objects:
        claim = read_claim(api.claim_of(name))
        goers = {uid for uid, pod in pods.items() if pod.pinned_node == name}
        assert claim is None or goers & set(claim.pods), f"{name} is claimed and nobody goes there"
    placed = sum(bool(pod.pinned_node) for pod in pods.values())
    assert placed == min(count, 2 * gpus), "somebody waits beside an open node"


async def _both(first: Bridge, second: Bridge, pods: dict[str, Pod], theirs: int, kill_at: int | None) -> None:
    """Let the first plan all pods and the second some, each seeing the nodes' claims now and then."""
    first.see(*pods.values())
    second.see(*list(pods.values())[theirs:])
    left = 400 if kill_at is None else kill_at
    while left > 0:
        for bridge in (first, second):
            await bridge.clock.advance(0.05)
        await settle(min(left, 20))
        left -= 20
        first.catch_up_nodes()
        second.catch_up_nodes()


@settings(max_examples=60, deadline=None)
@given(
    hops=st.lists(st.integers(0, 7), min_size=1, max_size=30),
    gpus=st.integers(1, 3),
    count=st.integers(1, 5),
    theirs=st.integers(0, 4),
    kill_at=st.none() | st.integers(0, 120),
    lost=st.integers(0, 2),
)
def test_no_pod_goes_where_it_has_no_claim_and_nobody_is_left_behind(
    hops: list[int], gpus: int, count: int, theirs: int, kill_at: int | None, lost: int
) -> None:
    asyncio.run(_story(hops, gpus, count, theirs, kill_at, lost))
