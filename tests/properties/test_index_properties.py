"""What holds for the index whatever the nodes, the pods and the order of events.

1. A placement breaks no rule that the independent verifier knows, however bookings and returns are mixed.
2. A pod is left out only if no choice of devices on any node would pass the verifier.
3. The answer does not depend on the order in which nodes were added, nor on what was asked, booked and returned before.
4. Returning everything restores the potential exactly.
5. The options come best first, each node once, and the first is the placement.
6. On openb-like nodes the chosen berth costs what the formula in plain loops says, and nothing costs less.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.check import check
from binpack.index import Index, Mix, Shape, Weights, default_mix
from binpack.index.device_value import frozen_value_table
from binpack.state import NodeState
from fleet.constraints import NodeConstraints, Taint, Toleration
from fleet.device import AskKind, DeviceAsk
from fleet.plan import Placement, Plan
from fleet.pod import Berth, Pod
from tests.support import value_policy
from tests.support.berths import card, chosen, classic, pod, seat, share

MODELS = st.sampled_from(["A", "A", "A", "B"])
WISHES = st.sampled_from([(), (), ("A",), ("B", "A")])
SHARES = st.builds(
    lambda milli, count, mib, models: share(milli, count=count, mib=mib, models=models),
    st.sampled_from([1, 100, 250, 470, 500, 810]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([0, 0, 500, 2000]),
    WISHES,
)
ASKS = st.one_of(
    st.none(),
    SHARES,
    st.just(share(0, mib=300)),
    st.builds(
        lambda count, mib, models: chosen(count, mib=mib, models=models),
        st.sampled_from([1, 2, 4]),
        st.sampled_from([0, 0, 2000]),
        WISHES,
    ),
    st.builds(classic, st.sampled_from([1, 2])),
)
CONSTRAINTS = st.sampled_from(
    [
        NodeConstraints(),
        NodeConstraints(),
        NodeConstraints(node_selector=(("zone", "a"),)),
        NodeConstraints(tolerations=(Toleration(key="t", operator="Exists"),)),
    ]
)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    ask = draw(ASKS)
    if ask is not None and draw(st.booleans()):
        ask = DeviceAsk(**{name: getattr(ask, name) for name in ask.__slots__} | {"is_ordered": True})
    return pod(
        "x",
        cpu=draw(st.sampled_from([0, 0.5, 2, 4])),
        gib=draw(st.sampled_from([0, 1, 4])),
        ask=ask,
        constraints=draw(CONSTRAINTS),
    )


@st.composite
def states(draw: st.DrawFn, name: str) -> NodeState:
    count = draw(st.sampled_from([0, 1, 2, 3, 4]))
    is_sharing = draw(st.booleans()) or draw(st.booleans())
    model = draw(MODELS)
    mib = draw(st.sampled_from([1000, 24_000, None]))
    return seat(
        name,
        devices=[
            card(
                str(position),
                memory_mib=mib,
                model=draw(MODELS) if is_sharing else model,
                is_healthy=draw(st.integers(0, 9)) > 0,
            )
            for position in range(count)
        ],
        cpu=draw(st.sampled_from([4, 8, 64])),
        gib=draw(st.sampled_from([8, 64])),
        slots=draw(st.sampled_from([2, 110])),
        is_sharing=is_sharing,
        labels={"zone": draw(st.sampled_from("ab"))},
        taints=(Taint(key="t"),) if draw(st.integers(0, 4)) == 0 else (),
        blocked=("unreadable record",) if draw(st.integers(0, 9)) == 0 else (),
    )


@st.composite
def worlds(draw: st.DrawFn) -> list[NodeState]:
    return [draw(states(f"n{i}")) for i in range(draw(st.integers(1, 5)))]


def plan_of(placed: list[tuple[Pod, Berth]]) -> Plan:
    return Plan(placements=tuple(Placement(pod_uid=one.uid, berth=berth) for one, berth in placed))


def somewhere(world: list[NodeState], placed: list[tuple[Pod, Berth]], one: Pod) -> Berth | None:
    """Return a berth that passes the verifier, found by trying every choice of devices on every node."""
    books = {state.node.name: state for state in world}
    for state in world:
        ids = [device.device.id for device in state.devices]
        is_named = one.ask is not None and one.ask.kind is not AskKind.CLASSIC
        for devices in combinations(ids, one.ask.count) if is_named and one.ask is not None else [()]:
            berth = Berth(node=state.node.name, devices=devices)
            if not check(books, [*(p for p, _ in placed), one], plan_of([*placed, (one, berth)])):
                return berth
    return None


@settings(max_examples=80, deadline=None)
@given(worlds(), st.lists(st.tuples(pods(), st.integers(0, 5)), min_size=1, max_size=25))
def test_placements_break_no_rule_and_nothing_that_fits_is_left_out(
    world: list[NodeState], arrivals: list[tuple[Pod, int]]
) -> None:
    index, turned = Index(world), Index()
    for state in reversed(world):
        turned.set_node(state)
    at_first = index.potential()
    books = {state.node.name: state for state in world}
    placed: list[tuple[Pod, Berth]] = []
    for number, (arriving, leaves) in enumerate(arrivals):
        one = Pod(**{name: getattr(arriving, name) for name in arriving.__slots__} | {"uid": f"p{number}"})
        answer = index.place(one)
        assert answer == turned.place(one)
        options = index.options(one, most=3)
        if isinstance(answer, Placement):
            assert options[0] == answer
            assert [o.score for o in options] == sorted(o.score for o in options)
            assert len({o.berth.node for o in options}) == len(options)
            placed.append((one, answer.berth))
            assert check(books, [p for p, _ in placed], plan_of(placed)) == ()
            for copy in (index, turned):
                copy.take(one, answer.berth)
        else:
            assert options == []
            assert somewhere(world, placed, one) is None
        if placed and leaves == 0:
            gone, berth = placed.pop(number % len(placed))
            for copy in (index, turned):
                copy.give_back(gone, berth)
    for gone, berth in placed:
        index.give_back(gone, berth)
    assert index.potential() == at_first


@st.composite
def openb_worlds(draw: st.DrawFn) -> list[NodeState]:
    shapes = st.sampled_from([("G2", 8, 96), ("T4", 2, 64), ("P100", 4, 32), ("G3", 8, 128), ("", 0, 32)])
    world = []
    for number in range(draw(st.integers(1, 5))):
        model, count, cores = draw(shapes)
        left = draw(st.lists(st.sampled_from([0, 100, 320, 470, 530, 1000, 1000]), min_size=count, max_size=count))
        devices = [card(str(i), milli, model=model) for i, milli in enumerate(left)]
        world.append(seat(f"n{number}", devices=devices, cpu=draw(st.integers(0, cores)), capacity_cpu=cores))
    return world


@settings(max_examples=150, deadline=None)
@given(
    openb_worlds(),
    st.sampled_from([share(470), share(320), share(810), share(100, models=("T4",)), chosen(1), chosen(2), None]),
    st.sampled_from([0.5, 3.152, 11.3]),
)
def test_the_chosen_berth_costs_what_the_formula_says(
    world: list[NodeState], ask: DeviceAsk | None, cores: float
) -> None:
    mix = Mix.of(
        {shape: n for shape, n in default_mix().shapes if shape.count < 2}
        | {Shape(milli_cpu=6000, count=1, milli_gpu=1000, models=("T4",)): 1500}
    )
    one = pod("p", cpu=cores, ask=ask)
    devices: Counter[str] = Counter()
    worth = dict.fromkeys(("G2", "T4", "P100", "G3", ""), 0.0)
    for state in world:
        for device, left in zip(state.devices, value_policy.residuals_of(state), strict=True):
            devices[device.device.model] += 1
            worth[device.device.model] += float(frozen_value_table()[left])
    free = {model: (floor(worth[model] / (n * 810 / 32)) + 0.5) * n / 32 for model, n in devices.items()}
    demand = sum(shape.total_milli_gpu * n for shape, n in mix.shapes)
    is_narrow = 0 < devices["T4"] < 0.9 * devices.total()
    levels = {"T4": min(3.0, 1500 * 1000 / demand * sum(free.values()) / free["T4"])} if is_narrow else {}
    costs = value_policy.least_costs(one, world, mix, frozen_value_table().tolist(), levels)
    device_free = {state.node.name: 0.0 for state in world if not state.devices and state.node.name in costs}
    if ask is None and device_free:
        costs = device_free  # ranked among themselves by what CPU they keep
    answer = Index(world, mix=mix, weights=Weights(left_over_scarce=Weights().left_over)).place(one)
    if not isinstance(answer, Placement):
        assert not costs
        return
    assert answer.berth.node in costs
    assert answer.score == pytest.approx(costs[answer.berth.node], abs=0.15)
    assert costs[answer.berth.node] <= min(costs.values()) + 0.1
