"""Carries decisions out: the newest per endpoint, only on the count it was taken on, and only while we lead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fleet.clock import Clock
from fleet.errors import ApiError, NotFound, NotLeading
from scaler.controller import paths
from scaler.controller.actuator import Actuator
from scaler.controller.census import order_for, replicas
from scaler.controller.desk import Desk
from scaler.controller.endpoint import Endpoint
from scaler.controller.facts import Change
from scaler.controller.pods import Workload
from scaler.controller.surge import surge_of
from scaler.controller.world import Claim, Key, World
from scaler.decision import Decision
from scaler.horizontal.victims import victims
from scaler.policy import Policy

log = logging.getLogger(__name__)

_AT_ONCE, _RATE_PER_S, _BURST = 8, 50.0, 100.0
# Other kinds go through other people's servers and webhooks: where these hang, Deployments do not wait for them.
_OTHERS_AT_ONCE = 4
_UNANSWERED_S = 15.0  # no second try of what was not answered before this time, so that others have theirs
Changed = Callable[[Endpoint, Change], None]


class Carrier:
    """Sets counts, a few at a time."""

    def __init__(
        self,
        world: World,
        actuator: Actuator,
        clock: Clock,
        *,
        sets_deletion_cost: bool = True,
        changed: Changed = lambda endpoint, change: None,
    ) -> None:
        """Prepare.

        Args:
            world: Where the counts that are set are read, and noted once written.
            actuator: Writes them.
            clock: Time.
            sets_deletion_cost: Whether to mark who should go before a Deployment shrinks.
            changed: Told of each count that was set.
        """
        self._world = world
        self._actuator = actuator
        self._clock = clock
        self._sets_deletion_cost = sets_deletion_cost
        self._changed = changed
        self._desk: Desk[Key] = Desk(clock, at_once=_AT_ONCE, rate_per_s=_RATE_PER_S, burst=_BURST)
        self._others: Desk[Key] = Desk(clock, at_once=_OTHERS_AT_ONCE, rate_per_s=_RATE_PER_S, burst=_BURST)
        self._problems: dict[Key, str] = {}
        self._retry_s: dict[Key, float] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._desk.run())
            group.create_task(self._others.run())

    def carry(self, endpoint: Endpoint, workload: Workload, decision: Decision) -> None:
        """Set the count that a decision asks for, unless it is set already."""
        target = self._world.targets.get(workload)
        order, surge = self._order(endpoint, decision)
        if target is None or target.order.replicas == order:
            self._world.set_surge(workload, surge)
            self.forget(endpoint.key)
            return
        policy = endpoint.policy
        desk = self._desk if workload.kind in paths.BUILT_IN else self._others
        desk.put(endpoint.key, lambda: self._set(endpoint, workload, decision, policy, order, surge))

    def _order(self, endpoint: Endpoint, decision: Decision) -> tuple[int, int]:
        """Return the count to set, and how much of it is there for a replica that is being moved."""
        needed = order_for(decision.desired, endpoint.census, endpoint.policy.max_replicas)
        autoscaler = self._world.autoscalers.get(endpoint.key)
        surge = surge_of(autoscaler.annotations) if autoscaler is not None and needed else 0
        return needed + surge, surge

    def problem(self, key: Key) -> str:
        """Return why the last count could not be set; "" = it could."""
        return self._problems.get(key, "")

    def forget(self, key: Key) -> None:
        """Set nothing more for an autoscaler that is gone."""
        self._desk.drop(key)
        self._others.drop(key)
        self._problems.pop(key, None)
        self._retry_s.pop(key, None)

    def _is_void(self, endpoint: Endpoint, workload: Workload, decision: Decision, policy: Policy, order: int) -> bool:
        """Return whether what a decision was taken on has changed since: it has waited for its turn, or for marks."""
        now_s = self._clock.monotonic_s()
        if now_s - decision.at_s > 2 * policy.behavior.period_s or now_s < self._retry_s.get(endpoint.key, now_s):
            return True
        if endpoint.decision is not decision or endpoint.policy != policy:
            return True
        autoscaler = self._world.autoscalers.get(endpoint.key)
        if autoscaler is None or autoscaler.workload != workload:
            return True
        if self._world.claim(autoscaler)[0] is not Claim.OURS:
            return True
        # A request came in the meantime, or the load is not known any more: nobody goes to sleep on that.
        return order == 0 and (endpoint.load.in_flight != 0 or bool(endpoint.load.queued))

    async def _set(
        self, endpoint: Endpoint, workload: Workload, decision: Decision, policy: Policy, order: int, surge: int
    ) -> None:
        target = self._world.targets.get(workload)
        seen = target.order.replicas if target else None
        if target is None or seen is None or seen == order:
            return
        if self._is_void(endpoint, workload, decision, policy, order):
            return
        try:
            if order < seen and workload.kind == "Deployment" and self._sets_deletion_cost:
                await self._mark(endpoint, workload, seen - order)
                if self._is_void(endpoint, workload, decision, policy, order):
                    return
            now = await self._actuator.set(
                workload.namespace, endpoint.spec.target, order, seen=seen, version=target.version
            )
        except NotLeading:
            return
        except NotFound:
            # The watch will say so too, or the kind has no scale subresource.
            self._problems[endpoint.key] = f"{endpoint.spec.target} could not be set to {order}: it is not there"
            return
        except ApiError as error:
            self._actuator.counts["failed"] += 1
            if error.status == 0:
                self._retry_s[endpoint.key] = self._clock.monotonic_s() + _UNANSWERED_S
            self._problems[endpoint.key] = f"{endpoint.spec.target} could not be set to {order}: {error}"[:500]
            log.warning("%s: %s", endpoint.key, self._problems[endpoint.key])
            return
        self._problems.pop(endpoint.key, None)
        self._retry_s.pop(endpoint.key, None)
        if now is not None:
            self._world.set_surge(workload, surge)
            self._world.set_target(workload, now.replicas, self._clock.monotonic_s(), version=now.version)
            change = Change(
                at_s=self._clock.monotonic_s(),
                before=seen,
                after=now.replicas,
                reason=decision.reason.value,
                text=decision.text,
            )
            endpoint.change = change
            self._changed(endpoint, change)

    async def _mark(self, endpoint: Endpoint, workload: Workload, count: int) -> None:
        pods = {pod.name: pod for pod in self._world.pods.of(workload).values() if not pod.is_ended}
        await self._actuator.mark(pods, victims(replicas(pods.values(), endpoint.in_flight), count))
