"""Models with counts of their own: which way to serve a pod is taken, booked, checked and explained."""

from __future__ import annotations

import pytest

from binpack import fit
from binpack.books import account
from binpack.check import check
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.planner import plan_batch, question_of
from binpack.solver.instance import Budget
from binpack.wording import needs
from fleet.device import Alternative
from fleet.plan import Placement, Plan, Reason, Unplaced
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod, a_state

WAYS = (Alternative(model="B300", count=1), Alternative(model="H200", count=2), Alternative(model="H100", count=4))
COSTS = (
    Alternative(model="B300", count=1, cost_milli=1500),
    Alternative(model="H200", count=2, cost_milli=1000),
    Alternative(model="H100", count=4, cost_milli=1100),
)
STATES = {
    state.node.name: state
    for state in (
        a_state(a_node("b", gpus=1, model="NVIDIA-B300")),
        a_state(a_node("h", gpus=8, model="NVIDIA-H100-80GB-HBM3")),
        a_state(a_node("k", gpus=2, model="NVIDIA-H200")),
    )
}


def placed(ways: tuple[Alternative, ...], many: int) -> list[tuple[str, int]]:
    index = Index(STATES.values())
    found = []
    for number in range(many):
        pod = a_pod(f"p{number}", ways=ways)
        answer = index.place(pod)
        if isinstance(answer, Placement):
            index.take(pod, answer.berth)
            found.append((answer.berth.node, len(answer.berth.devices)))
    return found


def test_the_preferred_way_comes_first_and_the_next_when_it_is_used_up() -> None:
    assert placed(WAYS, 6) == [("b", 1), ("k", 2), ("h", 4), ("h", 4)]


def test_what_a_token_costs_goes_before_the_order() -> None:
    assert placed(COSTS, 6) == [("k", 2), ("h", 4), ("h", 4), ("b", 1)]


def test_a_slightly_dearer_way_wins_where_the_cheaper_one_wastes_devices() -> None:
    """On H200 nodes that have CPU for one pod alone, two of four devices would be stranded."""
    lean = a_state(a_node("k", gpus=4, model="H200", milli_cpu=8_000))
    other = a_state(a_node("h", gpus=4, model="H100", milli_cpu=8_000))
    answer = Index([lean, other]).place(a_pod(ways=COSTS[1:], milli_cpu=8_000))
    assert isinstance(answer, Placement)
    assert answer.berth == Berth(node="h", devices=("0", "1", "2", "3"))


@pytest.mark.parametrize(
    ("node", "devices", "is_lawful"),
    [
        ("b", ("0",), True),
        ("k", ("0", "1"), True),
        ("h", ("0", "1", "2", "3"), True),
        ("h", ("0",), False),
        ("h", ("0", "1"), False),
        ("k", ("0",), False),
    ],
)
def test_every_way_and_no_other_passes_the_verifier_and_the_extender(
    node: str, devices: tuple[str, ...], is_lawful: bool
) -> None:
    pod = a_pod(ways=WAYS)
    berth = Berth(node=node, devices=devices)
    violations = check(STATES, [pod], Plan(placements=(Placement(pod_uid=pod.uid, berth=berth),)))
    assert (violations == ()) is is_lawful
    assert (fit.refusal(pod, berth, STATES[node]) == "") is is_lawful


def test_the_ledger_books_the_way_that_the_record_names() -> None:
    ledger = Ledger()
    ledger.set_node(STATES["k"].node)
    ledger.set_pod(a_pod(ways=WAYS, node="k", devices=("0", "1")))
    state = ledger.state("k")
    assert state is not None
    assert not state.blocked
    assert [device.users for device in state.devices] == [1, 1]
    ledger.set_pod(a_pod(ways=WAYS, node="k", devices=("0", "1", "2")))
    state = ledger.state("k")
    assert state is not None
    assert state.blocked


def test_a_batch_with_such_pods_is_planned_and_solved_around_them() -> None:
    pods = [a_pod(f"w{i}", ways=WAYS) for i in range(3)] + [a_pod(f"o{i}", whole=1, models=("H100",)) for i in range(4)]
    plan = plan_batch(Index(STATES.values()), pods, Budget(), STATES)
    assert not plan.unplaced
    assert check(STATES, pods, plan) == ()
    question = question_of(Index(STATES.values()), pods, plan)
    assert question is None or not [uid for kind in question.kinds for uid in kind.uids if uid.startswith("uid-w")]


def test_the_miss_is_that_of_the_nearest_way() -> None:
    resident = a_pod("r", node="k", whole=1, devices=("0",))
    index = Index([a_state(STATES["k"].node, resident)])
    answer = index.place(a_pod(ways=WAYS))
    assert isinstance(answer, Unplaced)
    assert answer.reason is Reason.INSUFFICIENT
    assert answer.shortfall is not None
    assert answer.shortfall.missing == (("devices", 1),)
    assert needs(a_pod(ways=WAYS)).startswith("1 free B300 or 2 free H200 or 4 free H100 on one node")
    nowhere = Index([a_state(a_node("t", gpus=8, model="T4"))]).place(a_pod(ways=WAYS))
    assert isinstance(nowhere, Unplaced)
    assert nowhere.reason is Reason.NO_SUCH_DEVICE


def test_a_slice_that_a_plugin_calls_a_gpu_is_not_the_card() -> None:
    state = a_state(a_node(gpus=7, model="NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", is_sharing=False))
    whole, slices = a_pod(classic=1, models=("H100",)), a_pod(classic=1, models=("H100-80GB-HBM3-MIG-1g.10gb",))
    assert account(state.node, []).state.devices
    for pod, fits in ((whole, False), (slices, True)):
        answer = Index([state]).place(pod)
        assert isinstance(answer, Placement) is fits
        plan = Plan(placements=(Placement(pod_uid=pod.uid, berth=Berth(node="n1")),))
        assert (check({"n1": state}, [pod], plan) == ()) is fits
