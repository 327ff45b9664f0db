"""What-if nodes cost what the index charges, and patterns come from them."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binpack.index import Index, Mix, Shape, Weights
from binpack.planner import draft, question_of
from binpack.solver import wire
from binpack.solver.instance import Budget, PodGroup
from binpack.solver.patterns import UNIT, Columns, Effort, generate
from binpack.solver.sketch import Sketch
from binpack.solver.solve import solve
from fleet.device import AskKind
from fleet.plan import Placement
from fleet.pod import Berth
from tests.support.berths import chosen, pod, seat, share
from tests.support.worlds import batches, clusters

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# The potential alone: no price of models, no reserves, nothing for lesser models.
BARE = Weights(contention=0.0, reserved_milli=0.0, lesser_model_milli=0.0)
# Half of the demand wants whole nodes of eight devices.
EIGHTS = Mix.of(
    {Shape(milli_cpu=64_000, count=8, milli_gpu=1000): 1, Shape(milli_cpu=1000, count=1, milli_gpu=1000): 8}
)


def sketch_of(question):
    return Sketch(question.excerpt, [kind.pod for kind in question.kinds], [len(kind.uids) for kind in question.kinds])


@FEW
@given(clusters(), batches())
def test_an_empty_sketch_scores_a_pod_as_the_index_does(states, pods):
    index = Index(states, weights=BARE)
    question = question_of(index, pods, draft(index, pods))
    if question is None:
        return
    sketch = sketch_of(question)
    steps = sketch.steps(sketch.empty)
    by_uid = {pod.uid: pod for pod in pods}
    for number, kind in enumerate(question.kinds):
        here = steps.group == number
        answer = index.place(by_uid[kind.uids[0]])
        assert isinstance(answer, Placement) == bool(here.any())
        if here.any():
            assert steps.cost[here].min() == pytest.approx(answer.score, abs=1e-9)


@FEW
@given(clusters(), batches())
def test_a_batch_costs_by_how_much_the_potential_rises(states, pods):
    """On nodes with devices; a CPU-only node has no potential, there the best fit is all that is charged."""
    index = Index([state for state in states if state.devices], weights=BARE)
    plan = draft(index, pods)
    question = question_of(index, pods, plan)
    if question is None:
        return
    before = index.potential()
    by_uid = {pod.uid: pod for pod in pods}
    for placement in plan.placements:
        index.take(by_uid[placement.pod_uid], placement.berth)
    answer = solve(question, Budget(deterministic_s=0.05))
    assert answer.draft_cost == pytest.approx(index.potential() - before, abs=0.01)


@FEW
@given(clusters(), batches(), st.booleans())
def test_a_sketch_books_as_the_index_books(states, pods, step_by_step):
    index = Index(states)
    plan = draft(index, pods)
    question = question_of(index, pods, plan)
    if question is None:
        return
    by_uid = {pod.uid: pod for pod in pods}
    sketch = sketch_of(question)
    node = question.seats[0].node
    here = [(s.kind, sketch.sketched(node, s.positions)) for s in question.seats if s.node == node]
    if step_by_step:  # one pod, by the beam's way
        steps = sketch.steps(sketch.empty)
        chosen_step = np.flatnonzero((steps.row == sketch.group_of(node)) & (steps.group == here[0][0]))
        rows = sketch.taken(sketch.empty, steps, chosen_step)
        kind, positions, _ = rows.trails[0][0]
        name, ask = question.excerpt.names[node], question.kinds[kind].pod.ask
        real = () if ask is None or ask.kind is AskKind.CLASSIC else sketch.positions(node, positions)
        ids = question.excerpt.device_ids[node]
        index.take(by_uid[question.kinds[kind].uids[0]], Berth(node=name, devices=tuple(ids[p] for p in real)))
    else:
        rows = sketch.replayed([(sketch.group_of(node), tuple(here))])
        for placement in plan.placements:
            if placement.berth.node == question.excerpt.names[node]:
                index.take(by_uid[placement.pod_uid], placement.berth)
    arrays = index._arrays
    slot = arrays.slots[question.excerpt.names[node]]
    for name in ("milli_cpu", "memory_bytes", "pod_slots"):
        assert getattr(rows.arrays, name)[0] == getattr(arrays, name)[slot], name
    assert rows.arrays.extended("nvidia.com/gpu")[0] == arrays.extended("nvidia.com/gpu")[slot]
    for name in ("residual", "untouched", "free_milli", "free_mib"):
        assert sorted(getattr(rows.arrays, name)[0]) == sorted(getattr(arrays, name)[slot]), name


def test_equal_nodes_are_one_group_whatever_the_order_of_their_devices():
    index = Index([seat("n1", [300, 1000]), seat("n2", [1000, 300]), seat("n3", [1000, 1000])])
    pods = [pod("a", ask=share(500)), pod("b", ask=share(470)), pod("c", ask=chosen(2))]
    question = question_of(index, pods, draft(index, pods))
    sketch = sketch_of(question)
    assert sorted(sketch.members) == [(0, 1), (2,)]
    for node in (0, 1):
        ids = question.excerpt.device_ids[node]
        whole = sketch.positions(node, (0,))
        assert free_milli(index, question.excerpt.names[node], ids[whole[0]]) == 1000
        assert sketch.sketched(node, whole) == (0,)


def free_milli(index, node, device):
    arrays = index._arrays
    slot = arrays.slots[node]
    return arrays.free_milli[slot, arrays.ids[slot].index(device)]


def test_a_sketch_does_not_change_what_it_was_made_of():
    index = Index([seat("n1", [1000, 1000]), seat("n2", [1000])])
    pods = [pod("a", ask=share(500)), pod("b", ask=share(470)), pod("c", ask=chosen(2))]
    question = question_of(index, pods, draft(index, pods))
    sketch = sketch_of(question)
    steps = sketch.steps(sketch.empty)
    sketch.taken(sketch.empty, steps, np.arange(len(steps.row)))
    again = sketch.steps(sketch.empty)
    assert (again.cost == steps.cost).all()
    assert (again.position == steps.position).all()


def test_columns_hold_the_draft_as_their_hint_and_the_cheapest_of_equals():
    index = Index([seat("n1", [1000, 1000]), seat("n2", [1000])])
    pods = [pod(name, ask=share(milli)) for name, milli in (("a", 470), ("b", 530), ("c", 470), ("d", 320))]
    question = question_of(index, pods, draft(index, pods))
    sketch = sketch_of(question)
    columns = Columns(
        sketch, [PodGroup(count=len(kind.uids), tier=0, demand=1) for kind in question.kinds], (), 0.0, 1000
    )
    seatings = {}
    for one in question.seats:
        seatings.setdefault(one.node, []).append((one.kind, sketch.sketched(one.node, one.positions)))
    draft_seatings = [(sketch.group_of(node), tuple(seats)) for node, seats in seatings.items()]
    _, cost = generate(columns, sketch, draft_seatings, Effort())
    instance = columns.instance()
    assert sum(instance.hint) == len(draft_seatings)
    hinted = sum(c.cost * n for c, n in zip(instance.columns, instance.hint, strict=True)) / UNIT
    assert hinted <= cost + 0.01
    keys = [(column.node_group, column.takes) for column in instance.columns]
    assert len(keys) == len(set(keys))


@FEW
@given(clusters(), batches())
def test_a_question_travels_unchanged(states, pods):
    index = Index(states)
    question = question_of(index, pods, draft(index, pods))
    if question is None:
        return
    frame = wire.framed(wire.Request(question=question, budget=Budget()))
    assert wire.body_bytes(frame[: wire.HEADER_BYTES]) == len(frame) - wire.HEADER_BYTES
    assert wire.request(frame[wire.HEADER_BYTES :]).question == question


def test_breaking_into_a_whole_node_is_charged_once_and_not_to_its_owner():
    """Nodes kept for 8-GPU pods: two shares on one broken node cost one node, an 8-GPU pod none."""
    index = Index([seat(f"n{i}", [1000] * 8, cpu=96) for i in range(3)], mix=EIGHTS)
    pods = [pod("a", ask=share(470)), pod("b", ask=share(500)), pod("c", ask=chosen(8), cpu=8)]
    question = question_of(index, pods, draft(index, pods))
    sketch = sketch_of(question)
    owner = next(n for n, kind in enumerate(question.kinds) if kind.uids == ("c",))
    columns = Columns(
        sketch,
        [PodGroup(count=1, tier=0, demand=1)] * 3,
        question.excerpt.reserves,
        question.excerpt.reserve_price,
        1000,
    )
    assert question.excerpt.reserves
    strangers = [number for number in range(3) if number != owner]
    first = columns._breaks(0, tuple((number, 1) for number in strangers))
    assert len(first) == len(set(first)) > 0
    assert columns._breaks(0, ((owner, 1),)) == ()


def test_only_a_node_that_is_kept_is_broken_into_and_not_by_a_cpu_pod_that_leaves_enough():
    index = Index([seat("n1", [1000] * 8, cpu=96), seat("n2", [1000] * 7 + [900], cpu=96)], mix=EIGHTS)
    pods = [pod("a", ask=share(470)), pod("b", ask=share(500)), pod("c", cpu=1), pod("d", cpu=80)]
    question = question_of(index, pods, draft(index, pods))
    sketch = sketch_of(question)
    columns = Columns(
        sketch,
        [PodGroup(count=1, tier=0, demand=1)] * 4,
        question.excerpt.reserves,
        question.excerpt.reserve_price,
        1000,
    )
    number = {kind.uids[0]: place for place, kind in enumerate(question.kinds)}
    kept, broken = (sketch.group_of(question.excerpt.names.index(name)) for name in ("n1", "n2"))
    assert columns._breaks(kept, ((number["a"], 1),))
    assert not columns._breaks(broken, ((number["a"], 1),))
    assert not columns._breaks(kept, ((number["c"], 1),))
    assert columns._breaks(kept, ((number["d"], 1),))


def test_a_node_without_devices_spares_others_only_if_it_has_the_cpu_too():
    states = [seat("n0", [], cpu=2), seat("n1", [1000], cpu=8)]
    index = Index(states, weights=BARE)
    pods = [pod("a", cpu=4), pod("b", cpu=3)]
    question = question_of(index, pods, draft(index, pods))
    sketch = sketch_of(question)
    steps = sketch.steps(sketch.empty)
    costs = [steps.cost[steps.group == number].min() for number in range(len(question.kinds))]
    assert costs == pytest.approx([index.place(one).score for one in pods])
    assert max(costs) < 1000
