"""The independent verifier of plans: it shares no line with the index, the solver or `fit`.

It reads the values and the plan, keeps books of its own, and names every hard rule the plan breaks. Whatever the
others believe, a plan with a violation is never carried out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from binpack.check_company import Trial
from binpack.check_instances import can_begin
from binpack.check_nodes import NodeRule, excluded, unlike
from binpack.check_register import Register
from binpack.state import DeviceState, NodeState
from fleet.berths import locate
from fleet.constraints import NodeConstraints
from fleet.device import AskKind, DeviceAsk
from fleet.plan import Plan, Violation
from fleet.pod import Berth, Pod


class Rule(StrEnum):
    """The rules beside those of nodes and company; a shortage of another extended resource goes by that one's name."""

    POD_TWICE = "pod stands in the plan more than once"
    POD_MISSING = "pod stands nowhere in the plan"
    POD_UNKNOWN = "plan names a pod that is not in the batch"
    POD_UNREADABLE = "pod cannot be read, so it may not be placed"
    NODE_UNKNOWN = "node does not exist"
    MILLI_CPU = "milli_cpu"
    MEMORY_BYTES = "memory_bytes"
    POD_SLOTS = "pod_slots"
    DEVICES_BLOCKED = "no device of this node may be given"
    DEVICES_UNASKED = "devices given to a pod that may not be given any"
    DEVICE_COUNT = "number of devices"
    DEVICE_TWICE = "device given twice to one pod"
    DEVICE_UNKNOWN = "device does not exist"
    DEVICE_SICK = "device is unhealthy"
    DEVICE_MODEL = "device model"
    DEVICE_TOUCHED = "whole device is in use"
    MILLI_GPU = "milli_gpu"
    GPU_MEMORY_MIB = "gpu_memory_mib"
    GANG_TORN = "part of a gang is placed, and part of it is not"
    WRONG_BOOKS = "node keeps another kind of device books"
    MIG_MODE = "device is in the wrong mode"
    MIG_PROFILE = "MIG profile"
    MIG_START = "start of the MIG instance"
    ISLAND = "devices of one island"


def check(
    states: Mapping[str, NodeState],
    pods: Sequence[Pod],
    plan: Plan,
    *,
    together: Iterable[Collection[str]] = (),
    register: Register | None = None,
) -> tuple[Violation, ...]:
    """Return every hard rule that `plan` breaks against these states; empty = it may be carried out.

    Only nodes the plan names are looked at: the cost grows with the batch, not with the cluster. Placements are booked
    in the plan's order; the pod that no longer fits is the one named, and it is not booked.

    Args:
        states: What is free on every node the plan names.
        pods: The batch.
        plan: To be judged.
        together: Uids of pods that must all be placed or none of them.
        register: Who is where in the whole cluster, for rules between pods; None = those are not judged.
    """
    violations = _membership(pods, plan) + _torn(plan, together)
    by_uid = {pod.uid: pod for pod in pods}
    books: dict[str, _Books] = {}
    trial = None if register is None else Trial(register, lambda wish, node: unlike(wish, node) is None)
    for placement in plan.placements:
        pod = by_uid.get(placement.pod_uid)
        if pod is None:
            continue
        berth = placement.berth
        if berth.node not in books:
            state = states.get(berth.node)
            if state is None:
                violations.append(Violation(pod_uid=pod.uid, node=berth.node, rule=Rule.NODE_UNKNOWN))
                continue
            books[berth.node] = _Books(state)
        against = () if trial is None else tuple(trial.objections(pod, berth.node))
        if against:
            violations += [
                Violation(pod_uid=pod.uid, node=berth.node, rule=rule, wanted=wanted, free=free)
                for rule, wanted, free in against
            ]
            continue
        wrong = books[berth.node].book(pod, berth)
        violations += wrong
        if trial is not None and not wrong:
            trial.book(pod, berth.node)
    return tuple(violations)


def _membership(pods: Sequence[Pod], plan: Plan) -> list[Violation]:
    missing = {pod.uid for pod in pods}
    known = frozenset(missing)
    wrong: list[Violation] = []
    named = [(placement.pod_uid, placement.berth.node) for placement in plan.placements]
    named += [(unplaced.pod_uid, "") for unplaced in plan.unplaced]
    for uid, node in named:
        if uid in missing:
            missing.remove(uid)
        else:
            wrong.append(
                Violation(pod_uid=uid, node=node, rule=Rule.POD_TWICE if uid in known else Rule.POD_UNKNOWN),
            )
    wrong += [Violation(pod_uid=uid, node="", rule=Rule.POD_MISSING) for uid in sorted(missing)]
    return wrong


def _torn(plan: Plan, together: Iterable[Collection[str]]) -> list[Violation]:
    placed = {placement.pod_uid: placement.berth.node for placement in plan.placements}
    wrong: list[Violation] = []
    for gang in together:
        seated = sorted(uid for uid in gang if uid in placed)
        if 0 < len(seated) < len(gang):
            wrong += [
                Violation(pod_uid=uid, node=placed[uid], rule=Rule.GANG_TORN, wanted=len(gang), free=len(seated))
                for uid in seated
            ]
    return wrong


class _Card:
    """What is left of one device."""

    __slots__ = ("device", "instances", "is_healthy", "memory_mib", "mib", "milli", "model", "users")

    def __init__(self, state: DeviceState) -> None:
        self.model = state.device.model
        self.memory_mib = state.device.memory_mib
        self.is_healthy = state.device.is_healthy
        self.milli = state.free_milli
        self.mib = state.free_mib
        self.users = state.users
        self.device = state.device
        self.instances = list(state.partitions)


class _Books:
    """What is left of one node while the plan is being read."""

    __slots__ = ("cards", "extended", "memory_bytes", "milli_cpu", "pod_slots", "state", "verdicts")

    def __init__(self, state: NodeState) -> None:
        self.state = state
        self.milli_cpu = state.free.milli_cpu
        self.memory_bytes = state.free.memory_bytes
        self.pod_slots = state.free.pod_slots
        self.extended = dict(state.free.extended)
        self.cards = {device.device.id: _Card(device) for device in state.devices}
        self.verdicts: dict[NodeConstraints, NodeRule | None] = {}

    def book(self, pod: Pod, berth: Berth) -> list[Violation]:
        """Book the pod if no rule forbids it; return what does."""
        wrong = self._rules(pod) + self._amounts(pod) + self._devices(pod, berth)
        if not wrong:
            self._deduct(pod, berth)
        return wrong

    def _rules(self, pod: Pod) -> list[Violation]:
        wrong = [self._violation(pod, Rule.POD_UNREADABLE)] if pod.problems else []
        if pod.constraints not in self.verdicts:
            self.verdicts[pod.constraints] = excluded(pod.constraints, self.state.node)
        verdict = self.verdicts[pod.constraints]
        return wrong if verdict is None else [*wrong, self._violation(pod, verdict)]

    def _amounts(self, pod: Pod) -> list[Violation]:
        wanted = pod.requests
        rows: list[tuple[str, int, int]] = [
            (Rule.MILLI_CPU, wanted.milli_cpu, self.milli_cpu),
            (Rule.MEMORY_BYTES, wanted.memory_bytes, self.memory_bytes),
            (Rule.POD_SLOTS, wanted.pod_slots, self.pod_slots),
        ]
        rows += [(name, amount, self.extended.get(name, 0)) for name, amount in wanted.extended]
        return [
            self._violation(pod, rule, wanted=amount, free=free)
            for rule, amount, free in rows
            if amount > 0 and amount > free
        ]

    def _devices(self, pod: Pod, berth: Berth) -> list[Violation]:
        ask = pod.ask
        if ask is None:
            return [self._violation(pod, Rule.DEVICES_UNASKED, device=berth.devices[0])] if berth.devices else []
        wrong: list[Violation] = []
        if self.state.blocked or self.state.node.device_problems:
            wrong.append(self._violation(pod, Rule.DEVICES_BLOCKED))
        if self.state.node.is_sharing == (ask.kind is AskKind.CLASSIC):
            wrong.append(self._violation(pod, Rule.WRONG_BOOKS))
        if not ask.alternatives:
            return wrong + self._plain(pod, ask, berth)
        ways = [
            replace(ask, count=way.count, models=(way.model,), is_ordered=False, alternatives=())
            for way in ask.alternatives
        ]
        return wrong + min((self._plain(pod, way, berth) for way in ways), key=len)

    def _plain(self, pod: Pod, ask: DeviceAsk, berth: Berth) -> list[Violation]:
        match ask.kind:
            case AskKind.CLASSIC:
                return self._counted(pod, ask, berth)
            case AskKind.PARTITION:
                return self._instance(pod, ask, berth)
            case _:
                return self._named(pod, ask, berth)

    def _instance(self, pod: Pod, ask: DeviceAsk, berth: Berth) -> list[Violation]:
        if len(berth.devices) != 1:
            return [self._violation(pod, Rule.DEVICE_COUNT, wanted=1, free=len(berth.devices))]
        name, wanted = locate(berth.devices[0], self.state.node.devices)
        card = self.cards.get(name)
        if card is None:
            return [self._violation(pod, Rule.DEVICE_UNKNOWN, device=name)]
        wrong: list[str] = []
        if not card.is_healthy:
            wrong.append(Rule.DEVICE_SICK)
        if not _is_wanted(ask, card.model):
            wrong.append(Rule.DEVICE_MODEL)
        if wanted is None or wanted.profile != ask.profile:
            wrong.append(Rule.MIG_PROFILE)
        elif card.device.partitions is None or card.users != len(card.instances):
            wrong.append(Rule.MIG_MODE)
        elif not can_begin(card.device, card.instances, wanted):
            wrong.append(Rule.MIG_START)
        return [self._violation(pod, rule, device=berth.devices[0]) for rule in wrong]

    def _counted(self, pod: Pod, ask: DeviceAsk, berth: Berth) -> list[Violation]:
        if berth.devices:
            return [self._violation(pod, Rule.DEVICES_UNASKED, device=berth.devices[0])]
        free = len(self._free_cards(ask))
        return [] if free >= ask.count else [self._violation(pod, Rule.DEVICE_COUNT, wanted=ask.count, free=free)]

    def _free_cards(self, ask: DeviceAsk) -> list[_Card]:
        return [
            card
            for card in self.cards.values()
            if card.users == 0
            and card.is_healthy
            and _is_wanted(ask, card.model)
            and (card.memory_mib is None or card.memory_mib >= ask.memory_mib)
        ]

    def _named(self, pod: Pod, ask: DeviceAsk, berth: Berth) -> list[Violation]:
        wrong: list[Violation] = []
        if len(berth.devices) != ask.count:
            wrong.append(self._violation(pod, Rule.DEVICE_COUNT, wanted=ask.count, free=len(berth.devices)))
        seen: set[str] = set()
        for name in berth.devices:
            if name in seen:
                wrong.append(self._violation(pod, Rule.DEVICE_TWICE, device=name))
            seen.add(name)
            card = self.cards.get(name)
            if card is None:
                wrong.append(self._violation(pod, Rule.DEVICE_UNKNOWN, device=name))
            else:
                wrong += self._card(pod, ask, name, card)
        islands = {self.cards[name].device.island for name in seen if name in self.cards}
        if ask.is_one_island and (len(islands) != 1 or 0 in islands):
            wrong.append(self._violation(pod, Rule.ISLAND, wanted=1, free=len(islands)))
        return wrong

    def _card(self, pod: Pod, ask: DeviceAsk, name: str, card: _Card) -> list[Violation]:
        wrong: list[Violation] = []
        if not card.is_healthy:
            wrong.append(self._violation(pod, Rule.DEVICE_SICK, device=name))
        if not _is_wanted(ask, card.model):
            wrong.append(self._violation(pod, Rule.DEVICE_MODEL, device=name))
        if card.device.partitions is not None:
            wrong.append(self._violation(pod, Rule.MIG_MODE, device=name))
        if ask.kind is AskKind.CHOSEN:
            if card.users:
                wrong.append(self._violation(pod, Rule.DEVICE_TOUCHED, device=name, wanted=0, free=card.users))
            if card.memory_mib is not None and card.memory_mib < ask.memory_mib:
                wrong.append(self._short_of_memory(pod, ask, name, card.memory_mib))
            return wrong
        # Of a card whose memory nobody knows, only the milli-GPU can tell that nothing is left.
        wanted = max(1, ask.milli_gpu) if card.mib is None else ask.milli_gpu
        if wanted > 0 and card.milli < wanted:
            wrong.append(self._violation(pod, Rule.MILLI_GPU, device=name, wanted=wanted, free=card.milli))
        if card.mib is not None and ask.memory_mib > 0 and card.mib < ask.memory_mib:
            wrong.append(self._short_of_memory(pod, ask, name, card.mib))
        return wrong

    def _deduct(self, pod: Pod, berth: Berth) -> None:
        self.milli_cpu -= pod.requests.milli_cpu
        self.memory_bytes -= pod.requests.memory_bytes
        self.pod_slots -= pod.requests.pod_slots
        for name, amount in pod.requests.extended:
            self.extended[name] = self.extended.get(name, 0) - amount
        ask = pod.ask
        if ask is None:
            return
        if ask.kind is AskKind.CLASSIC:
            for card in self._free_cards(ask)[: ask.count]:
                card.users += 1
            return
        if ask.kind is AskKind.PARTITION:
            name, partition = locate(berth.devices[0], self.state.node.devices)
            self.cards[name].users += 1
            self.cards[name].instances += [partition] if partition is not None else []
            return
        for name in berth.devices:
            card = self.cards[name]
            card.users += 1
            card.milli -= ask.milli_gpu
            if card.mib is not None:
                card.mib -= card.mib if ask.kind is AskKind.CHOSEN else ask.memory_mib

    def _short_of_memory(self, pod: Pod, ask: DeviceAsk, name: str, free: int) -> Violation:
        return self._violation(pod, Rule.GPU_MEMORY_MIB, device=name, wanted=ask.memory_mib, free=free)

    def _violation(self, pod: Pod, rule: str, *, device: str = "", wanted: int = 0, free: int = 0) -> Violation:
        return Violation(
            pod_uid=pod.uid, node=self.state.node.name, rule=str(rule), device=device, wanted=wanted, free=free
        )


def _is_wanted(ask: DeviceAsk, model: str) -> bool:
    """Judge the product name: a wished name is a run of its words, any case, "-" and blanks alike.

    A slice of a card that goes by the card's name with MIG in it must be wished for as such.
    """
    have = model.lower().replace("-", " ").split()
    for name in ask.models:
        words = name.lower().replace("-", " ").split()
        if "mig" in have and "mig" not in words:
            continue
        if words and any(have[i : i + len(words)] == words for i in range(len(have) - len(words) + 1)):
            return True
    return not ask.models
