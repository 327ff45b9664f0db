"""Judges every write of the planner by sums of its own: no device twice, nobody evicted for nothing, no half gang.

It counts against the planner only what the planner could know: what its watches had shown, and what planners wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from fleet import labels
from fleet.company import Spread
from fleet.device import AskKind
from fleet.kube import paths
from fleet.kube.decode import node_from
from fleet.node import Node
from fleet.pod import Berth, Pod
from tests.support.builders import node_object, slice_object
from tests.support.storm.api import CLAIMS, Key, Object, StormApi, split
from tests.support.storm.cluster import ZONE, decoded
from tests.support.storm.crews import Crews

# Memory slices and legal starts of instances of an A100 with 80 GB (NVIDIA MIG user guide).
_SLICES = {"1g.10gb": 1, "1g.20gb": 2, "2g.20gb": 2, "3g.40gb": 4, "4g.40gb": 4, "7g.80gb": 8}
_STARTS = {
    "1g.10gb": range(7),
    "1g.20gb": (0, 2, 4, 6),
    "2g.20gb": (0, 2, 4),
    "3g.40gb": (0, 4),
    "4g.40gb": (0,),
    "7g.80gb": (0,),
}


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a pod holds, or what is kept for it."""

    pod: Pod
    berth: Berth
    is_seat: bool = False

    def __str__(self) -> str:
        pod, seat = self.pod, " (seat)" if self.is_seat else ""
        return f"{pod.name}={','.join(self.berth.devices)}{seat} of priority {pod.priority}"


class Referee:
    """Watches the writes of one cluster's planners.

    Attributes:
        found: What was wrong, in words.
        torn: Gangs of which the planner made a member go for others.
        writes: How many there were.
        forged: Pods whose annotations somebody else wrote.
        placed: UIDs of pods that were let go since `spread` was last called; None = others were made to go meanwhile.
        begun: Gangs of which a member is placed: the others may follow one by one.
        crews: Gangs of which members were made to go.
    """

    def __init__(self, api: StormApi) -> None:
        self.found: list[str] = []
        self.torn: set[str] = set()
        self.writes = 0
        self.forged: set[Key] = set()
        self.placed: list[str] | None = []
        self.begun: set[str] = set()
        self.crews = Crews(api)
        self._api = api
        self._by_planner: set[str] = set()
        self._seats: dict[Key, Pod] = {}
        self._is_asked = False
        api.before_write = self.judge

    # -- writes --------------------------------------------------------------------------------------------------

    def judge(self, verb: str, path: str, old: Object, new: Object | None) -> None:
        """Judge one write before it takes place."""
        self.writes += 1
        collection, key, _ = split(path)
        if collection == CLAIMS and new is not None:
            self._claim(key, old, new)
        if collection != paths.PODS:
            return
        before = decoded(old)
        if new is None:
            self.placed = None
            self.torn.add(before.gang)
            if verb == "evict" and before.node_name:
                self._evicted(before)
            return
        after = decoded(new)
        if after.seat is not None and after.seat != before.seat:
            self._by_planner.add(after.uid)
            self._seats[key] = after
            self._berth(after, after.seat, "seat")
        if before.gates and not after.gates:
            self._by_planner.add(after.uid)
            if self.placed is not None:
                self.placed.append(after.uid)
            if after.pinned_node:
                self._berth(after, Berth(node=after.pinned_node, devices=after.devices or ()), "pin")
            elif after.candidates:
                self._berth(after, after.candidates[0], "candidate")
            self._gang(after)
            self.found += self.crews.seat_used(after.uid)
        if after.moving_to is not None and before.moving_to is None:
            self._by_planner.add(f"{after.uid}/moving")
            self._berth(after, after.moving_to, "move")

    def _say(self, text: str) -> None:
        self.found.append(text)

    # -- who holds what ------------------------------------------------------------------------------------------

    def known(self, uid: str) -> Iterator[Held]:
        """Yield what others than this pod hold, as far as the planner could know."""
        seen = {key: decoded(obj) for key, obj in self._api.seen[paths.PODS].items()}
        for key, obj in self._api.objects[paths.PODS].items():
            pod = decoded(obj)
            if pod.uid == uid or not pod.is_live or (key in self.forged and not self._is_asked):
                continue
            shown = seen.get(key)
            if shown is not None and shown.uid == pod.uid:
                pod = replace(pod, requests=shown.requests)  # it may have grown since
            held = held_by(pod)
            is_elsewhere = bool(pod.node_name and pod.candidates) and pod.node_name != pod.candidates[0].node
            is_ours = pod.uid in self._by_planner and not is_elsewhere
            if held is not None and (is_ours or _shows(seen.get(key), held)):
                yield held
            if pod.moving_to is not None and pod.moving_to.node and not self._has_successor(pod.uid):
                yield Held(pod=pod, berth=pod.moving_to, is_seat=True)

    def _has_successor(self, uid: str) -> bool:
        pods = (decoded(obj) for obj in self._api.objects[paths.PODS].values())
        return any(pod.moved_from == uid and pod.is_live and not pod.gates for pod in pods)

    def _node(self, name: str) -> Node | None:
        obj = self._api.seen[paths.NODES].get(("", name))
        if obj is None:
            return None
        slices = [slice_object(one) for one in self._api.seen[paths.RESOURCE_SLICES].values()]
        return node_from(node_object(obj), [one for one in slices if one.spec.node_name == name])

    # -- rules ---------------------------------------------------------------------------------------------------

    def _berth(self, pod: Pod, berth: Berth, what: str) -> None:
        if (pod.namespace, pod.name) in self.forged and not self._is_asked:
            return
        where = f"{what} of {pod.key} on {berth.node}={','.join(berth.devices)}"
        node = self._node(berth.node)
        if node is None:
            if not (self._api.is_late or (what == "seat" and pod.has_claims)):  # that is taken back again
                self._say(f"{where}: there is no such node")
            return
        others = [held for held in self.known(pod.uid) if held.berth.node == berth.node]
        if pod.moved_from:
            others = [held for held in others if not (held.is_seat and held.pod.uid == pod.moved_from)]
        seats = [one for one in others if one.is_seat]
        # Who is to go for a seat is still there: it must fit once they are gone, and whoever else comes, now and then.
        later = [one for one in others if one.is_seat or not _goes(one.pod, [pod, *(seat.pod for seat in seats)], what)]
        for group in (later,) if what == "seat" else (later, [one for one in others if not one.is_seat]):
            for wrong in (*self._amounts(pod, node, group), *self._devices(pod, berth, node, group)):
                self._say(f"{where}: {wrong}; there: {', '.join(map(str, group))}")
        for wrong in self._allowed(pod, node, what):
            self._say(f"{where}: {wrong}")

    def _amounts(self, pod: Pod, node: Node, others: Iterable[Held]) -> Iterator[str]:
        if self._api.is_late or pod.has_claims:  # its devices are written first, and others change meanwhile
            return
        held = [pod, *(one.pod for one in others)]
        have = node.allocatable
        if (asked := sum(one.requests.milli_cpu for one in held)) > have.milli_cpu and pod.requests.milli_cpu:
            yield f"{asked} of {have.milli_cpu} milli-CPU"
        if (asked := sum(one.requests.memory_bytes for one in held)) > have.memory_bytes and pod.requests.memory_bytes:
            yield f"{asked} of {have.memory_bytes} bytes"
        if len(held) > have.pod_slots:
            yield f"{len(held)} of {have.pod_slots} pods"
        gpus = sum(one.requests.of(labels.NVIDIA_GPU) for one in held)
        if pod.requests.of(labels.NVIDIA_GPU) and gpus > have.of(labels.NVIDIA_GPU):
            yield f"{gpus} of {have.of(labels.NVIDIA_GPU)} {labels.NVIDIA_GPU}"

    def _devices(self, pod: Pod, berth: Berth, node: Node, others: Iterable[Held]) -> Iterator[str]:
        ask = pod.ask
        if ask is None or ask.kind is AskKind.CLASSIC:
            if berth.devices:
                yield "devices that it does not ask for"
            return
        counts = {one.count for one in ask.variants()}
        if len(set(berth.devices)) != len(berth.devices) or len(berth.devices) not in counts:
            yield f"{len(berth.devices)} devices, {sorted(counts)} are asked for"
        there = {device.id: device for device in node.devices}
        for name in berth.devices:
            device = there.get(name.partition(":")[0])
            if device is None or not device.is_healthy:
                yield f"device {name} is not there or not healthy"
                continue
            if (ask.kind is AskKind.PARTITION) is (device.partitions is None):
                yield f"device {name} is in the wrong mode"
            ways = [one for one in ask.variants() if one.count == len(berth.devices)]
            if ask.models and not any(wish.lower() in device.model.lower() for one in ways for wish in one.models):
                yield f"device {name} is a {device.model}, {ask.models} are asked for"
            yield from _overlap(pod, name, [one for one in others if one.pod.ask is not None], device.memory_mib)
        islands = {there[name].island for name in berth.devices if name in there}
        if ask.is_one_island and (len(islands) != 1 or 0 in islands):
            yield "devices of several islands"

    def _allowed(self, pod: Pod, node: Node, what: str) -> Iterator[str]:
        if what == "move" or self._api.is_late or pod.has_claims:
            return
        if node.is_cordoned:
            yield "the node is cordoned"
        shown = self._api.seen[paths.PODS].get((pod.namespace, pod.name))
        selector = (pod if shown is None else decoded(shown)).constraints.node_selector
        if any(node.labels.get(key) != value for key, value in selector):
            yield "the node selector does not match"
        for taint in node.taints:
            if taint.effect == "NoSchedule" and not any(one.tolerates(taint) for one in pod.constraints.tolerations):
                yield f"taint {taint.key}"
        if what == "seat":
            return
        here = [one.pod for one in self.known(pod.uid) if not one.is_seat and one.berth.node == node.name]
        for other in here:
            if any(port.clashes(taken) for port in pod.guest.ports for taken in other.guest.ports):
                yield f"a host port is {other.name}'s"
        nodes = {name: obj["metadata"].get("labels", {}) for (_, name), obj in self._api.seen[paths.NODES].items()}
        for other in (one for one in self.known(pod.uid) if not one.is_seat):
            for mine, theirs in ((pod, other.pod), (other.pod, pod)):
                for term in mine.guest.anti:
                    there = nodes.get(other.berth.node, {}).get(term.key)
                    is_same = there is not None and there == node.labels.get(term.key)
                    if is_same and term.matches(theirs.namespace, theirs.labels, {}):
                        yield f"anti-affinity between it and {other.pod.name} on {other.berth.node}"

    def _gang(self, pod: Pod) -> None:
        """No member is let go before all that the gang needs have a seat or their place."""
        if not pod.gang or pod.gang in self.begun:
            return
        self.begun.add(pod.gang)
        members = [decoded(obj) for obj in self._api.objects[paths.PODS].values()]
        members = [one for one in members if (one.namespace, one.gang) == (pod.namespace, pod.gang)]
        ours = [one for one in members if one.uid != pod.uid]
        ready = sum(not one.gates or one.seat is not None or not one.is_live for one in ours)
        gone = sum(
            key not in self._api.objects[paths.PODS]
            for key, obj in self._api.seen[paths.PODS].items()
            if decoded(obj).gang == pod.gang
        )
        if ready + gone + 1 < pod.gang_size:
            self._say(f"{pod.key} is let go with {ready + 1} of {pod.gang_size} members of its gang seated")

    def _evicted(self, victim: Pod) -> None:
        """Nobody goes but for a seat that is written, of somebody more important, in whose way he or his gang is."""
        if victim.moving_by:
            return
        seats = self._seats_above(victim.priority)
        if victim.gang:
            self.found += self.crews.evicted(victim, seats, is_late=self._api.is_late)
        elif victim.node_name not in seats and not self._api.is_late:
            self._say(f"{victim.key} is evicted from {victim.node_name} and nobody has a seat there")

    def _seats_above(self, priority: int) -> dict[str, list[Pod]]:
        """Return by node the pods above a priority with a seat there, as it is, was shown, or was written last."""
        shown = self._api.seen[paths.PODS]
        pods = [decoded(obj) for known in (self._api.objects[paths.PODS], shown) for obj in known.values()]
        pods += [pod for key, pod in self._seats.items() if key in shown]
        found: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.seat is not None and pod.priority > priority:
                found.setdefault(pod.seat.node, []).append(pod)
        return found

    def _claim(self, key: Key, old: Object, new: Object) -> None:
        """No device is given to two claims."""
        given = _results(new)
        if not given or _results(old):
            return
        for other, claim in self._api.objects[CLAIMS].items():
            if other != key and (twice := given & _results(claim)) and self._is_known(other, claim):
                self._say(f"claim {key[1]} gets {sorted(twice)}, which {other[1]} has")

    def _is_known(self, key: Key, claim: Object) -> bool:
        shown = self._api.seen[CLAIMS].get(key)
        return shown is not None and _results(shown) == _results(claim)

    def is_free(self, pod: Pod, name: str) -> bool:
        """Return True if the pod could be placed on the node as all is now, whoever else wants it."""
        before, self.found = self.found, []
        self._is_asked = True
        try:
            return any(self._is_good(pod, berth) for berth in self._berths(pod, name))
        finally:
            self.found, self._is_asked = before, False

    def _is_good(self, pod: Pod, berth: Berth) -> bool:
        self.found = []
        self._berth(pod, berth, "pin")
        return not self.found

    def _berths(self, pod: Pod, name: str) -> Iterator[Berth]:
        node, ask = self._node(name), pod.ask
        if node is None:
            return
        if ask is None or ask.kind is AskKind.CLASSIC:
            if ask is None or not node.is_sharing:
                yield Berth(node=name)
            return
        if not node.is_sharing:
            return
        ids = [device.id for device in node.devices]
        if ask.kind is AskKind.PARTITION:
            for device in (one for one in node.devices if "100" in one.model and one.partitions is not None):
                made = [one.start for one in device.partitions or () if one.profile == ask.profile]
                for start in made if device.partitions else _STARTS[ask.profile]:
                    yield Berth(node=name, devices=(f"{device.id}:{ask.profile}@{start}",))
            return
        for one in ask.variants():
            for devices in combinations(ids, one.count):
                yield Berth(node=name, devices=devices)

    # -- at rest -------------------------------------------------------------------------------------------------

    def spread(self) -> None:
        """Judge hard topology spreads over zones of the pods placed since the last call, beside all the others."""
        news, self.placed = set(self.placed or ()), []
        placed = [one for one in self.known("") if not one.is_seat and not one.pod.is_terminating]
        nodes = {name: self._node(name) for _, name in self._api.objects[paths.NODES]}
        for mine in (one for one in placed if one.pod.uid in news and one.pod.pinned_node):
            for spread in mine.pod.guest.spreads:
                if spread.is_hard and spread.key == ZONE and spread.selector is not None:
                    self._skew(mine, spread, placed, nodes)

    def _skew(self, mine: Held, spread: Spread, placed: Sequence[Held], nodes: Mapping[str, Node | None]) -> None:
        """Count as kube-scheduler does, but for the node affinity: a pin leaves one node of it."""
        counts: dict[str, int] = {}
        for node in nodes.values():
            if node is None or ZONE not in node.labels:
                continue
            if spread.honors_taints and not _tolerates(mine.pod, node):
                continue
            if not all(node.labels.get(key) == value for key, value in mine.pod.constraints.node_selector):
                continue
            there = [one for one in placed if one.berth.node == node.name]
            many = sum(one.pod.namespace == mine.pod.namespace and _counts(spread, one.pod) for one in there)
            counts[node.labels[ZONE]] = counts.get(node.labels[ZONE], 0) + many
        node = nodes.get(mine.berth.node)
        zone = "" if node is None else node.labels.get(ZONE, "")
        if zone in counts and counts[zone] - min(counts.values()) > spread.max_skew:
            self._say(f"{mine.pod.key} on {mine.berth.node}: topology spread {counts}")


def held_by(pod: Pod) -> Held | None:
    """Return what a pod holds, by the rules of the ledger's text and none of its code."""
    if pod.node_name:
        devices = pod.devices
        if devices is None:
            devices = next((one.devices for one in pod.candidates if one.node == pod.node_name), ())
        return Held(pod=pod, berth=Berth(node=pod.node_name, devices=devices))
    if pod.gates:
        return None if pod.seat is None else Held(pod=pod, berth=pod.seat, is_seat=True)
    if pod.pinned_node:
        return Held(pod=pod, berth=Berth(node=pod.pinned_node, devices=pod.devices or ()))
    return Held(pod=pod, berth=pod.candidates[0]) if pod.candidates else None


def _counts(spread: Spread, pod: Pod) -> bool:
    return spread.selector is not None and spread.selector.matches(pod.labels)


def _tolerates(pod: Pod, node: Node) -> bool:
    hard = [taint for taint in node.taints if taint.effect != "PreferNoSchedule"]
    return all(any(one.tolerates(taint) for one in pod.constraints.tolerations) for taint in hard)


def _shows(pod: Pod | None, held: Held) -> bool:
    shown = None if pod is None or pod.uid != held.pod.uid else held_by(pod)
    return shown is not None and shown.berth == held.berth


def _goes(victim: Pod, preemptors: Sequence[Pod], what: str) -> bool:
    """Return True if a pod leaves, or may be made to go for one of these, of whom the first is being judged."""
    able = preemptors if what == "seat" else preemptors[1:]
    return victim.is_terminating or any(victim.priority < one.priority for one in able)


def _results(claim: Object) -> set[tuple[str, str, str]]:
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return {(one["driver"], one["pool"], one["device"]) for one in results}


def _overlap(pod: Pod, name: str, others: Iterable[Held], memory_mib: int | None) -> Iterator[str]:
    """Yield how the pod and the other users of a device are too much for it."""
    assert pod.ask is not None
    device = name.partition(":")[0]
    milli, mib = pod.ask.milli_gpu, pod.ask.memory_mib
    for other in others:
        ask = other.pod.ask
        for theirs in other.berth.devices:
            if theirs.partition(":")[0] != device or ask is None or ask.kind is AskKind.CLASSIC:
                continue
            if AskKind.CHOSEN in (ask.kind, pod.ask.kind) or (ask.kind is not pod.ask.kind):
                yield f"device {name} is {other.pod.name}'s"
            elif pod.ask.kind is AskKind.PARTITION and _slices(name) & _slices(theirs):
                yield f"instance {name} overlaps {other.pod.name}'s {theirs}"
            milli += ask.milli_gpu
            mib += ask.memory_mib
    if pod.ask.kind is AskKind.SHARE and milli > 1000:
        yield f"{milli} milli-GPU of device {name}"
    if pod.ask.kind is AskKind.SHARE and memory_mib is not None and mib > memory_mib:
        yield f"{mib} of {memory_mib} MiB of device {name}"
    if pod.ask.kind is AskKind.PARTITION:
        profile, _, start = name.rpartition(":")[2].partition("@")
        if profile != pod.ask.profile or int(start) not in _STARTS[profile]:
            yield f"{name} is no {pod.ask.profile}, or may not start there"


def _slices(name: str) -> set[int]:
    profile, _, start = name.rpartition(":")[2].partition("@")
    return set(range(int(start), int(start) + _SLICES[profile]))
