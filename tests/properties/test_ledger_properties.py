"""The ledger under any sequence of events.

1. A fresh process that lists the cluster sees the same picture as one that watched, whatever the order of the events.
2. Every number equals a recount from the objects that shares no line with the ledger.
3. Nothing is negative unless the objects themselves promise more than there is.
4. `take_changed` names every node whose state changed.
5. Whoever has a berth and is not bound to it is on its way there, and nobody else is.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from binpack import fit
from binpack.ledger import Ledger
from binpack.state import NodeState
from fleet import labels
from fleet.device import AskKind
from fleet.node import Node
from fleet.pod import Berth, Phase, Pod
from tests.support.builders import a_node, a_pod

NAMES = ("n1", "n2", "n3")
PODS = tuple(f"p{i}" for i in range(6))

asks = st.one_of(
    st.just({}),
    st.builds(lambda n: {"whole": n}, st.integers(1, 2)),
    st.builds(lambda n: {"classic": n}, st.integers(1, 2)),
    st.builds(
        lambda milli, mib, count: {"milli": milli, "mib": mib, "count": count},
        st.sampled_from([0, 200, 600, 1000]),
        st.sampled_from([100, 900]),
        st.integers(1, 2),
    ),
)
nodes = st.builds(
    lambda name, gpus, dead, memory_mib, is_sharing, cordoned, cpu: a_node(
        name,
        gpus=gpus,
        dead=dead,
        memory_mib=memory_mib,
        is_sharing=is_sharing,
        is_cordoned=cordoned,
        milli_cpu=cpu,
    ),
    st.sampled_from(NAMES),
    st.integers(0, 3),
    st.sets(st.sampled_from(["0", "1"])),
    st.sampled_from([None, 1000]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1000, 4000]),
)
berths = st.builds(
    lambda node, devices: Berth(node=node, devices=tuple(sorted(devices))),
    st.sampled_from(NAMES),
    st.sets(st.sampled_from(["0", "1", "2"]), max_size=2),
)


class Watching(RuleBasedStateMachine):
    """The API as two dictionaries, and a ledger that is told of changes, or misses them until it lists again."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.assumed: dict[str, Berth] = {}
        self.is_watching = True
        self.serial = 0
        self.before: dict[str, NodeState | None] = {}

    # -- the API ---------------------------------------------------------------------------------------------

    @rule(node=nodes)
    def set_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        if self.is_watching:
            self.ledger.set_node(node)

    @rule(name=st.sampled_from(NAMES))
    def remove_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None and self.is_watching:
            self.ledger.remove_node(name)

    @rule(name=st.sampled_from(PODS), ask=asks, cpu=st.sampled_from([0, 700, 3000]))
    def create(self, name: str, ask: dict[str, int], cpu: int) -> None:
        """A name is used again by another pod, whether or not the deletion of the first was seen."""
        earlier = self.pods.pop(name, None)
        if earlier is not None:
            self.assumed.pop(earlier.uid, None)
        self.serial += 1
        self._show(a_pod(name, uid=f"u{self.serial}", milli_cpu=cpu, **ask))

    @rule(name=st.sampled_from(PODS), berth=berths)
    def pin(self, name: str, berth: Berth) -> None:
        pod = self.pods.get(name)
        if pod is not None and pod.gates:
            self._show(replace(pod, gates=(), pinned_node=berth.node, devices=berth.devices or None))

    @rule(name=st.sampled_from(PODS), first=berths, second=berths)
    def steer(self, name: str, first: Berth, second: Berth) -> None:
        pod = self.pods.get(name)
        if pod is not None and pod.gates:
            candidates = (first, second) if first.node != second.node else (first,)
            self._show(replace(pod, gates=(), candidates=candidates))

    @rule(name=st.sampled_from(PODS), node=st.sampled_from(NAMES), devices=berths, has_record=st.booleans())
    def bind(self, name: str, node: str, devices: Berth, has_record: bool) -> None:
        """Anybody may bind an ungated pod anywhere, with or without a record."""
        pod = self.pods.get(name)
        if pod is not None and not pod.node_name:
            record = (devices.devices or None) if has_record else pod.devices
            self._show(replace(pod, gates=(), node_name=node, devices=record, phase=Phase.RUNNING))

    @rule(name=st.sampled_from(PODS), phase=st.sampled_from([Phase.SUCCEEDED, Phase.FAILED, Phase.UNKNOWN]))
    def change_phase(self, name: str, phase: Phase) -> None:
        if name in self.pods:
            self._show(replace(self.pods[name], phase=phase))

    @rule(name=st.sampled_from(PODS))
    def terminate(self, name: str) -> None:
        if name in self.pods:
            self._show(replace(self.pods[name], is_terminating=True))

    @rule(name=st.sampled_from(PODS), problem=st.sampled_from(["record", "request"]))
    def garble(self, name: str, problem: str) -> None:
        pod = self.pods.get(name)
        if pod is None:
            return
        if problem == "record":
            self._show(replace(pod, devices=None, candidates=(), record_problem="garbled", problems=("garbled",)))
        else:
            self._show(replace(pod, ask=None, problems=("garbled",), record_problem=""))

    @rule(name=st.sampled_from(PODS))
    def touch(self, name: str) -> None:
        """News that change nothing of what the pod holds."""
        if name in self.pods:
            self._show(replace(self.pods[name], priority=self.pods[name].priority + 1))

    @rule(name=st.sampled_from(PODS))
    def delete(self, name: str) -> None:
        pod = self.pods.pop(name, None)
        if pod is not None:
            self.assumed.pop(pod.uid, None)
            if self.is_watching:
                self.ledger.remove_pod(pod.uid)

    @rule()
    def lose_the_watch(self) -> None:
        self.is_watching = False

    @precondition(lambda self: not self.is_watching)
    @rule(pods_first=st.booleans(), order=st.permutations(range(len(PODS))))
    def relist(self, pods_first: bool, order: list[int]) -> None:
        """As the reflectors do: everything listed is set, and what is no longer listed is dropped, in any order."""
        self.is_watching = True
        listed = {pod.uid for pod in self.pods.values()}
        known = {uid for name in NAMES for uid in self.ledger.pods_on(name)}
        pods = [self.pods[PODS[i]] for i in order if PODS[i] in self.pods]

        def take_nodes() -> None:
            for name in set(self.ledger.names()) - set(self.nodes):
                self.ledger.remove_node(name)
            for node in self.nodes.values():
                self.ledger.set_node(node)

        if not pods_first:
            take_nodes()
        for pod in pods:
            self.ledger.set_pod(pod)
        for uid in known - listed:
            self.ledger.remove_pod(uid)
        if pods_first:
            take_nodes()

    # -- the planner -----------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_watching)
    @rule(name=st.sampled_from(PODS), berth=berths)
    def assume(self, name: str, berth: Berth) -> None:
        pod = self.pods.get(name)
        if pod is not None and pod.gates and pod.is_live and not pod.is_terminating:
            self.ledger.assume(pod, berth)
            self.assumed[pod.uid] = berth

    @rule(name=st.sampled_from(PODS))
    def forget(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is not None:
            self.ledger.forget(pod.uid)
            self.assumed.pop(pod.uid, None)

    @precondition(lambda self: self.is_watching)
    @rule(name=st.sampled_from(PODS))
    def place(self, name: str) -> None:
        """A berth that fits leaves nothing negative that was not negative before."""
        pod = self.pods.get(name)
        if pod is None or not pod.gates or not pod.is_live or pod.is_terminating or pod.uid in self.assumed:
            return
        for node in self.ledger.names():
            state = self.ledger.state(node)
            assert state is not None
            devices = fit.devices_for(pod, state)
            if devices is None or pod.problems:
                continue
            self.ledger.assume(pod, Berth(node=node, devices=devices))
            self.assumed[pod.uid] = Berth(node=node, devices=devices)
            after = self.ledger.state(node)
            assert after is not None
            assert not set(_negative(after)) - set(_negative(state))
            return

    def _show(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        overrules = not pod.gates or not pod.is_live or pod.is_terminating
        if overrules:
            self.assumed.pop(pod.uid, None)
        if self.is_watching:
            self.ledger.set_pod(pod)

    # -- what holds at all times -----------------------------------------------------------------------------

    @invariant()
    def a_fresh_process_sees_the_same(self) -> None:
        if not self.is_watching:
            return
        fresh = Ledger()
        for pod in reversed(self.pods.values()):
            fresh.set_pod(pod)
            if pod.uid in self.assumed:
                fresh.assume(pod, self.assumed[pod.uid])
        for node in self.nodes.values():
            fresh.set_node(node)
        assert self.ledger.picture() == fresh.picture()

    @invariant()
    def every_number_equals_a_recount(self) -> None:
        if not self.is_watching:
            return
        for name, node in self.nodes.items():
            state = self.ledger.state(name)
            assert state is not None
            _recount(node, state, [self._held(pod) for pod in self.pods.values()])

    @invariant()
    def who_is_on_the_way_is_known(self) -> None:
        if self.is_watching:
            held = {pod.uid: self._held(pod)[1] for pod in self.pods.values() if not pod.node_name}
            on_their_way = {uid: node for uid, node in held.items() if node}
            assert {pod.uid: node for pod, node in self.ledger.coming} == on_their_way

    def _held(self, pod: Pod) -> tuple[Pod, str, tuple[str, ...]]:
        """Return where the pod is and with which devices, from the definition."""
        if pod.uid in self.assumed:
            return pod, self.assumed[pod.uid].node, self.assumed[pod.uid].devices
        if pod.phase in (Phase.SUCCEEDED, Phase.FAILED):
            return pod, "", ()
        of_node = {berth.node: berth.devices for berth in pod.candidates}
        if pod.node_name:
            return pod, pod.node_name, of_node.get(pod.node_name, ()) if pod.devices is None else pod.devices
        if pod.pinned_node and not pod.gates:
            return pod, pod.pinned_node, pod.devices or ()
        if pod.candidates and not pod.gates:
            return pod, pod.candidates[0].node, pod.candidates[0].devices
        return pod, "", ()

    @invariant()
    def every_change_is_told(self) -> None:
        changed = self.ledger.take_changed()
        now = {name: self.ledger.state(name) for name in NAMES}
        assert {name for name in NAMES if now[name] != self.before.get(name)} <= changed
        self.before = now


def _recount(node: Node, state: NodeState, held: list[tuple[Pod, str, tuple[str, ...]]]) -> None:
    here = [(pod, devices) for pod, where, devices in held if where == node.name]
    assert state.free.milli_cpu == node.allocatable.milli_cpu - sum(pod.requests.milli_cpu for pod, _ in here)
    assert state.free.pod_slots == node.allocatable.pod_slots - len(here)
    if not node.is_sharing:
        counted = sum(pod.requests.of(labels.NVIDIA_GPU) for pod, _ in here)
        healthy = sum(device.is_healthy for device in node.devices)
        assert sum(device.is_untouched for device in state.devices) == max(0, healthy - counted)
        return
    for device in state.devices:
        users = [pod for pod, devices in here if device.device.id in devices]
        wholes = [pod for pod in users if pod.ask is None or pod.ask.kind is not AskKind.SHARE]
        shares = [pod.ask for pod in users if pod.ask is not None and pod.ask.kind is AskKind.SHARE]
        assert device.users == len(users)
        assert device.free_milli == 1000 - 1000 * len(wholes) - sum(ask.milli_gpu for ask in shares)
        if device.device.memory_mib is not None:
            left = device.device.memory_mib * (1 - len(wholes)) - sum(ask.memory_mib for ask in shares)
            assert device.free_mib == left


def _negative(state: NodeState) -> list[str]:
    amounts = {"cpu": state.free.milli_cpu, "slots": state.free.pod_slots, **dict(state.free.extended)}
    for device in state.devices:
        amounts[f"{device.device.id} milli"] = device.free_milli
        amounts[f"{device.device.id} mib"] = device.free_mib or 0
    return [name for name, amount in amounts.items() if amount < 0]


TestWatching = Watching.TestCase
TestWatching.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
