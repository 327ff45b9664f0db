"""The cold-start ledger: parts that add up, stages that are going on, stamps that contradict each other."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet import labels
from fleet.draw import MissReason, hit, miss
from warmpool.starts.book import StartBook, summary
from warmpool.starts.parts import Moments, Part, Ran, start_of
from warmpool.starts.reading import StartPod, moments_of, pulls_s

# The break-down of kaito-project/kaito#2325, moments in seconds after creation: a cold start of 966 s.
COLD = Moments(
    created_s=0,
    bound_s=410,
    sandbox_s=417,
    inits=(Ran(name="download-model", started_s=417, ended_s=417),),
    mains=(Ran(name="vllm", started_s=521),),
    weights_s=678,
    ready_s=966,
)


def test_a_cold_start_is_taken_apart():
    start = start_of(COLD, 966)
    assert start.parts_s == {Part.WAIT: 410, Part.INIT: 7, Part.PULL: 104, Part.WEIGHTS: 157, Part.ENGINE: 288}
    assert start.total_s == 966
    assert start.doing is None


def test_events_tell_pulling_from_making_containers():
    start = start_of(COLD, 966, pulls_s=[101.0])
    assert start.parts_s[Part.PULL] == 101
    assert start.parts_s[Part.INIT] == 10
    assert start.total_s == 966
    assert start_of(COLD, 966, pulls_s=[0.0]).parts_s[Part.PULL] == 0
    assert start_of(COLD, 966, pulls_s=[500.0]).parts_s == start_of(COLD, 966).parts_s, "pulls that overlapped"


@pytest.mark.parametrize(
    ("name", "loaders", "part"),
    [
        ("storage-initializer", frozenset(), Part.WEIGHTS),
        ("fetch", frozenset({"fetch"}), Part.WEIGHTS),
        ("migrate", frozenset(), Part.INIT),
    ],
)
def test_init_containers_that_load_weights_are_told_by_name(name, loaders, part):
    inits = (Ran(name=name, started_s=420, ended_s=480),)
    moments = replace(COLD, inits=inits, weight_loaders=loaders, weights_s=None)
    start = start_of(moments, 966)
    assert start.parts_s[part] == (67 if part is Part.INIT else 60)
    assert start.parts_s[Part.PULL] == 3 + 41
    assert start.total_s == 966


def test_without_a_word_of_the_engine_its_weights_are_not_known():
    start = start_of(replace(COLD, weights_s=None), 966)
    assert Part.WEIGHTS not in start.parts_s
    assert start.parts_s[Part.ENGINE] == 445


@pytest.mark.parametrize(
    ("moments", "doing", "parts_s"),
    [
        (Moments(created_s=0), Part.WAIT, {Part.WAIT: 50}),
        (Moments(created_s=0, bound_s=10), Part.INIT, {Part.WAIT: 10, Part.INIT: 40}),
        (
            Moments(created_s=0, bound_s=10, sandbox_s=12, mains=(Ran(name="m"),)),
            Part.PULL,
            {Part.WAIT: 10, Part.INIT: 2, Part.PULL: 38},
        ),
        (
            Moments(created_s=0, bound_s=10, sandbox_s=12, inits=(Ran(name="i", started_s=15),)),
            Part.INIT,
            {Part.WAIT: 10, Part.INIT: 2 + 35, Part.PULL: 3},
        ),
        (
            Moments(created_s=0, bound_s=10, sandbox_s=12, mains=(Ran(name="m", started_s=20),)),
            Part.ENGINE,
            {Part.WAIT: 10, Part.INIT: 2, Part.PULL: 8, Part.ENGINE: 30},
        ),
    ],
    ids=["waits", "initialises", "pulls", "runs an init container", "starts its engine"],
)
def test_a_start_that_goes_on_says_what_it_is_doing(moments, doing, parts_s):
    start = start_of(moments, 50)
    assert start.doing is doing
    assert start.parts_s == parts_s
    assert start.total_s == 50


MAYBE = st.none() | st.floats(-1e6, 1e6)
RANS = st.builds(Ran, name=st.sampled_from(["a", "storage-initializer"]), started_s=MAYBE, ended_s=MAYBE)


@given(
    bound_s=MAYBE,
    sandbox_s=MAYBE,
    weights_s=MAYBE,
    ready_s=MAYBE,
    inits=st.lists(RANS, max_size=3).map(tuple),
    mains=st.lists(RANS, max_size=2).map(tuple),
    now_s=st.floats(0, 1e6),
    pulled_s=st.none() | st.lists(st.floats(0, 1e5), max_size=3),
)
def test_parts_are_never_below_zero_and_add_up(bound_s, sandbox_s, weights_s, ready_s, inits, mains, now_s, pulled_s):
    moments = Moments(
        created_s=0.0,
        bound_s=bound_s,
        sandbox_s=sandbox_s,
        inits=inits,
        mains=mains,
        weights_s=weights_s,
        ready_s=ready_s,
    )
    start = start_of(moments, now_s, pulled_s)
    assert all(value >= 0 for value in start.parts_s.values())
    assert start.total_s == sum(start.parts_s.values())
    stamps = [s for s in (bound_s, sandbox_s, weights_s, ready_s, now_s) if s is not None]
    stamps += [s for ran in (*inits, *mains) for s in (ran.started_s, ran.ended_s) if s is not None]
    assert start.total_s <= max([0.0, *stamps]) + 1e-6
    assert (start.doing is None) <= (ready_s is not None)


# -- reading ---------------------------------------------------------------------------------------------------


def test_the_kubelets_events_tell_of_pulls():
    assert pulls_s(
        [
            'Successfully pulled image "reg/a:1" in 1m2.5s (1m10s including waiting). Image size: 5600000000 bytes.',
            'Successfully pulled image "reg/b:1" in 834ms (834ms including waiting). Image size: 1 bytes.',
            'Successfully pulled image "reg/old" in 3.25s',
            'Container image "reg/a:1" already present on machine',
            "Back-off pulling image",
            "Successfully pulled image in nonsense",
        ]
    ) == (70.0, 0.834, 3.25, 0.0)


def test_a_pod_of_the_api_is_read():
    pod = msgspec.convert(
        {
            "metadata": {
                "uid": "u",
                "creationTimestamp": "2026-11-30T10:00:00Z",
                "annotations": {labels.WEIGHTS_CONTAINER: "fetch, other"},
            },
            "spec": {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}, {"name": "fetch"}]},
            "status": {
                "conditions": [
                    {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-30T10:00:05Z"},
                    {
                        "type": "PodReadyToStartContainers",
                        "status": "True",
                        "lastTransitionTime": "2026-11-30T10:00:06Z",
                    },
                    {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-30T10:00:06Z"},
                ],
                "initContainerStatuses": [
                    {"name": "proxy", "state": {"running": {"startedAt": "2026-11-30T10:00:07Z"}}},
                    {
                        "name": "fetch",
                        "state": {
                            "terminated": {
                                "startedAt": "2026-11-30T10:00:08Z",
                                "finishedAt": "2026-11-30T10:00:18Z",
                            }
                        },
                    },
                ],
                "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}],
            },
        },
        StartPod,
    )
    moments = moments_of(pod.metadata.creation_timestamp, pod.spec, pod.status, pod.metadata.annotations)
    assert moments is not None
    start = start_of(moments, moments.created_s + 20)
    assert start.parts_s == {Part.WAIT: 5, Part.INIT: 1, Part.PULL: 2 + 2, Part.WEIGHTS: 10}
    assert start.doing is Part.PULL


@pytest.mark.parametrize("created", [None, "", "yesterday", "2026-11-30T10:00:00"])
def test_a_pod_of_which_nobody_knows_when_it_was_created_is_left_out(created):
    assert moments_of(created, StartPod().spec, None, None) is None


# -- the book --------------------------------------------------------------------------------------------------


def test_a_start_is_noted_once_and_only_if_its_beginning_was_seen():
    told = []
    book = StartBook(told=told.append)
    going = Moments(created_s=0, bound_s=1)
    book.see("u", "ns/p", labels.SCHEDULER_NAME, hit("g1", "w1"), going)
    book.see("u", "ns/p", labels.SCHEDULER_NAME, hit("g1", "w1"), COLD)
    book.see("u", "ns/p", labels.SCHEDULER_NAME, hit("g1", "w1"), replace(COLD, ready_s=2000))
    book.see("old", "ns/old", labels.SCHEDULER_NAME, None, COLD)
    book.see("theirs", "ns/theirs", "default-scheduler", None, going)
    book.see("theirs", "ns/theirs", "default-scheduler", None, COLD)
    assert [(entry.pod, entry.pool, entry.outcome, entry.start.total_s) for entry in told] == [
        ("ns/p", "g1", "hit", 966)
    ]


def test_hits_stand_beside_misses():
    book = StartBook()
    for number, (draw, ready_s) in enumerate(
        [(hit("g1", "w"), 10), (hit("g1", "w"), 30), (miss("g1", MissReason.NO_NODES), 500), (hit("g2", "w"), 99)]
    ):
        going = Moments(created_s=0, bound_s=5)
        book.see(str(number), "ns/p", labels.SCHEDULER_NAME, draw, going)
        book.see(str(number), "ns/p", labels.SCHEDULER_NAME, draw, replace(going, ready_s=ready_s))
    assert summary(book, "g1") == (
        "hit p50 20 s of 2 (wait 5, init 0, engine 15); miss p50 500 s of 1 (wait 5, init 0, engine 495)"
    )
    assert summary(book, "other") == ""


def test_a_pod_that_went_before_it_was_ready_is_forgotten():
    book = StartBook()
    book.see("u", "ns/p", labels.SCHEDULER_NAME, None, Moments(created_s=0))
    book.forget("u")
    assert book.see("u", "ns/p", labels.SCHEDULER_NAME, None, COLD) is None
