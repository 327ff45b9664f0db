"""The independent verifier of device choices: it shares no line with the chooser, its books or its prices.

It adds up from the claims themselves what is held in the pools that the plan names, books the plan's choices on top,
and names every rule that breaks: a device that does not exist, is out of reach, is held, is tainted, is promised beyond
its capacity, draws more than its counters have, or was not asked for in this way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from fleet import labels
from fleet.dra import (
    Allocation,
    ClaimChoice,
    DeviceClass,
    DeviceId,
    DeviceOption,
    DeviceResult,
    DeviceSlice,
    PoolDevice,
    ResourceClaim,
    TaintRule,
)
from fleet.plan import Plan, Violation
from fleet.pod import Pod


class DeviceRule(StrEnum):
    """The rules of device claims."""

    CLAIM_UNKNOWN = "claim does not exist"
    CLAIM_GIVEN = "claim has devices already"
    CLAIM_OPEN = "claim was given no devices"
    CLAIM_ELSEWHERE = "claim's devices are not reached from the node"
    DEVICE_UNKNOWN = "claimed device does not exist"
    DEVICE_UNREACHED = "claimed device is not reached from the node"
    DEVICE_HELD = "claimed device is held by another claim"
    DEVICE_KEPT = "claimed device is kept for a pod with a seat"
    DEVICE_TAINTED = "claimed device is tainted"
    CAPACITY = "capacity of a claimed device"
    COUNTERS = "shared counters of a pool"
    REQUESTS = "devices do not answer the claim's requests"
    CONSTRAINT = "constraint between claimed devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What the cluster's objects say.

    Attributes:
        claims: All claims by uid, as the API shows them and with what is assumed.
        slices: All resource slices.
        classes: All device classes.
        rules: All device taint rules.
        node_labels: Of at least the nodes of the plan.
        kept: By uid of a gated pod with a seat what is kept for it: nobody else's, though others may have it still.
        going: Uids of pods that will be gone by then: what is reserved for them alone is free then.
    """

    claims: Mapping[str, ResourceClaim]
    slices: Iterable[DeviceSlice]
    classes: Mapping[str, DeviceClass]
    rules: Sequence[TaintRule] = ()
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    kept: Mapping[str, Sequence[ClaimChoice]] = field(default_factory=dict)
    going: frozenset[str] = frozenset()


def check_claims(plan: Plan, pods: Sequence[Pod], published: Published) -> tuple[Violation, ...]:
    """Return every rule that the plan's choices of devices break."""
    claims, node_labels = claims_after(published.claims, published.going), published.node_labels
    by_uid = {pod.uid: pod for pod in pods}
    concerned = [one for one in plan.placements if one.pod_uid in by_uid]
    if not any(by_uid[one.pod_uid].resource_claims or one.berth.choices for one in concerned):
        return ()
    choices = [choice for placement in plan.placements for choice in placement.berth.choices]
    pools = {result.id[:2] for choice in choices for result in choice.allocation.results}
    slices = [one for one in published.slices if (one.driver, one.pool) in pools]
    audit = _Audit(claims, slices, published.classes, published.rules)
    for uid, others in published.kept.items():
        if uid not in by_uid:
            audit.keep(result for choice in others for result in choice.allocation.results)
    names = {(claim.namespace, claim.name): claim.uid for claim in claims.values()}
    recorded = {(one.berth.node, name) for one in plan.placements for name in one.berth.devices}
    found: list[Violation] = []
    for placement in plan.placements:
        pod = by_uid.get(placement.pod_uid)
        if pod is None:
            continue
        node = placement.berth.node
        rules: list[str] = []
        for choice in placement.berth.choices:
            rules += audit.give(choice.claim_uid, choice.allocation, node, node_labels.get(node, {}))
            cards = {(node, one.device) for one in choice.allocation.results if is_card(one)}
            rules += [] if cards.isdisjoint(recorded) else [DeviceRule.DEVICE_HELD]
        for one in pod.resource_claims:
            uid = names.get((pod.namespace, one.claim), "")
            if not one.is_none:
                rules += audit.usable(uid, node, node_labels.get(node, {}))
        found += [Violation(pod_uid=pod.uid, node=node, rule=rule) for rule in rules]
    return tuple(found)


def claims_after(claims: Mapping[str, ResourceClaim], going: frozenset[str]) -> Mapping[str, ResourceClaim]:
    """Return the claims as they are once these pods are gone: the last one's going frees what it was reserved for."""
    if not going:
        return claims
    leaving = {("", "pods", uid) for uid in going}

    def is_freed(claim: ResourceClaim) -> bool:
        users = {(one.group, one.resource, one.uid) for one in claim.reserved_for}
        return bool(users) and users <= leaving

    return {
        uid: replace(claim, allocation=None, reserved_for=()) if is_freed(claim) else claim
        for uid, claim in claims.items()
    }


class _Audit:
    """Running sums of what claims hold."""

    def __init__(
        self,
        claims: Mapping[str, ResourceClaim],
        slices: Sequence[DeviceSlice],
        classes: Mapping[str, DeviceClass],
        rules: Sequence[TaintRule],
    ) -> None:
        self._rules = rules
        self._claims = claims
        self._classes = classes
        self._devices: dict[DeviceId, tuple[PoolDevice, DeviceSlice]] = {}
        self._totals: dict[tuple[str, str, str, str], int] = {}
        newest: dict[tuple[str, str], int] = {}
        for one in slices:
            newest[one.driver, one.pool] = max(one.generation, newest.get((one.driver, one.pool), 0))
        for one in slices:
            if one.generation == newest[one.driver, one.pool]:
                for device in one.devices:
                    self._devices[one.driver, one.pool, device.name] = (device, one)
                for counter_set, amounts in one.counter_sets:
                    for name, amount in amounts:
                        self._totals[one.driver, one.pool, counter_set, name] = amount
        self._given: dict[str, Allocation] = {}
        self._whole: dict[DeviceId, str] = {}
        self._parts: dict[DeviceId, list[DeviceResult]] = {}
        self._kept: dict[DeviceId, list[DeviceResult]] = {}
        for claim in claims.values():
            if claim.allocation is not None:
                self._hold(claim.uid, claim.allocation)

    def keep(self, results: Iterable[DeviceResult]) -> None:
        """Let nobody else have these devices, or as much of them."""
        for result in results:
            if not result.is_admin:
                self._kept.setdefault(result.id, []).append(result)

    def give(self, uid: str, allocation: Allocation, node: str, labels: Mapping[str, str]) -> list[str]:
        """Hold an allocation; return the rules it breaks."""
        claim = self._claims.get(uid)
        if claim is None:
            return [DeviceRule.CLAIM_UNKNOWN]
        if uid in self._given:
            return [DeviceRule.CLAIM_GIVEN]
        broken = [rule for result in allocation.results for rule in self._device(result, node, labels)]
        broken += self._answers(claim, allocation)
        broken += _constraints(claim, [(result, self._devices.get(result.id)) for result in allocation.results])
        self._hold(uid, allocation)
        broken += self._overdrawn(allocation)
        return list(dict.fromkeys(broken))

    def usable(self, uid: str, node: str, labels: Mapping[str, str]) -> list[str]:
        """Return what keeps a pod on a node from a claim."""
        if uid not in self._claims:
            return [DeviceRule.CLAIM_UNKNOWN]
        allocation = self._given.get(uid)
        if allocation is None:
            return [DeviceRule.CLAIM_OPEN]
        terms = allocation.terms
        is_reached = terms is None or any(term.matches(node, labels) for term in terms)
        return [] if is_reached else [DeviceRule.CLAIM_ELSEWHERE]

    def _hold(self, uid: str, allocation: Allocation) -> None:
        self._given[uid] = allocation
        for result in allocation.results:
            if result.is_admin:
                continue
            if result.share_id:
                self._parts.setdefault(result.id, []).append(result)
            else:
                self._whole[result.id] = uid

    def _device(self, result: DeviceResult, node: str, labels: Mapping[str, str]) -> list[str]:
        entry = self._devices.get(result.id)
        if entry is None:
            return [DeviceRule.DEVICE_UNKNOWN]
        device, one = entry
        broken: list[str] = []
        where = one.where if one.where is not None else device.where
        if where is None or not (
            where.node == node
            or where.is_everywhere
            or (not where.node and any(term.matches(node, labels) for term in where.terms or ()))
        ):
            broken.append(DeviceRule.DEVICE_UNREACHED)
        if not result.is_admin:
            is_shared = result.id in self._parts
            if result.id in self._whole or (is_shared and not result.share_id):
                broken.append(DeviceRule.DEVICE_HELD)
            kept = self._kept.get(result.id, ())
            if kept and not (result.share_id and all(one.share_id for one in kept)):
                broken.append(DeviceRule.DEVICE_KEPT)
        for taint in (*device.taints, *(rule.taint for rule in self._rules if _is_meant(rule, result))):
            is_harmless = taint.effect not in ("NoSchedule", "NoExecute")
            if not is_harmless and not any(one.tolerates(taint) for one in result.tolerations):
                broken.append(DeviceRule.DEVICE_TAINTED)
        return broken

    def _overdrawn(self, allocation: Allocation) -> list[str]:
        broken: list[str] = []
        for result in allocation.results:
            entry = self._devices.get(result.id)
            if entry is None or result.is_admin:
                continue
            parts = [*self._parts.get(result.id, ()), *self._kept.get(result.id, ())]
            for name, capacity in entry[0].capacity.items():
                if sum(dict(part.consumed).get(name, 0) for part in parts) > capacity.value:
                    broken.append(DeviceRule.CAPACITY)
            sets = {counter_set for counter_set, _ in entry[0].uses}
            if sets and self._is_overdrawn(result.driver, result.pool, sets):
                broken.append(DeviceRule.COUNTERS)
        return broken

    def _is_overdrawn(self, driver: str, pool: str, sets: set[str]) -> bool:
        drawn: dict[tuple[str, str, str, str], int] = {}
        for device_id, (device, _) in self._devices.items():
            is_held = device_id in self._whole or device_id in self._parts or device_id in self._kept
            if device_id[:2] != (driver, pool) or not is_held:
                continue
            for counter_set, amounts in device.uses:
                for name, amount in amounts if counter_set in sets else ():
                    key = (driver, pool, counter_set, name)
                    drawn[key] = drawn.get(key, 0) + amount
        return any(amount > self._totals.get(key, 0) for key, amount in drawn.items())

    def _answers(self, claim: ResourceClaim, allocation: Allocation) -> list[str]:
        """Count devices per request: exactly one way of each, with as many devices as it asks, each once."""
        left = list(allocation.results)
        for request in claim.demand.requests:
            titles = {f"{request.name}/{way.name}" if way.name else request.name: way for way in request.options}
            used = {result.request for result in left if result.request in titles}
            if len(used) != 1:
                return [DeviceRule.REQUESTS]
            way = titles[used.pop()]
            mine = [result for result in left if result.request in titles]
            left = [result for result in left if result.request not in titles]
            if not self._is_answer(way, mine):
                return [DeviceRule.REQUESTS]
        return [DeviceRule.REQUESTS] if left else []

    def _is_answer(self, way: DeviceOption, results: Sequence[DeviceResult]) -> bool:
        if way.class_name not in self._classes or len({result.id for result in results}) != len(results):
            return False
        if any(result.is_admin != way.is_admin for result in results):
            return False
        return len(results) >= 1 if way.count == 0 else len(results) == way.count


def is_card(result: DeviceResult) -> bool:
    """Return True for a GPU that pods may hold by their records as well, under the same name."""
    return result.driver.startswith(labels.DRA_GPU_DRIVERS) and not result.is_admin


def _is_meant(rule: TaintRule, result: DeviceResult) -> bool:
    said = {"driver": rule.driver, "pool": rule.pool, "device": rule.device}
    named = {key: text for key, text in said.items() if text}
    return bool(named) and all(getattr(result, key) == text for key, text in named.items())


def _constraints(
    claim: ResourceClaim, given: Sequence[tuple[DeviceResult, tuple[PoolDevice, DeviceSlice] | None]]
) -> list[str]:
    for constraint in claim.demand.constraints:
        values: list[object] = []
        for result, entry in given:
            names = (result.request, result.request.partition("/")[0])
            if entry is None or (constraint.requests and not set(names) & set(constraint.requests)):
                continue
            values.append(entry[0].attributes.get(constraint.attribute))
        kinds = {(type(value).__name__, value) for value in values}
        is_met = len(kinds) == len(values) if constraint.is_distinct else len(kinds) <= 1
        if None in values or not is_met:
            return [DeviceRule.CONSTRAINT]
    return []
