from __future__ import annotations

import pytest

from fleet.errors import DecodeError
from scaler.controller.objects import RivalObject
from scaler.controller.pods import PodBook, Workload, pod_from
from scaler.controller.selector import selector_from
from scaler.controller.world import Claim, Key, World
from scaler.seen import Phase
from tests.support.replicas import a_deployment, a_replica, an_autoscaler, read, starting

SHOP = Workload(namespace="n", kind="Deployment", name="shop")


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({}, Phase.READY),
        ({"status": starting()}, Phase.STARTING),
        ({"status": starting("ContainerCreating")}, Phase.STARTING),
        ({"status": starting("CrashLoopBackOff")}, Phase.FAILED),
        ({"status": starting("ImagePullBackOff")}, Phase.FAILED),
        ({"status": None}, Phase.STARTING),
        ({"metadata": {"deletionTimestamp": "2026-11-30T09:00:00Z"}}, Phase.DRAINING),
        ({"status": {"phase": "Failed"}}, Phase.FAILED),
        ({"status": {"phase": "Succeeded"}}, Phase.FAILED),
    ],
)
def test_where_a_pod_stands(changes, phase):
    pod = pod_from(a_replica(**changes), now_s=5.0, epoch_s=0.0, is_new=True)
    assert pod.phase is phase
    assert pod.is_ended == (
        changes.get("status", {}) is not None and (changes.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    )


@pytest.mark.parametrize(
    ("stamp", "epoch_s", "age_s"),
    [
        ("1970-01-01T00:01:00Z", 100.0, 40.0),
        ("1970-01-01T00:01:00Z", 30.0, 0.0),  # stamped by a clock that is ahead: never younger than nothing
        ("yesterday", 100.0, 0.0),
        (None, 100.0, 0.0),
    ],
)
def test_a_pod_that_was_there_before_us_is_as_old_as_its_stamp(stamp, epoch_s, age_s):
    pod = pod_from(a_replica(metadata={"creationTimestamp": stamp}), now_s=1000.0, epoch_s=epoch_s, is_new=False)
    assert 1000.0 - pod.since_s == age_s
    assert not pod.is_seen_born


def test_a_pod_keeps_when_it_was_first_seen():
    book = PodBook()
    book.set(pod_from(a_replica(status=starting(), spec={}), now_s=1.0, epoch_s=0.0, is_new=True))
    book.set(pod_from(a_replica(status=starting()), now_s=3.0, epoch_s=0.0, is_new=True))
    before, workloads = book.set(pod_from(a_replica(), now_s=9.0, epoch_s=0.0, is_new=True))
    pod = book.get("uid-shop-abc-1")
    assert pod is not None
    assert before is not None
    assert (pod.since_s, pod.scheduled_at_s, pod.ready_at_s, before.ready_at_s) == (1.0, 3.0, 9.0, None)
    assert workloads == (SHOP,)
    # A restart of its container is no second start.
    book.set(pod_from(a_replica(status=starting()), now_s=20.0, epoch_s=0.0, is_new=True))
    book.set(pod_from(a_replica(), now_s=30.0, epoch_s=0.0, is_new=True))
    again = book.get("uid-shop-abc-1")
    assert again is not None
    assert again.ready_at_s == 9.0


@pytest.mark.parametrize(
    ("owner", "tags", "workload"),
    [
        (("ReplicaSet", "shop-abc"), {"pod-template-hash": "abc"}, SHOP),
        (("ReplicaSet", "shop-abc"), {}, None),
        (("ReplicaSet", "by-hand"), {"pod-template-hash": "abc"}, None),
        (("StatefulSet", "db"), {}, Workload(namespace="n", kind="StatefulSet", name="db")),
        (("Job", "batch"), {}, None),
    ],
)
def test_whose_a_pod_is(owner, tags, workload):
    reference = [{"kind": owner[0], "name": owner[1], "uid": "r", "controller": True}]
    pod = pod_from(
        a_replica(metadata={"labels": tags, "ownerReferences": reference}), now_s=0.0, epoch_s=0.0, is_new=True
    )
    assert PodBook().set(pod)[1] == ((workload,) if workload else ())


def test_other_kinds_have_the_pods_that_their_selector_selects():
    book, fleet = PodBook(), Workload(namespace="n", kind="Fleet", name="f")
    book.set(pod_from(a_replica("old"), now_s=0.0, epoch_s=0.0, is_new=True))
    book.select(fleet, selector_from("app=shop"))
    assert set(book.changed()) == {SHOP, fleet}
    book.set(pod_from(a_replica("new"), now_s=0.0, epoch_s=0.0, is_new=True))
    assert {pod.name for pod in book.of(fleet).values()} == {"old", "new"}
    book.remove("uid-old")
    assert {pod.name for pod in book.of(fleet).values()} == {"new"}
    book.select(fleet, None)
    assert not book.of(fleet)
    assert len(book.of(SHOP)) == 1


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("app=shop", True),
        ("app==shop", True),
        ("app!=shop", False),
        ("tier!=x", True),
        ("app in (a, shop)", True),
        ("app notin (a,b)", True),
        ("app notin (shop)", False),
        ("app", True),
        ("!app", False),
        ("!tier", True),
        ("app=shop,zone in (a,b),!tier", True),
        ("app=shop,zone=b", False),
    ],
)
def test_selectors_select_as_kubernetes_does(text, holds):
    selector = selector_from(text)
    assert selector is not None
    assert selector.matches({"app": "shop", "zone": "a"}) is holds


def test_an_empty_selector_selects_nothing_and_a_broken_one_is_told():
    assert selector_from("") is None
    with pytest.raises(DecodeError, match="a b"):
        selector_from("a b=c")


def test_an_invalid_edit_leaves_the_last_valid_policy_in_force():
    world = World()
    world.set_autoscaler(an_autoscaler(minReplicas=27, maxReplicas=27))
    taken = world.set_autoscaler(an_autoscaler(generation=2, minReplicas=50, maxReplicas=10))
    assert taken.spec is not None
    assert (taken.spec.policy.min_replicas, taken.generation) == (27, 2)
    assert "minReplicas 50 is above maxReplicas 10" in taken.problems[0]
    mended = world.set_autoscaler(an_autoscaler(generation=3, maxReplicas=30))
    assert mended.problems == ()
    assert mended.spec is not None
    assert mended.spec.policy.max_replicas == 30


def test_one_that_was_made_anew_under_the_same_name_inherits_nothing():
    world = World()
    world.set_autoscaler(an_autoscaler())
    obj = an_autoscaler(mode="wrong")
    obj.metadata.uid = "another"
    assert world.set_autoscaler(obj).spec is None


def test_the_oldest_claim_stands():
    world = World()
    young = world.set_autoscaler(an_autoscaler("a", created="2026-02-01T00:00:00Z"))
    old = world.set_autoscaler(an_autoscaler("b", created="2026-01-01T00:00:00Z"))
    assert world.claim(old)[0] is Claim.ABSENT
    world.set_workload("Deployment", a_deployment(), 0.0)
    assert world.claim(old)[0] is Claim.OURS
    claim, text = world.claim(young)
    assert claim is Claim.SHARED
    assert "ConcurrencyAutoscaler b " in text
    world.remove_autoscaler(Key(namespace="n", name="b"))
    assert world.claim(young)[0] is Claim.OURS


def test_a_rival_is_named_and_forgotten():
    world = World()
    ours = world.set_autoscaler(an_autoscaler())
    world.set_workload("Deployment", a_deployment(), 0.0)
    hpa = {
        "metadata": {"name": "h", "namespace": "n", "uid": "h"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "shop"}},
    }
    for _ in range(2):
        world.set_rival(read(RivalObject, hpa))
    assert world.claim(ours)[0] is Claim.RIVAL
    elsewhere = hpa | {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "other"}}}
    world.set_rival(read(RivalObject, elsewhere))
    assert world.claim(ours)[0] is Claim.OURS
    world.set_rival(read(RivalObject, hpa))
    world.remove_rival("h")
    assert world.claim(ours)[0] is Claim.OURS


def test_an_order_is_as_old_as_its_count():
    world = World()
    world.set_workload("Deployment", a_deployment(3, "10"), 1.0)
    world.set_workload("Deployment", a_deployment(3, "11"), 5.0)
    assert world.targets[SHOP].order.at_s == 1.0
    world.set_target(SHOP, 8, 9.0, version="20")
    # The watch lags behind our own write: what is older changes nothing.
    world.set_workload("Deployment", a_deployment(3, "15"), 10.0)
    order = world.targets[SHOP].order
    assert (order.replicas, order.at_s) == (8, 9.0)
    world.set_workload("Deployment", a_deployment(8, "21"), 11.0)
    assert world.targets[SHOP].order.at_s == 9.0
    world.set_workload("Deployment", a_deployment(None, "22"), 12.0)
    assert world.targets[SHOP].order.replicas == 1


def test_a_rollout_is_a_change_of_template_and_not_of_count():
    world = World()
    world.set_workload("Deployment", a_deployment(3, "10"), 1.0)
    world.set_workload("Deployment", a_deployment(5, "11"), 2.0)
    assert world.targets[SHOP].changed_at_s == float("-inf")
    world.set_workload("Deployment", a_deployment(5, "12", revision="2"), 3.0)
    world.set_target(SHOP, 6, 4.0, version="13")
    assert world.targets[SHOP].changed_at_s == 3.0
