"""Whatever comes in whatever order, no gated pod is lost and none is written twice at a time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from binpack.controller.retrying import requeue_waiting
from binpack.controller.triage import Handling, handling
from binpack.controller.world import Away
from binpack.ledger import Ledger
from fleet import labels
from fleet.pod import Berth
from tests.support.builders import a_node, a_pod
from tests.support.places import OTHER_GATE, miss, places
from tests.support.planning import a_world

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["seen", "hold", "bare", "gate", "pin", "gone", "batch", "place", "miss", "done", "fail", "again", "grow"]
        ),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(STEPS)
def test_after_any_sequence_every_gated_pod_is_in_exactly_one_place(steps):
    """Nothing is lost and nothing is written twice at a time, whatever comes in whatever order."""
    world = a_world(a_node(gpus=2))
    truth, writing = {}, {}
    plain = {f"uid-{i}": a_pod(str(i), whole=1) for i in range(3)}

    def see(pod):
        truth[pod.uid] = pod
        world.ledger.set_pod(pod)
        world.pod_seen(pod)

    def batch_of():
        return [pod for pod in (truth.get(uid) for uid, place in world.away.items() if place is Away.PLANNED) if pod]

    for step, number in steps:
        uid = f"uid-{number}"
        pod = truth.get(uid, plain[uid])
        is_gated = not truth.get(uid) or bool(pod.gates)
        match step:
            case "seen" if is_gated:
                see(replace(plain[uid], labels={"n": str(len(steps))}))
            case "hold" if is_gated:
                see(replace(plain[uid], problems=("odd",)))
            case "bare" if is_gated:
                see(replace(plain[uid], owner=None))
            case "gate" if not truth.get(uid):
                see(replace(plain[uid], gates=(OTHER_GATE, labels.PLAN_GATE)))
            case "pin" if truth.get(uid) and is_gated and uid not in writing:
                see(replace(plain[uid], gates=(), pinned_node="n1", devices=(str(number % 2),)))
            case "gone" if truth.pop(uid, None):
                writing.pop(uid, None)
                world.ledger.remove_pod(uid)
                world.pod_gone(uid)
            case "batch" if not batch_of():
                world.take_batch(2)
            case "place":
                for planned in batch_of():
                    now = world.decided(planned)
                    if now is not None:
                        assert now.uid not in writing, "written twice at a time"
                        world.depart(now, Berth(node="n1", devices=(str(number % 2),)))
                        writing[now.uid] = now
            case "miss":
                for planned in batch_of():
                    if world.decided(planned) is not None:
                        world.wait(miss(planned))
            case "done" if uid in writing:
                del writing[uid]
                truth[uid] = replace(truth[uid], gates=(), pinned_node="n1", devices=(str(number % 2),))
                world.arrived(uid)
                see(truth[uid])
            case "fail" if uid in writing:
                world.rest(writing.pop(uid).uid, is_written=number == 1)
            case "again" if world.away.get(uid) is Away.RESTING:
                world.again(uid)
            case "grow":
                world.ledger.set_node(a_node(gpus=2, labels={"n": str(number)}))
                world.refresh()
                requeue_waiting(world)
        for each, pod in truth.items():
            gated = handling(pod) is not Handling.NONE
            assert len(places(world, each)) == int(gated), (step, each, places(world, each))
    for uid in set(world.queue) | set(world.away) | set(world.pods):
        assert uid in truth, "something is left of a pod that is gone"
    for uid in [uid for uid, place in world.away.items() if place in (Away.WRITTEN, Away.RESTING)]:
        world.again(uid)
    fresh = Ledger()
    fresh.set_node(world.states(["n1"])["n1"].node)
    for pod in truth.values():
        fresh.set_pod(pod)
    assert world.ledger.picture() == fresh.picture()
