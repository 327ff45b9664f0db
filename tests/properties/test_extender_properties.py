"""However calls, bindings, deletions and time are mixed, Filter never lets two pods have one device.

Invariants: (1) what is bound where Filter said and what is still promised together never take more of a device than
it has; (2) a candidate that the extender passed stays that pod's own while its promise lasts; (3) once all pods are gone
nothing is left in any memory.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from binpack.extender import PROMISE_S, Extender, Outcome
from binpack.ledger import Ledger
from fleet.pod import Berth, Phase, Pod
from tests.support.builders import a_node, a_pod

NODES = ("n1", "n2")
DEVICES = ("0", "1")
BERTHS = st.lists(
    st.builds(
        lambda node, device: Berth(node=node, devices=(device,)), st.sampled_from(NODES), st.sampled_from(DEVICES)
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda berth: berth.node,
)


class Scheduling(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.extender = Extender(self.ledger)
        self.pending: dict[str, Pod] = {}
        self.bound: dict[str, Pod] = {}
        self.promised: dict[str, tuple[Berth, float]] = {}
        self.now_s = 0.0
        self.made = 0

    @initialize()
    def nodes(self) -> None:
        for name in NODES:
            self.ledger.set_node(a_node(name, gpus=DEVICES, memory_mib=100))

    def see(self, pod: Pod) -> None:
        self.ledger.set_pod(pod)
        self.extender.pod_seen(pod)

    @rule(milli=st.sampled_from([0, 300, 600]), candidates=BERTHS)
    def plan(self, milli: int, candidates: list[Berth]) -> None:
        self.made += 1
        asked = {"milli": milli} if milli else {"whole": 1}
        pod = a_pod(f"p{self.made}", candidates=tuple(candidates), **asked)
        self.pending[pod.uid] = pod
        self.see(pod)

    @precondition(lambda self: self.pending)
    @rule(data=st.data(), names=st.lists(st.sampled_from((*NODES, "ghost")), unique=True))
    def ask(self, data: st.DataObject, names: list[str]) -> None:
        pod = self.pending[data.draw(st.sampled_from(sorted(self.pending)))]
        verdict = self.extender.filter(pod, names, self.now_s)
        assert set(verdict.passed) <= set(names)
        if verdict.outcome is Outcome.STEERED:
            (node,) = verdict.passed
            berth = next(berth for berth in pod.candidates if berth.node == node)
            self.promised[pod.uid] = (berth, self.now_s + PROMISE_S)

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def bind(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.live())))
        berth, _ = self.promised.pop(uid)
        self.bound[uid] = replace(self.pending.pop(uid), node_name=berth.node, phase=Phase.RUNNING)
        self.see(self.bound[uid])

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def rumour(self, data: st.DataObject) -> None:
        pod = self.pending[data.draw(st.sampled_from(sorted(self.pending)))]
        self.see(replace(pod, is_unschedulable=True))

    @precondition(lambda self: self.pending or self.bound)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted([*self.pending, *self.bound])))
        self.forget(uid)

    def forget(self, uid: str) -> None:
        for pods in (self.pending, self.bound, self.promised):
            pods.pop(uid, None)
        self.ledger.remove_pod(uid)
        self.extender.pod_gone(uid)

    @rule(seconds=st.sampled_from([1.0, 10.0, PROMISE_S]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def live(self) -> dict[str, Berth]:
        return {uid: berth for uid, (berth, until_s) in self.promised.items() if until_s > self.now_s}

    @invariant()
    def no_device_has_two_owners(self) -> None:
        used: dict[tuple[str, str], list[int]] = {}
        for uid, pod in self.bound.items():
            device = next(b.devices[0] for b in pod.candidates if b.node == pod.node_name)
            used.setdefault((pod.node_name, device), []).append(self.milli(uid))
        for uid, berth in self.live().items():
            used.setdefault((berth.node, berth.devices[0]), []).append(self.milli(uid))
        assert all(sum(shares) <= 1000 for shares in used.values()), used

    def milli(self, uid: str) -> int:
        ask = (self.pending.get(uid) or self.bound[uid]).ask
        assert ask is not None
        return ask.milli_gpu

    def teardown(self) -> None:
        for uid in [*self.pending, *self.bound]:
            self.forget(uid)
        assert (self.extender.promises, self.extender.contested) == (0, 0)
        for name in self.ledger.known():
            state = self.ledger.state(name)
            assert state is not None
            assert all(device.free_milli == 1000 and device.users == 0 for device in state.devices)


TestScheduling = Scheduling.TestCase
TestScheduling.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
