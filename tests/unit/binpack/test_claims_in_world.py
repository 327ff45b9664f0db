"""Pods with resource claims in the planner's picture: who is planned again, what is freed, what is left to others."""

from __future__ import annotations

from dataclasses import replace

from binpack.controller.retrying import requeue_waiting
from fleet import labels
from fleet.dra import DeviceClass
from fleet.plan import Placement, Reason, Unplaced
from fleet.pod import Berth
from fleet.resources import extended_of
from tests.support.builders import a_node, an_ask
from tests.support.devices import CLASS, a_claim, a_claimant, a_device, a_slice, given
from tests.support.planning import a_world


def a_harbour(*claims, nodes=("n",), **node):
    world = a_world(*(a_node(name, gpus=0, **node) for name in nodes))
    world.desk.is_synced = True
    world.desk.set_class(DeviceClass(name=CLASS))
    for name in nodes:
        world.desk.set_slice(a_slice(name, [a_device(f"{name}0")]))
    for claim in claims:
        world.desk.set_claim(claim)
    settle(world)
    return world


def settle(world):
    if world.refresh():
        requeue_waiting(world)


def turn(world):
    """Plan everything in the queue; those that get no berth wait."""
    placed = {}
    for pod in world.take_batch(100):
        answer = world.index.place(pod)
        if isinstance(answer, Placement):
            world.depart(pod, answer.berth)
            placed[pod.uid] = answer.berth
        else:
            assert isinstance(answer, Unplaced)
            world.wait(answer)
    return placed


def test_a_departed_pods_devices_are_nobody_elses_and_come_back_when_its_write_fails() -> None:
    world = a_harbour(a_claim("c"), a_claim("d"))
    for name in ("c", "d"):
        world.pod_seen(a_claimant(f"of-{name}", name))
    placed = turn(world)
    assert list(placed) == ["of-c"]
    assert placed["of-c"].choices[0].claim_uid == "c"
    assert world.waiting.get("of-d").reason is Reason.CLAIM_UNSATISFIED
    world.rest("of-c", is_written=False)
    settle(world)
    assert set(world.queue) == {"of-d"}


def test_waiting_pods_are_planned_again_when_a_claim_gives_its_devices_back() -> None:
    world = a_harbour(a_claim("c"), a_claim("holder", **given("n", "n0", pods=["x"])))
    world.pod_seen(a_claimant("p", "c"))
    assert turn(world) == {}
    settle(world)
    assert not world.queue
    world.desk.set_claim(a_claim("holder"))
    settle(world)
    assert turn(world)["p"].node == "n"


def test_a_pod_whose_claim_comes_later_is_planned_then() -> None:
    world = a_harbour()
    world.pod_seen(a_claimant("p", "c"))
    turn(world)
    assert world.waiting.get("p").reason is Reason.CLAIM_PENDING
    world.desk.set_claim(a_claim("c"))
    settle(world)
    assert turn(world)["p"].node == "n"


def test_a_claim_is_freed_when_all_its_pods_are_gated_and_have_no_room_beside_it() -> None:
    world = a_harbour(a_claim("c", **given("n", "n0", pods=["p", "q"])), nodes=("n", "m"), milli_cpu=8000)
    for uid in ("p", "q"):
        world.pod_seen(a_claimant(uid, "c", cores=100))
    turn(world)
    assert [claim.uid for claim in world.take_loose()] == ["c"]
    assert world.take_loose() == []


def test_a_claim_is_not_freed_that_a_pod_uses_or_is_on_its_way_to_use() -> None:
    world = a_harbour(a_claim("c", **given("n", "n0", pods=["p", "running"])), milli_cpu=8000)
    world.pod_seen(a_claimant("p", "c", cores=100))
    turn(world)
    assert world.take_loose() == []
    world = a_harbour(a_claim("c", **given("n", "n0", pods=["p", "q"])), milli_cpu=8000)
    world.pod_seen(a_claimant("q", "c"))
    assert turn(world)["q"] == Berth(node="n")
    world.pod_seen(a_claimant("p", "c", cores=100))
    turn(world)
    assert world.take_loose() == []


def test_a_claim_that_changed_since_is_not_freed() -> None:
    claim = a_claim("c", **given("n", "n0", pods=["p"]))
    world = a_harbour(claim, milli_cpu=8000)
    world.pod_seen(a_claimant("p", "c", cores=100))
    turn(world)
    world.desk.set_claim(replace(claim, resource_version="8"))
    assert world.take_loose() == []


def test_an_extended_resource_that_a_class_backs_is_left_to_kube_scheduler_at_once() -> None:
    world = a_harbour()
    world.desk.set_class(DeviceClass(name="gpus", extended_resource=labels.NVIDIA_GPU))
    for uid, name in (("p", labels.NVIDIA_GPU), ("q", "deviceclass.resource.kubernetes.io/gpus")):
        wanted = a_claimant(uid)
        world.pod_seen(replace(wanted, requests=replace(wanted.requests, extended=extended_of({name: 1}))))
    turn(world)
    assert {world.waiting.get(uid).reason for uid in ("p", "q")} == {Reason.LEFT_TO_SCHEDULER}
    assert world.waiting.due_for_hand_over(0.0) == ("p", "q")
    assert "only kube-scheduler makes the claims" in world.waiting.get("p").text


def test_gpus_that_claims_hold_are_in_use_for_shares_too() -> None:
    world = a_world(a_node("n", gpus=["g0", "g1"], model="H100"))
    world.desk.is_synced = True
    world.desk.set_class(DeviceClass(name=CLASS))
    world.desk.set_slice(a_slice("n", [a_device("g0"), a_device("g1")], driver="gpu.example.com"))
    claim = a_claim("c", **given("n", "g0"))
    result = replace(claim.allocation.results[0], driver="gpu.example.com")
    world.desk.set_claim(replace(claim, allocation=replace(claim.allocation, results=(result,))))
    settle(world)
    share = replace(a_claimant("p"), ask=an_ask(milli=500))
    assert world.index.place(share).berth.devices == ("g1",)
    world.desk.remove_claim("c")
    settle(world)
    assert world.index.place(replace(share, ask=replace(share.ask, count=2))).berth.devices == ("g0", "g1")
