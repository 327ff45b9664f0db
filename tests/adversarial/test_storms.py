"""Everything at once and in any order: whatever happens to a cluster and its planners, the referee has no complaint."""

from __future__ import annotations

import pytest

from tests.support.storm.storm import Storm


@pytest.mark.parametrize("seed", range(20))
async def test_nothing_is_wrong_in_any_weather(seed: int) -> None:
    async with Storm(seed) as storm:
        for _ in range(60):
            await storm.step()
        await storm.calm()
