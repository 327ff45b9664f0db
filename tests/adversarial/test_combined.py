"""What storms found, each shrunk to the few things that it takes."""

from __future__ import annotations

from fleet.plan import Reason
from tests.support.builders import a_node, a_pod
from tests.support.planning import running


async def test_members_beyond_those_a_gang_needs_say_why_they_wait():
    async with running([a_node("n1", gpus=1)]) as bridge:
        bridge.see(*(a_pod(f"g{i}", whole=1, gang="g", gang_size=2) for i in range(3)))
        await bridge.pass_s(5)
        reasons = {name: bridge.world.waiting.get(f"uid-g{name}") for name in range(3)}
        assert {one.reason for one in reasons.values() if one} == {Reason.GANG_DOES_NOT_FIT}
        assert None not in reasons.values()
        assert bridge.recorder.reasons("g2") == ["GangDoesNotFit"]
