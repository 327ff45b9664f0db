"""A leader dies after any of its writes, whether or not the answer came; whoever takes over ends in the same place."""

from __future__ import annotations

import asyncio

import pytest

from binpack.controller.writer import Outcome
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod
from tests.support.clock import ManualClock
from tests.support.planning import FakeWriter, running

WRITES = 8


class Mortal(FakeWriter):
    """An API whose client dies after so many writes; the last one may have been taken all the same."""

    def __init__(self, clock, lives, *, is_last_taken):
        super().__init__(clock)
        self.lives = lives
        self._is_last_taken = is_last_taken

    async def _call(self, verb, pod, what, changes) -> tuple[Outcome, str]:
        if verb != "say":
            self.lives -= 1
            if self.lives < 0 or (self.lives == 0 and not self._is_last_taken):
                await asyncio.Event().wait()
        answer = await super()._call(verb, pod, what, changes)
        if verb != "say" and self.lives == 0:
            await asyncio.Event().wait()
        return answer


def nobody_shares(writer):
    held = [
        (pod.pinned_node or pod.node_name, device)
        for pod in writer.pods.values()
        if not pod.gates
        for device in pod.devices or ()
    ]
    assert len(set(held)) == len(held)


async def live(writer, seconds):
    """Run one leadership over the API's pods; evicted pods end after a while."""
    async with running([a_node("n1", gpus=2), a_node("n2", gpus=1)], writer=writer) as bridge:
        # What the API shows of pods comes in any order; a fresh leader lists them all before its first turn.
        for pod in list(writer.pods.values()):
            bridge.world.ledger.set_pod(pod)
            bridge.world.pod_seen(pod)
        bridge.turns.wake()
        for _ in range(seconds):
            await bridge.pass_s(1)
            gone = [uid for uid, pod in writer.pods.items() if pod.is_terminating]
            bridge.catch_up()
            nobody_shares(writer)
            await bridge.pass_s(0.5)
            bridge.lose(*gone)
            nobody_shares(writer)


@pytest.mark.parametrize("is_last_taken", [True, False])
@pytest.mark.parametrize("lives", range(1, WRITES + 1))
async def test_a_gang_that_preempts_stands_in_the_end_and_was_never_torn(lives, is_last_taken):
    writer = Mortal(ManualClock(), lives, is_last_taken=is_last_taken)
    for number in range(2):
        low = a_pod(f"low{number}", whole=1, node="n1", devices=(str(number),))
        writer.pods[low.uid] = low
    for number in range(3):
        member = a_pod(f"g{number}", whole=1, gang="g", gang_size=3, priority=9)
        writer.pods[member.uid] = member
    await live(writer, 6)
    pinned = [pod for pod in writer.pods.values() if pod.pinned_node]
    seated = [pod for pod in writer.pods.values() if pod.seat is not None]
    assert not pinned or len(seated) == 3, "no pin before all seats"
    writer.lives = 1000
    if len(seated) == 3:  # from then on nobody else has what is kept for them
        rival = a_pod("rival", whole=1, priority=9, created_at_s=1.0)
        writer.pods[rival.uid] = rival
    await live(writer, 20)
    placed = {
        pod.name: Berth(node=pod.pinned_node, devices=pod.devices) for pod in writer.pods.values() if pod.pinned_node
    }
    assert sorted(placed) == ["g0", "g1", "g2"]
    assert sum(verb == "evict" for verb, _, _ in writer.calls) <= 4


@pytest.mark.parametrize("is_last_taken", [True, False])
@pytest.mark.parametrize("lives", range(1, WRITES + 1))
async def test_a_gang_that_goes_for_a_pod_goes_as_a_whole_whoever_leads(lives, is_last_taken):
    writer = Mortal(ManualClock(), lives, is_last_taken=is_last_taken)
    for node in ("n1", "n2"):
        low = a_pod(f"low-{node}", whole=1, node=node, devices=("0",), gang="low", gang_size=2)
        writer.pods[low.uid] = low
    guard = a_pod("guard", whole=1, node="n1", devices=("1",), priority=9)
    urgent = a_pod("urgent", whole=1, priority=9)
    writer.pods |= {guard.uid: guard, urgent.uid: urgent}
    await live(writer, 6)
    writer.lives = 1000
    await live(writer, 20)
    assert sorted(pod.name for pod in writer.pods.values()) == ["guard", "urgent"]
    assert writer.pods["uid-urgent"].pinned_node
