"""Claims warm nodes for pods that are about to be pinned: softly first, then firmly, one draw of a node at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from weakref import WeakValueDictionary

from fleet.kube.claimer import Candidate, Claimer, Held
from fleet.node import Node

log = logging.getLogger(__name__)

# A firm claim has to stand until the pool's controller sees the pins: a few seconds. If this process dies in between,
# the node is lost to others for no longer than this.
_FIRM_S = 120


class Claims:
    """The planner's draws. Two draws of this planner on one node wait for each other: the second extends the claim."""

    def __init__(self, claimer: Claimer) -> None:
        self._claimer = claimer
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def secure(self, node: Node, set_id: str, pods: Sequence[str]) -> Held | None:
        """Return a firm claim on the node for these pods; None = somebody else has it, or it is closed.

        Raises:
            ApiError: The API server could not be asked; a claim that may have been written lapses.
        """
        lock = self._locks.setdefault(node.name, asyncio.Lock())
        async with lock:
            candidate = Candidate(name=node.name, uid=node.uid, warm=node.warm, claim=node.claim)
            answer = await self._claimer.draw(set_id, pods, [candidate])
            if not isinstance(answer, Held):
                log.info("warm node %s is not to be had: %s", node.name, ", ".join(loss for _, loss in answer.losses))
                return None
            return answer if answer.claim.is_firm else await self._claimer.confirm(answer, seconds=_FIRM_S)

    async def give_back(self, held: Held) -> None:
        """Give a node back that nobody goes to after all."""
        await self._claimer.give_back(held)
