"""Reports from the field about gangs and preemption, replayed through the planner's shell."""

from __future__ import annotations

from dataclasses import replace

from fleet.pod import Phase
from tests.support.builders import a_node, a_pod
from tests.support.planning import Bridge, running


def held_by(bridge: Bridge, gang: str) -> int:
    """Count members that are pinned and have not ended."""
    return sum(
        bool(pod.pinned_node) and pod.is_live and pod.name.startswith(gang) for pod in bridge.writer.pods.values()
    )


async def test_two_gangs_one_cluster() -> None:
    """volcano-sh/volcano#3373: two jobs that each need every node get half of them each, and both wait for ever."""
    async with running([a_node(f"n{i}", gpus=1) for i in range(1, 5)]) as bridge:
        for name in ("a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"):
            bridge.see(a_pod(name, whole=1, gang=name[0], gang_size=4))
            await bridge.pass_s(0.01)
            assert {held_by(bridge, "a"), held_by(bridge, "b")} <= {0, 4}
        for _ in range(100):
            await bridge.pass_s(1)
            bridge.catch_up()
            assert {held_by(bridge, "a"), held_by(bridge, "b")} == {0, 4}
        placed, other = ("a", "b") if held_by(bridge, "a") else ("b", "a")
        assert [bridge.world.ledger.berth_of(f"uid-{other}{i}") for i in range(4)] == [None] * 4
        bridge.see(*(replace(bridge.writer.pods[f"uid-{placed}{i}"], phase=Phase.SUCCEEDED) for i in range(4)))
        await bridge.pass_s(2)
        bridge.catch_up()
        await bridge.pass_s(2)
        assert held_by(bridge, other) == 4


async def test_no_eviction_without_a_seat() -> None:
    """kubernetes-sigs/kueue#5243: eight cards could be freed, two on each of four nodes; the pods died for it."""
    async with running([a_node(f"n{i}", gpus=8) for i in range(1, 5)]) as bridge:
        for i in range(1, 5):
            node = f"n{i}"
            bridge.see(
                *(a_pod(f"hi-{node}-{j}", whole=1, node=node, devices=(str(j),), priority=100) for j in range(6))
            )
            bridge.see(*(a_pod(f"lo-{node}-{j}", whole=1, node=node, devices=(str(6 + j),)) for j in range(2)))
        bridge.see(a_pod("big", whole=8, priority=100))
        await bridge.pass_s(30)
        assert [call for call in bridge.writer.calls if call[0] in ("evict", "disrupt", "delete", "seat", "pin")] == []
        bridge.see(a_pod("small", whole=1, priority=100))
        await bridge.pass_s(3)
        victims = [uid for verb, uid, _ in bridge.writer.calls if verb == "evict"]
        assert len(victims) == 1
        assert victims[0].startswith("uid-lo-")
        bridge.lose(*victims)
        await bridge.pass_s(2)
        assert [uid for verb, uid, _ in bridge.writer.calls if verb == "pin"] == ["uid-small"]
        assert bridge.world.waiting.get("uid-big") is not None
