"""What the index answers in plain situations, and what it says when it has no place."""

from __future__ import annotations

import dataclasses

import pytest

from binpack.index import Index, Mix, Shape, UnknownBerthError, Weights
from binpack.trace import empty_state, load_nodes
from fleet.constraints import NodeConstraints, NodeTerm, Requirement, Taint
from fleet.device import DeviceAsk
from fleet.plan import Placement, Reason, Shortfall, Unplaced
from fleet.pod import Berth
from tests.support.berths import GIB, card, chosen, classic, pod, seat, share


def placed(answer: Placement | Unplaced) -> Berth:
    assert isinstance(answer, Placement), answer
    return answer.berth


def missed(answer: Placement | Unplaced) -> Unplaced:
    assert isinstance(answer, Unplaced), answer
    return answer


def test_shares_fill_a_started_device_before_a_fresh_one() -> None:
    index = Index([seat("n1", [1000, 530]), seat("n2", [1000, 1000])])
    assert placed(index.place(pod("p", ask=share(470)))) == Berth(node="n1", devices=("1",))


def test_equal_nodes_go_by_name_whatever_the_order_of_arrival() -> None:
    index = Index([seat("b", [1000]), seat("c", [1000]), seat("a", [1000])])
    assert placed(index.place(pod("p", ask=chosen()))).node == "a"
    index.remove_node("a")
    index.set_node(seat("aa", [1000]))
    assert placed(index.place(pod("p", ask=chosen()))).node == "aa"


def test_whole_devices_are_named_in_inventory_order_and_classic_ones_only_counted() -> None:
    index = Index([seat("n1", [400, 1000, 1000, 1000])])
    assert placed(index.place(pod("p", ask=chosen(2)))) == Berth(node="n1", devices=("1", "2"))
    index = Index([seat("n1", [1000, 1000], is_sharing=False), seat("n2", [1000, 1000])])
    assert placed(index.place(pod("p", ask=classic(2)))) == Berth(node="n1")


def test_a_classic_count_is_taken_and_given_back() -> None:
    index = Index([seat("n1", [1000, 1000], is_sharing=False)])
    one = pod("p", ask=classic(1))
    for _ in range(2):
        index.take(one, Berth(node="n1"))
    assert missed(index.place(one)).shortfall == Shortfall(node="n1", missing=(("devices", 1),))
    index.give_back(one, Berth(node="n1"))
    assert placed(index.place(one)).node == "n1"


def test_several_shares_go_on_different_devices() -> None:
    index = Index([seat("n1", [300, 1000, 300, 200])])
    assert placed(index.place(pod("p", ask=share(300, count=2)))) == Berth(node="n1", devices=("0", "2"))


def test_device_memory_limits_shares_and_counts_as_used() -> None:
    state = seat("n1", devices=[card("0", memory_mib=1000), card("1", memory_mib=1000, free_mib=300, free_milli=900)])
    index = Index([state])
    assert placed(index.place(pod("p", ask=share(100, mib=400)))).devices == ("0",)
    assert placed(index.place(pod("p", ask=share(100, mib=300)))).devices == ("1",)
    index.take(pod("p", ask=share(100, mib=900)), Berth(node="n1", devices=("0",)))
    miss = missed(index.place(pod("p", ask=share(100, mib=400))))
    assert miss.shortfall == Shortfall(node="n1", missing=(("gpu_memory_mib", 100),))


def test_a_full_card_of_unknown_memory_takes_no_share_of_memory_alone() -> None:
    index = Index([seat("n1", [0])])
    miss = missed(index.place(pod("p", ask=share(0, mib=10))))
    assert miss.shortfall == Shortfall(node="n1", missing=(("milli_gpu", 1),))
    assert isinstance(Index([seat("n1", [1])]).place(pod("p", ask=share(0, mib=10))), Placement)


def test_cpu_only_pods_keep_off_devices_while_another_node_has_room() -> None:
    index = Index([seat("gpu", [1000]), seat("plain", cpu=4), seat("roomy", cpu=64)])
    assert placed(index.place(pod("p", cpu=4))).node == "plain"
    assert placed(index.place(pod("p", cpu=5))).node == "roomy"
    assert [option.berth.node for option in index.options(pod("p", cpu=4), 9)] == ["plain", "roomy", "gpu"]
    index.remove_node("roomy")
    assert placed(index.place(pod("p", cpu=5))).node == "gpu"


def test_models_match_as_words_of_the_product_name_and_in_the_wished_order() -> None:
    nodes = [
        seat("n1", devices=[card("0", model="NVIDIA-A100-SXM4-80GB")]),
        seat("n2", devices=[card("0", model="NVIDIA-H100-80GB-HBM3")]),
    ]
    index = Index(nodes)
    wish = DeviceAsk(kind=chosen().kind, models=("H100", "A100"), is_ordered=True)
    assert placed(index.place(pod("p", ask=wish))).node == "n2"
    assert placed(index.place(pod("p", ask=dataclasses.replace(wish, is_ordered=False)))).node == "n1"
    assert [o.berth.node for o in index.options(pod("p", ask=wish), most=5)] == ["n2", "n1"]
    assert missed(index.place(pod("p", ask=chosen(models=("B200",))))).reason is Reason.NO_SUCH_DEVICE


def test_the_wished_model_is_taken_first_on_a_mixed_node() -> None:
    index = Index([seat("n1", devices=[card("0", model="A"), card("1", model="B")])])
    for kind in (chosen(), share(500)):
        wish = dataclasses.replace(kind, models=("B", "A"), is_ordered=True)
        assert placed(index.place(pod("p", ask=wish))).devices == ("1",)


def test_contended_models_are_spared_for_those_who_need_them() -> None:
    mix = Mix.of(
        {
            Shape(milli_cpu=1000, count=1, milli_gpu=1000, models=("A",)): 9,
            Shape(milli_cpu=1000, count=1, milli_gpu=1000): 10,
        }
    )
    nodes = [seat("a", devices=[card("0", model="A")]), seat("b", devices=[card("0", model="B")])]
    assert placed(Index(nodes, mix=mix).place(pod("p", ask=chosen()))).node == "b"
    free = Mix.of({Shape(milli_cpu=1000, count=1, milli_gpu=1000): 1})
    assert placed(Index(nodes, mix=free).place(pod("p", ask=chosen()))).node == "a"


def test_no_nodes() -> None:
    assert missed(Index().place(pod("p"))) == Unplaced(pod_uid="p", reason=Reason.NO_NODES)


def test_a_malformed_pod_is_never_placed() -> None:
    broken = pod("p", problems=("memory is 'lots'",))
    index = Index([seat("n1")])
    assert missed(index.place(broken)).detail == "memory is 'lots'"
    assert index.options(broken, most=3) == []


def test_constraints_that_no_node_meets_are_told_from_shortages() -> None:
    index = Index([seat("n1", [1000], taints=(Taint(key="t"),)), seat("n2", [1000], is_cordoned=True)])
    assert missed(index.place(pod("p"))).reason is Reason.NO_NODE_ALLOWED
    index.set_node(seat("n2", [1000]))
    assert placed(index.place(pod("p"))).node == "n2"
    index.set_node(seat("n2", [1000], is_cordoned=True))
    assert missed(index.place(pod("p"))).reason is Reason.NO_NODE_ALLOWED


def test_labels_names_and_later_changes_of_them_are_heeded() -> None:
    by_label = pod("p", constraints=NodeConstraints(node_selector=(("zone", "a"),)))
    named = Requirement(key="metadata.name", operator="In", values=("n2",))
    by_name = pod("p", constraints=NodeConstraints(terms=(NodeTerm(fields=(named,)),)))
    index = Index([seat("n1", labels={"zone": "a"}), seat("n2", labels={"zone": "b"})])
    assert placed(index.place(by_label)).node == "n1"
    assert placed(index.place(by_name)).node == "n2"
    index.set_node(seat("n1", labels={"zone": "b"}))
    index.set_node(seat("n2", labels={"zone": "a"}))
    assert placed(index.place(by_label)).node == "n2"
    index.remove_node("n2")
    assert missed(index.place(by_label)).reason is Reason.NO_NODE_ALLOWED
    index.set_node(seat("n2"))
    assert placed(index.place(by_name)).node == "n2"


def test_a_shortage_names_the_nearest_node_and_every_amount() -> None:
    index = Index([seat("n1", [1000] * 2, cpu=8), seat("n2", [1000] * 4, cpu=2), seat("n3", [200], cpu=64)])
    miss = missed(index.place(pod("p", cpu=12, ask=chosen(2))))
    assert miss == Unplaced(
        pod_uid="p",
        reason=Reason.INSUFFICIENT,
        detail="best of 3 allowed nodes is n1, which lacks 4000 milli_cpu",
        allowed_nodes=3,
        shortfall=Shortfall(node="n1", missing=(("milli_cpu", 4000),)),
    )
    assert missed(index.place(pod("p", cpu=12, ask=chosen(2)), with_shortfall=False)).shortfall is None
    miss = missed(index.place(pod("p", cpu=12, gib=300, ask=chosen(2))))
    assert miss.shortfall == Shortfall(node="n1", missing=(("milli_cpu", 4000), ("memory_bytes", 44 * GIB)))


def test_a_request_that_no_device_could_ever_hold_is_no_mere_shortage() -> None:
    index = Index([seat("n1", devices=[card("0", memory_mib=1000)]), seat("n2", [1000], is_sharing=False)])
    assert missed(index.place(pod("p", ask=chosen(2)))).reason is Reason.NO_SUCH_DEVICE
    assert missed(index.place(pod("p", ask=share(100, mib=2000)))).reason is Reason.NO_SUCH_DEVICE
    assert missed(index.place(pod("p", ask=classic(2)))).reason is Reason.NO_SUCH_DEVICE
    index.take(pod("q", ask=chosen()), Berth(node="n1", devices=("0",)))
    miss = missed(index.place(pod("p", ask=share(100))))
    assert miss.reason is Reason.INSUFFICIENT
    assert miss.shortfall == Shortfall(node="n1", missing=(("milli_gpu", 100),))


def test_devices_on_nodes_of_the_other_kind_are_told_of() -> None:
    sharing, classical = [seat(f"s{i}", [1000, 1000]) for i in range(2)], seat("c", [1000], is_sharing=False)
    text = missed(Index(sharing).place(pod("p", ask=classic(2)))).detail
    assert text == (
        "none of 2 allowed nodes has 2 healthy whole devices; "
        "2 that have them are set aside for sharing and take no nvidia.com/gpu"
    )
    text = missed(Index([classical]).place(pod("p", ask=share(100)))).detail
    assert text.endswith("; 1 that have them are not set aside for sharing and take nvidia.com/gpu alone")
    for nodes, ask in ((sharing, chosen(3)), (sharing, classic(3)), ([seat("b", [1000], blocked=("x",))], classic(1))):
        assert ";" not in missed(Index(nodes).place(pod("p", ask=ask))).detail


def test_pods_of_a_kind_that_wait_cost_one_explanation_until_something_changes() -> None:
    index = Index([seat("n1", [1000])])
    first = missed(index.place(pod("p", ask=chosen(1), cpu=100)))
    again = missed(index.place(pod("q", ask=chosen(1), cpu=100)))
    assert again == dataclasses.replace(first, pod_uid="q")
    assert again.shortfall is first.shortfall
    index.set_node(seat("n1", [1000], cpu=90))
    assert missed(index.place(pod("p", ask=chosen(1), cpu=100))).shortfall == Shortfall(
        node="n1", missing=(("milli_cpu", 10_000),)
    )


def test_blocked_nodes_give_no_device_but_run_pods_without() -> None:
    index = Index([seat("n1", [1000], blocked=("record of pod x cannot be read",))])
    assert missed(index.place(pod("p", ask=share(100)))).reason is Reason.NO_SUCH_DEVICE
    assert placed(index.place(pod("p"))).node == "n1"


def test_sick_devices_are_never_given() -> None:
    index = Index([seat("n1", devices=[card("0", is_healthy=False), card("1")])])
    assert placed(index.place(pod("p", ask=chosen()))).devices == ("1",)
    assert missed(index.place(pod("p", ask=chosen(2)))).reason is Reason.NO_SUCH_DEVICE


def test_other_resources_and_pod_slots_limit() -> None:
    index = Index([seat("n1", extended={"rdma/hca": 2}), seat("n2", slots=1)])
    wanted = pod("p", extended={"rdma/hca": 2})
    assert placed(index.place(wanted)).node == "n1"
    index.take(wanted, Berth(node="n1"))
    assert missed(index.place(wanted)).shortfall == Shortfall(node="n1", missing=(("rdma/hca", 2),))
    index.give_back(wanted, Berth(node="n1"))
    assert placed(index.place(wanted)).node == "n1"
    assert missed(index.place(pod("p", extended={"never/heard": 1}))).reason is Reason.INSUFFICIENT
    index.remove_node("n1")
    index.take(pod("q"), Berth(node="n2"))
    assert missed(index.place(pod("p"))).shortfall == Shortfall(node="n2", missing=(("pod_slots", 1),))


def test_over_committed_nodes_still_take_what_asks_nothing_of_the_short_resource() -> None:
    state = seat("n1", cpu=-3)
    assert placed(Index([state]).place(pod("p", cpu=0))).node == "n1"
    assert missed(Index([state]).place(pod("p", cpu=0.001))).reason is Reason.INSUFFICIENT


@pytest.mark.parametrize("amount", [2**52, 2**63, 2**80])
def test_absurd_amounts_are_refused_not_wrapped_around(amount: int) -> None:
    index = Index([seat("n1", devices=[card("0", memory_mib=1000)], extended={"x/y": 5})])
    for one in (
        pod("p", cpu=amount),
        pod("p", gib=amount),
        pod("p", ask=share(100, mib=amount)),
        pod("p", ask=chosen(mib=amount)),
        pod("p", ask=chosen(amount)),
        pod("p", extended={"x/y": amount}),
    ):
        assert missed(index.place(one)).reason in (Reason.INSUFFICIENT, Reason.NO_SUCH_DEVICE)
    assert placed(index.place(pod("p", ask=share(100)))).node == "n1"


def test_more_devices_than_any_node_before_widen_the_arrays() -> None:
    index = Index([seat("n1", [1000] * 8)])
    index.set_node(seat("n2", [1000] * 16))
    assert len(placed(index.place(pod("p", ask=chosen(16)))).devices) == 16
    assert missed(index.place(pod("p", ask=chosen(17)))).reason is Reason.NO_SUCH_DEVICE
    assert missed(index.place(pod("p", ask=share(10, count=40)))).reason is Reason.NO_SUCH_DEVICE


def test_many_nodes_come_and_go() -> None:
    index = Index()
    for i in range(200):
        index.set_node(seat(f"n{i}", [1000]))
        assert placed(index.place(pod("p", ask=chosen()))).node == "n0"
    for i in range(199):
        index.remove_node(f"n{i}")
        index.remove_node(f"n{i}")
    assert placed(index.place(pod("p", ask=chosen()))).node == "n199"
    assert index.potential() == Index([seat("n199", [1000])]).potential()


def test_bookings_on_what_is_not_there_are_named() -> None:
    index = Index([seat("n1", [1000])])
    with pytest.raises(UnknownBerthError, match="no node 'n2'"):
        index.take(pod("p"), Berth(node="n2"))
    with pytest.raises(UnknownBerthError, match=r"'n1' has not all of the devices \('7',\)"):
        index.take(pod("p", ask=chosen()), Berth(node="n1", devices=("7",)))
    assert placed(index.place(pod("p", ask=chosen()))).devices == ("0",)


def test_asking_changes_nothing() -> None:
    index = Index([seat("n1", [1000, 470]), seat("n2", [1000])])
    before = index.potential()
    answers = [index.place(pod("p", ask=share(470))) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    index.options(pod("p", ask=share(470)), most=2)
    assert index.potential() == before


def test_a_few_small_shares_begin_few_nodes() -> None:
    """Each stands on a device of its own, whose last 190 milli nobody else could use."""

    def begun(weights: Weights) -> int:
        index = Index([empty_state(node) for node in load_nodes()], weights=weights)
        nodes = set()
        for number in range(8):
            one = pod(f"p{number}", ask=share(100))
            berth = placed(index.place(one))
            index.take(one, berth)
            nodes.add(berth.node)
        return len(nodes)

    assert begun(Weights(idle_node_milli=20)) == 1
    assert begun(Weights()) < begun(Weights(idle_node_milli=0))


def test_a_pod_without_devices_leaves_a_node_as_idle_as_it_was() -> None:
    index = Index([seat("a", [1000] * 2), seat("b", [1000, 500])])
    one = pod("p", cpu=0.001)
    before = index.potential()
    for node in ("a", "b"):
        index.take(one, Berth(node=node))
        assert index.potential() == pytest.approx(before, abs=5.0)
        index.give_back(one, Berth(node=node))
