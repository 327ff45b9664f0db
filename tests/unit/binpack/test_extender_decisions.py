"""What Filter decides: pods and a ledger in, a verdict out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from binpack.extender import PROMISE_S, Extender, Outcome
from binpack.ledger import Ledger
from fleet import labels
from fleet.pod import Berth, Phase, Pod
from tests.support.builders import a_node, a_pod


class Cluster:
    """A ledger and its extender, fed as the watches feed them."""

    def __init__(self, *nodes, pods=()):
        self.ledger = Ledger()
        self.extender = Extender(self.ledger)
        for node in nodes:
            self.ledger.set_node(node)
        for pod in pods:
            self.see(pod)

    def see(self, pod: Pod) -> None:
        self.ledger.set_pod(pod)
        self.extender.pod_seen(pod)

    def gone(self, pod: Pod) -> None:
        self.ledger.remove_pod(pod.uid)
        self.extender.pod_gone(pod.uid)

    def filter(self, pod: Pod, names, now_s: float = 0.0):
        verdict = self.extender.filter(pod, list(names), now_s)
        assert set(verdict.passed) <= set(names)
        assert not set(verdict.passed) & set(verdict.failed)
        return verdict


def ungated(name: str = "p", **asked) -> Pod:
    return a_pod(name, gates=(), **asked)


def test_a_pin_that_the_ledger_confirms_passes():
    pod = a_pod("p", whole=2, pin="n1", devices=("0", "1"))
    for is_seen in (False, True):
        cluster = Cluster(a_node("n1", gpus=2), pods=[pod] if is_seen else [])
        verdict = cluster.filter(pod, ["n1"])
        assert (verdict.outcome, list(verdict.passed), dict(verdict.failed)) == (Outcome.VERIFIED, ["n1"], {})


def test_other_nodes_fail_a_pinned_pod_with_the_name_of_its_own():
    pod = a_pod("p", whole=1, pin="n1", devices=("0",))
    verdict = Cluster(a_node("n1", gpus=1), a_node("n2", gpus=1)).filter(pod, ["n2", "n1"])
    assert list(verdict.passed) == ["n1"]
    assert "n1" in verdict.failed["n2"]


def test_a_pin_is_vetoed_if_its_node_was_not_offered():
    pod = a_pod("p", whole=1, pin="n1", devices=("0",))
    verdict = Cluster(a_node("n1", gpus=1), a_node("n2", gpus=1)).filter(pod, ["n2"])
    assert (verdict.outcome, list(verdict.passed)) == (Outcome.VETOED, [])
    assert list(verdict.failed) == ["n2"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (a_pod("other", whole=1, node="n1", devices=("1",)), "device 1 is held by another pod"),
        (a_pod("other", milli=300, node="n1", devices=("1",)), "device 1 is held by another pod"),
        (a_pod("other", whole=1, node="n1", devices=("1",), is_terminating=True), "device 1 is held"),
        (a_pod("other", whole=1, pin="n1", devices=("1",)), "device 1 is held by another pod"),
    ],
)
def test_a_device_that_another_pod_holds_is_vetoed(other, words):
    pod = a_pod("p", whole=1, pin="n1", devices=("1",))
    cluster = Cluster(a_node("n1", gpus=2), pods=[other, pod])
    verdict = cluster.filter(pod, ["n1"])
    assert (verdict.outcome, list(verdict.passed)) == (Outcome.VETOED, [])
    assert words in verdict.failed["n1"]


def test_a_finished_pod_stands_in_nobodys_way():
    other = a_pod("other", whole=1, node="n1", devices=("0",), phase=Phase.SUCCEEDED)
    pod = a_pod("p", whole=1, pin="n1", devices=("0",))
    assert Cluster(a_node("n1", gpus=1), pods=[other]).filter(pod, ["n1"]).outcome is Outcome.VERIFIED


def test_a_dead_device_is_vetoed_and_its_neighbour_is_not():
    node = a_node("n1", gpus=2, dead=["0"])
    dead = Cluster(node).filter(a_pod("p", whole=1, pin="n1", devices=("0",)), ["n1"])
    assert dead.outcome is Outcome.VETOED
    assert "device 0 is not healthy" in dead.failed["n1"]
    assert Cluster(node).filter(a_pod("p", whole=1, pin="n1", devices=("1",)), ["n1"]).outcome is Outcome.VERIFIED


def test_shares_are_counted_per_device():
    other = a_pod("other", milli=700, mib=6000, node="n1", devices=("0",))
    cluster = Cluster(a_node("n1", gpus=2, memory_mib=8000), pods=[other])
    assert cluster.filter(a_pod("a", milli=300, pin="n1", devices=("0",)), ["n1"]).outcome is Outcome.VERIFIED
    too_much = cluster.filter(a_pod("b", milli=301, pin="n1", devices=("0",)), ["n1"])
    assert "device 0 has 300 milli-GPU free, 301 are asked" in too_much.failed["n1"]
    too_big = cluster.filter(a_pod("c", mib=2001, pin="n1", devices=("0",)), ["n1"])
    assert "device 0 has 2000 MiB free, 2001 are asked" in too_big.failed["n1"]


@pytest.mark.parametrize("devices", [("7",), ("0", "1")])
def test_a_record_that_does_not_suit_is_vetoed(devices):
    pod = a_pod("p", whole=1, pin="n1", devices=devices)
    verdict = Cluster(a_node("n1", gpus=2)).filter(pod, ["n1"])
    assert verdict.outcome is Outcome.VETOED
    assert verdict.failed["n1"]


def test_other_amounts_are_checked_beside_devices():
    other = a_pod("other", milli_cpu=3000, node="n1")
    pod = a_pod("p", whole=1, milli_cpu=2000, pin="n1", devices=("0",))
    verdict = Cluster(a_node("n1", gpus=1, milli_cpu=4000), pods=[other]).filter(pod, ["n1"])
    assert verdict.outcome is Outcome.VETOED
    assert "milli_cpu" in verdict.failed["n1"]


def test_a_pin_to_a_node_nobody_knows_is_vetoed():
    verdict = Cluster().filter(a_pod("p", whole=1, pin="ghost", devices=("0",)), ["ghost"])
    assert verdict.outcome is Outcome.VETOED
    assert "not known" in verdict.failed["ghost"]


def test_a_classic_pod_is_counted():
    node = a_node("n1", gpus=2, is_sharing=False)
    other = a_pod("other", classic=1, node="n1")
    cluster = Cluster(node, pods=[other])
    assert cluster.filter(a_pod("a", classic=1, pin="n1"), ["n1"]).outcome is Outcome.VERIFIED
    assert cluster.filter(a_pod("b", classic=2, pin="n1"), ["n1"]).outcome is Outcome.VETOED


def test_a_pod_on_a_closed_node_is_vetoed_with_the_cause():
    unreadable = a_pod("bad", whole=1, node="n1", record_problem="devices ',': '' is not a device id")
    pod = a_pod("p", whole=1, pin="n1", devices=("1",))
    verdict = Cluster(a_node("n1", gpus=2), pods=[unreadable]).filter(pod, ["n1"])
    assert verdict.outcome is Outcome.VETOED
    assert "is not a device id" in verdict.failed["n1"]


@pytest.mark.parametrize("asked", [{"whole": 1}, {"milli": 500}, {"mib": 1}])
def test_devices_that_were_never_given_fail_every_node(asked):
    verdict = Cluster(a_node("n1", gpus=1)).filter(ungated(**asked), ["n1", "n2"])
    assert (verdict.outcome, list(verdict.passed)) == (Outcome.UNPLANNED, [])
    assert set(verdict.failed) == {"n1", "n2"}
    assert "never planned" in verdict.failed["n1"]


def test_a_pin_without_the_devices_it_needs_fails():
    verdict = Cluster(a_node("n1", gpus=1)).filter(a_pod("p", whole=1, pin="n1"), ["n1"])
    assert verdict.outcome is Outcome.UNPLANNED


def test_a_gated_or_unreadable_pod_fails_every_node():
    cluster = Cluster(a_node("n1", gpus=1))
    gated = cluster.filter(a_pod("p", classic=1), ["n1"])
    assert gated.outcome is Outcome.UNPLANNED
    assert labels.PLAN_GATE in gated.failed["n1"]
    unreadable = cluster.filter(ungated("q", problems=("gpu-milli: 'x' is not a quantity",)), ["n1"])
    assert unreadable.outcome is Outcome.UNPLANNED
    assert "is not a quantity" in unreadable.failed["n1"]


def test_pods_of_other_schedulers_pass_everywhere():
    pod = a_pod("p", whole=3, gates=(), scheduler_name="default-scheduler")
    verdict = Cluster().filter(pod, ["n1", "ghost"])
    assert (verdict.outcome, list(verdict.passed)) == (Outcome.FOREIGN, ["n1", "ghost"])


def test_a_pod_without_devices_passes_where_the_ledger_does_not_object():
    cluster = Cluster(a_node("n1", milli_cpu=4000), a_node("n2", milli_cpu=4000), a_node("n3", milli_cpu=4000))
    cluster.see(a_pod("planned", milli_cpu=3000, pin="n2"))
    verdict = cluster.filter(ungated(milli_cpu=2000), ["n1", "n2", "n3", "ghost"])
    assert (verdict.outcome, list(verdict.passed)) == (Outcome.PASSED, ["n1", "n3"])
    assert "1 core" in verdict.failed["n2"]
    assert "not known" in verdict.failed["ghost"]
    cluster.see(a_pod("planned", milli_cpu=3000, pin="n2", node="n2"))
    # Bound: from here on the scheduler's own arithmetic sees it.
    assert list(cluster.filter(ungated(milli_cpu=2000), ["n1", "n2", "n3"]).passed) == ["n1", "n2", "n3"]


def test_a_classic_pod_is_kept_off_sharing_nodes():
    cluster = Cluster(a_node("shared", gpus=2), a_node("classic", gpus=2, is_sharing=False))
    assert list(cluster.filter(ungated(classic=1), ["shared", "classic"]).passed) == ["classic"]


CANDIDATES = (Berth(node="n2", devices=("0",)), Berth(node="n1", devices=("1",)))


def steered(name: str = "p", candidates: tuple[Berth, ...] = CANDIDATES, **more) -> Pod:
    return a_pod(name, whole=1, candidates=candidates, **more)


@pytest.fixture
def two_nodes() -> Cluster:
    return Cluster(a_node("n1", gpus=2), a_node("n2", gpus=2))


def test_the_first_candidate_free_is_the_answer(two_nodes):
    pod = steered()
    two_nodes.see(pod)
    verdict = two_nodes.filter(pod, ["n1", "n2", "n3"])
    assert (verdict.outcome, list(verdict.passed)) == (Outcome.STEERED, ["n2"])
    assert list(two_nodes.filter(pod, ["n1"]).passed) == ["n1"]


def test_a_candidate_taken_meanwhile_is_passed_over(two_nodes):
    two_nodes.see(a_pod("other", milli=10, node="n2", devices=("0",)))
    two_nodes.see(steered())
    verdict = two_nodes.filter(steered(), ["n1", "n2"])
    assert list(verdict.passed) == ["n1"]
    assert "device 0 is held" in verdict.failed["n2"]


def test_no_candidate_free_fails_every_node_with_its_own_reason(two_nodes):
    two_nodes.see(a_pod("a", whole=1, node="n2", devices=("0",)))
    two_nodes.see(a_pod("b", whole=1, node="n1", devices=("1",)))
    two_nodes.see(steered())
    verdict = two_nodes.filter(steered(), ["n1", "n2", "n3"])
    assert (verdict.outcome, list(verdict.passed)) == (Outcome.NO_CANDIDATE, [])
    assert "device 1 is held" in verdict.failed["n1"]
    assert "planned for n2, n1" in verdict.failed["n3"]
    assert two_nodes.extender.promises == 0


def test_a_promise_keeps_the_devices_from_the_next_pod(two_nodes):
    first, second = steered("first"), steered("second")
    two_nodes.see(first)
    two_nodes.see(second)
    # Recorded first candidates already exclude each other in the ledger; the promise says who really has it.
    assert list(two_nodes.filter(first, ["n1"]).passed) == ["n1"]
    assert list(two_nodes.filter(second, ["n1", "n2"]).passed) == ["n2"]
    assert two_nodes.filter(second, ["n1"]).outcome is Outcome.NO_CANDIDATE


def test_asking_again_gets_the_same_answer(two_nodes):
    pod = steered()
    two_nodes.see(pod)
    for _ in range(3):
        assert list(two_nodes.filter(pod, ["n1", "n2"]).passed) == ["n2"]
    assert two_nodes.extender.promises == 1


def test_a_promise_ends_after_its_time(two_nodes):
    first, second = steered("first"), steered("second")
    two_nodes.see(first)
    two_nodes.see(second)
    two_nodes.filter(first, ["n1"], now_s=100.0)
    assert two_nodes.filter(second, ["n1"], now_s=100.0 + PROMISE_S - 0.001).outcome is Outcome.NO_CANDIDATE
    assert list(two_nodes.filter(second, ["n1"], now_s=100.0 + PROMISE_S).passed) == ["n1"]


def test_promises_end_in_the_order_of_their_last_asking(two_nodes):
    first, second = steered("first"), steered("second", candidates=(Berth(node="n2", devices=("1",)),))
    two_nodes.see(first)
    two_nodes.see(second)
    two_nodes.filter(first, ["n1"], now_s=0.0)
    two_nodes.filter(second, ["n2"], now_s=10.0)
    two_nodes.filter(first, ["n1"], now_s=20.0)
    two_nodes.filter(a_pod("other", gates=()), ["n1"], now_s=10.0 + PROMISE_S)
    assert two_nodes.extender.promises == 1
    two_nodes.filter(a_pod("other", gates=()), ["n1"], now_s=20.0 + PROMISE_S)
    assert two_nodes.extender.promises == 0


def test_nothing_is_promised_to_a_pod_that_the_ledger_has_not_seen(two_nodes):
    verdict = two_nodes.filter(steered(), ["n1", "n2"])
    assert (verdict.outcome, list(verdict.passed)) == (Outcome.BEHIND, [])
    assert two_nodes.extender.promises == 0


def test_a_promise_survives_the_mark_of_an_eviction(two_nodes):
    first, second = steered("first"), steered("second")
    two_nodes.see(first)
    two_nodes.see(second)
    two_nodes.filter(first, ["n1"])
    two_nodes.see(steered("first", is_terminating=True))
    assert two_nodes.filter(second, ["n1"]).outcome is Outcome.NO_CANDIDATE


def test_a_promise_survives_news_that_do_not_touch_it(two_nodes):
    first, second = steered("first"), steered("second")
    two_nodes.see(first)
    two_nodes.see(second)
    two_nodes.filter(first, ["n1"])
    two_nodes.see(steered("first", is_unschedulable=True))
    assert two_nodes.filter(second, ["n1"]).outcome is Outcome.NO_CANDIDATE


def test_a_promise_ends_when_the_pod_is_seen_bound_or_gone(two_nodes):
    first = steered("first")
    two_nodes.see(first)
    two_nodes.filter(first, ["n1"])
    two_nodes.see(steered("first", node="n1"))
    assert two_nodes.extender.promises == 0
    assert two_nodes.ledger.berth_of(first.uid) == Berth(node="n1", devices=("1",))
    second = steered("second")
    two_nodes.see(second)
    two_nodes.filter(second, ["n2"])
    two_nodes.gone(second)
    assert two_nodes.extender.promises == 0
    assert two_nodes.extender.contested == 0


def test_the_ledger_is_as_before_once_all_promises_are_over(two_nodes):
    pods = [steered(f"p{i}") for i in range(3)]
    for pod in pods:
        two_nodes.see(pod)
    before = two_nodes.ledger.picture()
    for pod in pods:
        two_nodes.filter(pod, ["n1", "n2"])
    two_nodes.filter(a_pod("other", scheduler_name=labels.SCHEDULER_NAME, gates=()), ["n1"], now_s=PROMISE_S)
    assert two_nodes.extender.promises == 0
    assert two_nodes.ledger.picture() == before


def test_candidates_score_in_their_order(two_nodes):
    pod = steered()
    assert two_nodes.extender.scores(pod, ["n1", "n2", "n3"]) == [("n1", 9), ("n2", 10), ("n3", 0)]
    many = steered("q", candidates=tuple(Berth(node=f"c{i}", devices=("0",)) for i in range(20)))
    scores = dict(two_nodes.extender.scores(many, [f"c{i}" for i in range(20)]))
    assert scores["c0"] == 10
    assert scores["c19"] == 0
    assert min(scores.values()) == 0
    foreign = a_pod("f", scheduler_name="other", candidates=CANDIDATES)
    assert two_nodes.extender.scores(foreign, ["n1", "n2"]) == [("n1", 0), ("n2", 0)]
    pinned = a_pod("x", whole=1, pin="n1", devices=("0",))
    assert two_nodes.extender.scores(pinned, ["n1", "n2"]) == [("n1", 10), ("n2", 0)]


def test_behind_means_that_the_scheduler_has_seen_more(two_nodes):
    pod = replace(a_pod("p", whole=1, pin="n1", devices=("0",)), resource_version="100")
    assert two_nodes.extender.is_behind(pod)
    two_nodes.see(replace(pod, resource_version="99"))
    assert two_nodes.extender.is_behind(pod)
    two_nodes.see(pod)
    assert not two_nodes.extender.is_behind(pod)
    two_nodes.see(replace(pod, resource_version="101"))
    assert not two_nodes.extender.is_behind(pod)
    elsewhere = replace(a_pod("q", whole=1, pin="new", devices=("0",)), resource_version="5")
    two_nodes.see(elsewhere)
    assert two_nodes.extender.is_behind(elsewhere)
    two_nodes.ledger.set_node(a_node("new", gpus=1))
    assert not two_nodes.extender.is_behind(elsewhere)


@pytest.mark.parametrize("version", ["", "abc", "²", "9" * 400, "-4"])
def test_a_version_that_is_no_number_never_makes_anybody_wait(two_nodes, version):
    pod = replace(a_pod("p", whole=1, pin="n1", devices=("0",)), resource_version=version)
    two_nodes.see(pod)
    assert not two_nodes.extender.is_behind(pod)


def claimant(name="p", **words) -> Pod:
    return replace(ungated(name, **words), has_claims=True)


def test_a_handed_over_pod_with_claims_keeps_off_nodes_whose_devices_a_seat_waits_for():
    """kube-scheduler would allocate what was freed for the seat; it allocates for such pods alone."""
    seated = replace(a_pod("seated", seat=Berth(node="n1")), has_claims=True)
    cluster = Cluster(a_node("n1", gpus=0), a_node("n2", gpus=0), pods=[seated])
    verdict = cluster.filter(claimant(), ["n1", "n2"])
    assert (verdict.outcome, list(verdict.passed)) == (Outcome.PASSED, ["n2"])
    assert "kept for a pod with a seat" in verdict.failed["n1"]
    assert list(cluster.filter(ungated("q"), ["n1", "n2"]).passed) == ["n1", "n2"]
    cluster.gone(seated)
    assert list(cluster.filter(claimant(), ["n1", "n2"]).passed) == ["n1", "n2"]


def test_a_seat_without_devices_keeps_no_claims_away():
    cluster = Cluster(a_node("n1", gpus=0), pods=[a_pod("seated", seat=Berth(node="n1"))])
    assert list(cluster.filter(claimant(), ["n1"]).passed) == ["n1"]
