"""Tells warm pools which of their nodes are spare: one annotation, set and taken back, with an event for people."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

import msgspec

from binpack.controller.budget_feed import Budgets
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.retrying import kinds_waiting
from binpack.controller.tenancies import tenancies
from binpack.controller.world import World
from binpack.spare import Finding, Record, look
from fleet import labels
from fleet.clock import Clock
from fleet.errors import ApiError, Conflict, Invalid, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.events import EventRecorder
from fleet.loop import Rhythm, every
from fleet.node import Node

log = logging.getLogger(__name__)

_PERIOD_S = 5.0
_CALL_S = 5.0
_POINTER = f"/metadata/annotations/{labels.SPARE.replace('~', '~0').replace('/', '~1')}"


class Spares:
    """Looks every few seconds while this planner leads. What it remembers is how long nodes have been spare."""

    def __init__(
        self,
        world: World,
        budgets: Budgets,
        client: Client,
        recorder: EventRecorder,
        clock: Clock,
        metrics: PlannerMetrics,
        *,
        after_s: float,
    ) -> None:
        self._world = world
        self._budgets = budgets
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._after_s = after_s
        self._records: Mapping[str, Record] = {}

    async def run(self) -> None:
        """Look until cancelled."""

        def failed(_: Exception) -> None:
            self._metrics.faults.labels("spare").inc()

        await every(Rhythm(period_s=_PERIOD_S), self.turn, self._clock, name="spare nodes", failed=failed)

    async def turn(self) -> None:
        """Look once, and write what follows."""
        self._world.refresh()
        found = look(
            self._world.index,
            tenancies(self._world, self._budgets),
            kinds_waiting(self._world),
            self._records,
            self._clock.monotonic_s(),
            after_s=self._after_s,
        )
        self._records = found.records
        self._metrics.show_spare(Counter(one.reason.value for one in found.findings))
        for finding in found.unmarks:
            await self._unmark(finding)
        for finding in found.marks:
            await self._mark(finding)

    async def _mark(self, finding: Finding) -> None:
        where = Counter(placement.berth.node for placement in finding.placements)
        moves = ", ".join(f"{count} to {node}" for node, count in sorted(where.items())) or "nothing is left on it"
        note = f"all {sum(where.values())} of its pods fit elsewhere ({moves}), for {self._after_s:g} s or longer"
        await self._write(finding, is_spare=True, reason="NodeSpare", note=f"{note}: its pool may empty and release it")

    async def _unmark(self, finding: Finding) -> None:
        note = f"no longer spare: {finding.detail or finding.reason.value}"
        await self._write(finding, is_spare=False, reason="NodeNotSpare", note=note)

    async def _write(self, finding: Finding, *, is_spare: bool, reason: str, note: str) -> None:
        state = self._world.ledger.state(finding.node)
        if state is None:
            return
        body = spare_patch(state.node, is_spare=is_spare)
        try:
            await self._client.json_patch(paths.node(finding.node), body, timeout_s=_CALL_S)
        except (Conflict, Invalid, NotFound) as error:
            log.info("node %s changed before it could be called spare or not: %s", finding.node, error)
            return
        except ApiError as error:
            self._metrics.spare_marks.labels("failed").inc()
            log.warning("node %s could not be called spare or not: %s", finding.node, error)
            return
        self._metrics.spare_marks.labels("set" if is_spare else "taken-back").inc()
        log.info("node %s of pool %s: %s", finding.node, state.node.pool, note)
        await self._recorder.record(state.node, reason=reason, note=note, is_warning=False, action="Sparing")


def spare_patch(node: Node, *, is_spare: bool) -> bytes:
    """Return the JSON patch that sets or takes back the mark, if the node is still the one that was weighed.

    A pool's node has annotations; one whose claim came meanwhile is somebody's.
    """
    claim = f"/metadata/annotations/{labels.CLAIM.replace('~', '~0').replace('/', '~1')}"
    operations: list[dict[str, object]] = [{"op": "test", "path": "/metadata/uid", "value": node.uid}]
    if is_spare:
        operations.append({"op": "test", "path": claim, "value": None})
        operations.append({"op": "add", "path": _POINTER, "value": "true"})
    else:
        operations += [{"op": "test", "path": _POINTER, "value": "true"}, {"op": "remove", "path": _POINTER}]
    return msgspec.json.encode(operations)
