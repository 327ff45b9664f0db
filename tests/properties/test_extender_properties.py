"""However calls, bindings, deletions and time are mixed, Filter never lets two pods have one device.

Invariants: (1) what is bound where Filter said and what is still promised together never take more of a device than
it has; (2) a candidate that the extender passed stays that pod's own while its promise lasts; (3) once all pods are
gone nothing is left in any memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from binpack import fit
from binpack.extender import PROMISE_S, Extender, Outcome
from binpack.ledger import Ledger
from fleet import labels
from fleet.node import Node
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


SHARED_ASKS = [
    *({}, {"whole": 1}, {"whole": 2}, {"milli": 300}, {"milli": 800}, {"mib": 60}, {"milli": 500, "mib": 50}),
    *({"whole": 1, "models": ("H100",)}, {"milli": 100, "models": ("A100",)}),
]
COUNTED_ASKS = [{}, {"classic": 1}, {"classic": 2}, {"classic": 1, "models": ("A100",)}]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Node, list[Pod]]:
    """A node and pods pinned to it that fit, or miss by one thing or two."""
    is_sharing = draw(st.booleans())
    flaws = draw(
        st.sets(st.sampled_from(["dead", "cordon", "kind", "record", "problem", "cpu", "nic", "few"]), max_size=2)
    )
    counted = {} if is_sharing or "few" not in flaws else {labels.NVIDIA_GPU: draw(st.sampled_from([1, 3]))}
    node = a_node(
        "n1",
        gpus=["0", "1"],
        dead=["0"] if "dead" in flaws else [],
        model=draw(st.sampled_from(["H100", "A100"])),
        memory_mib=draw(st.sampled_from([None, 100])),
        is_sharing=is_sharing,
        is_cordoned="cordon" in flaws,
        milli_cpu=4000,
        extended={"example.com/nic": 1} | counted,
    )
    return node, [_pinned(draw, f"p{i}", is_sharing, flaws) for i in range(draw(st.integers(1, 3)))]


def _pinned(draw: st.DrawFn, name: str, is_sharing: bool, flaws: set[str]) -> Pod:
    asks = SHARED_ASKS if is_sharing is not ("kind" in flaws and draw(st.booleans())) else COUNTED_ASKS
    asked: dict[str, Any] = draw(st.sampled_from(asks))
    count = asked.get("whole", 0) or int("milli" in asked or "mib" in asked)
    devices = tuple(draw(st.permutations(["0", "1"]))[:count]) or None
    if "record" in flaws and draw(st.booleans()):
        devices = draw(st.sampled_from([None, ("0",), ("2",), ("0", "1"), ("1", "2")]))
    return a_pod(
        name,
        pin="n1",
        node=draw(st.sampled_from(["", "", "n1"])),
        devices=devices,
        milli_cpu=3000 if "cpu" in flaws else 0,
        extended={"example.com/nic": 1} if "nic" in flaws else None,
        record_problem="unreadable" if "problem" in flaws and draw(st.booleans()) else "",
        **asked,
    )


@settings(max_examples=1000, deadline=None)
@given(world=worlds())
def test_the_quick_check_agrees_with_the_definition_of_feasible(world: tuple[Node, list[Pod]]) -> None:
    node, pods = world
    ledger = Ledger()
    extender = Extender(ledger)
    ledger.set_node(node)
    for pod in pods:
        ledger.set_pod(pod)
        extender.pod_seen(pod)
    for pod in pods:
        verdict = extender.filter(pod, ["n1"], 0.0)
        if pod.node_name or verdict.outcome is Outcome.UNPLANNED:
            continue
        without = ledger.state_without("n1", pod.uid)
        assert without is not None
        refusal = fit.refusal(pod, Berth(node="n1", devices=pod.devices or ()), without)
        assert (verdict.outcome is Outcome.VERIFIED) is (refusal == ""), (verdict, refusal)
