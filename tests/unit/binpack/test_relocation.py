"""One move from the mark to the end: every stage, every accident, and that it always ends with the count as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.relocation.record import Way, WayKind, format_way, parse_way
from binpack.relocation.steps import Do, Facts, Stage, Surge, next_step, surge_of
from binpack.relocation.ways import NotYet, NoWay, Refused, Scaler, Workload, Writer, way_for
from fleet import labels
from fleet.budget import DisruptionBudget
from fleet.company import Selector
from fleet.errors import DecodeError
from fleet.pod import Berth
from tests.support.builders import a_pod

SCALE = Way(kind=WayKind.SCALE, name="llm", base=3)
OURS = Way(kind=WayKind.AUTOSCALER, name="llm")
EVICTION = Way(kind=WayKind.EVICTION)


def member(name, *, is_ready=True, **more):
    return replace(a_pod(name, whole=1, node="n1"), is_ready=is_ready, **more)


def facts(way=SCALE, surge=Surge.ABSENT, successor=None, others=None, **more):
    old = more.pop("old", member("old", moving_to=Berth(node="n2", devices=("0",)), moving_by=format_way(way)))
    if others is None:
        others = (member("a"), member("b"))
    return Facts(way=way, old=old, successor=successor, others=others, surge=surge, **more)


def leaving(pod):
    return replace(pod, deletion_cost=labels.LEAVES_FIRST)


NEW = member("new", moved_from="uid-old")
STARTING = member("new", moved_from="uid-old", is_ready=False)
MARKED = leaving(member("old"))


@pytest.mark.parametrize("way", [SCALE, OURS, EVICTION])
def test_a_way_reads_back(way):
    assert parse_way(format_way(way)) == way


@pytest.mark.parametrize(
    "text", ["", "scale", "scale:Deployment/x", "scale:Deployment/x@0", "scale:Job/x@3", "eviction "]
)
def test_what_is_no_way(text):
    with pytest.raises(DecodeError):
        parse_way(text)


@pytest.mark.parametrize(
    ("seen", "do", "stage"),
    [
        (facts(), Do.SURGE, Stage.SURGING),
        (facts(surge=Surge.PRESENT), Do.WAIT, Stage.AWAITS_SUCCESSOR),
        (facts(surge=Surge.PRESENT, successor=STARTING), Do.WAIT, Stage.AWAITS_READY),
        (facts(surge=Surge.PRESENT, successor=NEW), Do.MARK, Stage.LEAVING),
        (facts(surge=Surge.PRESENT, successor=NEW, old=MARKED), Do.SETTLE, Stage.LEAVING),
        (facts(successor=NEW, old=MARKED), Do.WAIT, Stage.LEAVING),
        (facts(successor=NEW, old=replace(MARKED, is_terminating=True)), Do.FINISH, Stage.MOVED),
        (facts(successor=NEW, old=None), Do.FINISH, Stage.MOVED),
    ],
)
def test_the_way_of_a_move(seen, do, stage):
    step = next_step(seen)
    assert (step.do, step.stage) == (do, stage)


@pytest.mark.parametrize(
    ("seen", "do", "stage"),
    [
        (facts(surge=Surge.UNKNOWN), Do.WAIT, Stage.AWAITS_API),
        (facts(is_wanted=False), Do.CLEAR, Stage.WITHDRAWN),
        (facts(surge=Surge.PRESENT, is_wanted=False), Do.SETTLE, Stage.WITHDRAWN),
        (facts(surge=Surge.PRESENT, successor=STARTING, is_wanted=False), Do.SETTLE, Stage.WITHDRAWN),
        (facts(surge=Surge.PRESENT, successor=NEW, is_wanted=False), Do.MARK, Stage.LEAVING),
        (facts(surge=Surge.OVERRULED), Do.CLEAR, Stage.OVERRULED),
        (facts(surge=Surge.OVERRULED, successor=NEW, old=MARKED), Do.CLEAR, Stage.OVERRULED),
        (facts(successor=STARTING), Do.CLEAR, Stage.OVERRULED),
        (facts(is_of_old_template=True), Do.CLEAR, Stage.OWNER_CHANGED),
        (facts(surge=Surge.PRESENT, is_of_old_template=True), Do.SETTLE, Stage.OWNER_CHANGED),
        (facts(surge=Surge.PRESENT, for_s=121.0), Do.SETTLE, Stage.SUCCESSOR_MISSING),
        (facts(surge=Surge.PRESENT, successor=STARTING, for_s=2401.0), Do.SETTLE, Stage.SUCCESSOR_LATE),
        (facts(surge=Surge.PRESENT, old=None), Do.SETTLE, Stage.LEAVING),
        (facts(surge=Surge.PRESENT, old=None, successor=STARTING), Do.SETTLE, Stage.LEAVING),
        (facts(old=None), Do.FINISH, Stage.SUCCESSOR_MISSING),
        (facts(successor=NEW, old=MARKED, others=(member("a"),)), Do.CLEAR, Stage.OTHER_WENT),
        (facts(way=OURS, successor=NEW, old=MARKED, for_s=121.0), Do.CLEAR, Stage.OTHER_WENT),
    ],
)
def test_accidents(seen, do, stage):
    step = next_step(seen)
    assert (step.do, step.stage) == (do, stage)


def test_nobody_leaves_while_the_controller_would_drop_another():
    others = (member("a"), member("b", is_ready=False))
    seen = facts(surge=Surge.PRESENT, successor=NEW, old=MARKED, others=others)
    assert next_step(seen).do is Do.WAIT
    assert next_step(replace(seen, for_s=901.0)).stage is Stage.OTHERS_LATE


@pytest.mark.parametrize(
    ("seen", "do", "stage"),
    [
        (facts(way=EVICTION), Do.EVICT, Stage.AWAITS_EVICTION),
        (facts(way=EVICTION, is_wanted=False), Do.CLEAR, Stage.WITHDRAWN),
        (facts(way=EVICTION, for_s=901.0), Do.CLEAR, Stage.NOT_EVICTED),
        (facts(way=EVICTION, old=None), Do.WAIT, Stage.AWAITS_SUCCESSOR),
        (facts(way=EVICTION, old=None, for_s=121.0), Do.FINISH, Stage.SUCCESSOR_MISSING),
        (facts(way=EVICTION, old=None, successor=STARTING), Do.WAIT, Stage.AWAITS_READY),
        (facts(way=EVICTION, old=None, successor=NEW), Do.FINISH, Stage.MOVED),
    ],
)
def test_a_pod_that_goes_first(seen, do, stage):
    step = next_step(seen)
    assert (step.do, step.stage) == (do, stage)


@pytest.mark.parametrize(
    ("way", "count", "is_listed", "surge"),
    [
        (SCALE, 3, None, Surge.ABSENT),
        (SCALE, 4, None, Surge.PRESENT),
        (SCALE, 5, None, Surge.OVERRULED),
        (SCALE, 2, None, Surge.OVERRULED),
        (SCALE, None, None, Surge.UNKNOWN),
        (OURS, None, True, Surge.PRESENT),
        (OURS, None, False, Surge.ABSENT),
        (OURS, None, None, Surge.UNKNOWN),
        (EVICTION, None, None, Surge.ABSENT),
    ],
)
def test_whether_the_surge_is_there(way, count, is_listed, surge):
    assert surge_of(way, count=count, is_listed=is_listed) is surge


# -- a played cluster: whatever happens, the count comes back and never fewer than `base` serve -------------------


class Played:
    """A Deployment of three as its controllers would keep it, and a mover that may die between any two writes."""

    def __init__(self, way):
        self.way = way
        self.old = member("old", moving_to=Berth(node="n2"), moving_by=format_way(way))
        self.successor = None
        self.others = [member("a"), member("b")]
        self.count = 3
        self.is_listed = False
        self.is_over = False
        self.for_s = 0.0
        self.wanted = True
        self.least_ready = 3

    def ready(self):
        return sum(pod is not None and pod.is_ready and not pod.is_terminating for pod in self.everyone())

    def everyone(self):
        return [self.old, self.successor, *self.others]

    def facts(self):
        surge = surge_of(self.way, count=self.count, is_listed=self.is_listed)
        return Facts(
            way=self.way,
            old=self.old,
            successor=self.successor,
            others=tuple(self.others),
            surge=surge,
            is_wanted=self.wanted,
            for_s=self.for_s,
        )

    def mover(self):
        if self.is_over:
            return
        step = next_step(self.facts())
        match step.do:
            case Do.SURGE:
                self.raise_by(1)
            case Do.SETTLE:
                self.raise_by(-1)
            case Do.MARK:
                self.old = leaving(self.old)
            case Do.CLEAR:
                self.old = replace(self.old, moving_to=None, moving_by="", deletion_cost="")
                self.is_over = True
            case Do.FINISH:
                self.is_over = True
        self.for_s = 0.0 if step.do is not Do.WAIT else self.for_s

    def raise_by(self, more):
        if self.way.kind is WayKind.SCALE:
            self.count += more
        else:
            self.is_listed = more > 0

    def autoscaler(self):
        if self.way.kind is WayKind.AUTOSCALER:
            self.count = 3 + self.is_listed

    def controller(self):
        live = [pod for pod in self.everyone() if pod is not None and not pod.is_terminating]
        if len(live) < self.count and self.successor is None:
            self.successor = STARTING
        elif len(live) > self.count:
            first = min(live, key=lambda pod: (pod.is_ready, pod.deletion_cost != labels.LEAVES_FIRST, pod.name))
            self.drop(first.name)

    def drop(self, name):
        if self.old is not None and self.old.name == name:
            self.old = None
        elif self.successor is not None and self.successor.name == name:
            self.successor = None
        else:
            self.others = [pod for pod in self.others if pod.name != name]

    def kubelet(self):
        if self.successor is not None:
            self.successor = NEW

    def play(self, event):
        match event:
            case "mover":
                self.mover()
            case "autoscaler":
                self.autoscaler()
            case "controller":
                self.controller()
            case "kubelet":
                self.kubelet()
            case "time":
                self.for_s += 200.0
            case "off":
                self.wanted = False
        self.least_ready = min(self.least_ready, self.ready())


EVENTS = st.sampled_from(["mover", "autoscaler", "controller", "kubelet", "time", "off"])


@settings(max_examples=300)
@given(st.sampled_from([SCALE, OURS]), st.lists(EVENTS, max_size=40))
def test_whatever_the_order_of_events_no_replica_is_missed_and_the_count_comes_back(way, events):
    played = Played(way)
    for event in events:
        played.play(event)
    for _ in range(20):
        for event in ("mover", "autoscaler", "controller", "kubelet", "time"):
            played.play(event)
    assert played.is_over
    assert played.count == 3
    assert not played.is_listed
    assert played.least_ready == 3
    assert sum(pod is not None for pod in played.everyone()) == 3


@given(st.sampled_from([SCALE, OURS]))
def test_undisturbed_the_old_pod_is_the_one_that_went(way):
    played = Played(way)
    for _ in range(20):
        for event in ("mover", "autoscaler", "controller", "kubelet"):
            played.play(event)
    assert played.is_over
    assert played.old is None
    assert played.successor is NEW


# -- by which way ------------------------------------------------------------------------------------------------


def a_workload(**more):
    return Workload(**({"kind": "Deployment", "name": "llm", "replicas": 3, "updated": 3, "ready": 3} | more))


def a_budget(allowed=1):
    return DisruptionBudget(
        namespace="default", name="b", selector=Selector(), allowed=allowed, expected=3, desired_healthy=2
    )


HPA = Scaler(kind="HorizontalPodAutoscaler", name="h")
ACTING = Scaler(kind="ConcurrencyAutoscaler", name="c", is_ours=True)
WATCHING = Scaler(kind="ConcurrencyAutoscaler", name="c", is_ours=True, is_acting=False)


@pytest.mark.parametrize(
    ("workload", "budgets", "answer"),
    [
        (a_workload(), (), SCALE),
        (a_workload(scalers=(ACTING,)), (), Way(kind=WayKind.AUTOSCALER, name="c")),
        (a_workload(scalers=(WATCHING,)), (), SCALE),
        (a_workload(scalers=(HPA,)), (a_budget(),), EVICTION),
        (a_workload(scalers=(HPA,)), (), NoWay.NO_BUDGET),
        (a_workload(scalers=(HPA,)), (a_budget(0),), NoWay.BUDGET_SPENT),
        (a_workload(scalers=(HPA,)), (a_budget(), a_budget()), NoWay.BUDGET_SPENT),
        (a_workload(scalers=(ACTING, replace(ACTING, name="d"))), (), NoWay.SHARED),
        (a_workload(kind="StatefulSet"), (a_budget(),), EVICTION),
        (a_workload(kind="StatefulSet"), (), NoWay.NO_BUDGET),
        (a_workload(updated=2), (), NoWay.ROLLING_OUT),
        (a_workload(is_current=False), (), NoWay.ROLLING_OUT),
        (a_workload(is_current=False, updated=4), (), NoWay.ROLLING_OUT),
        (a_workload(updated=4, ready=4), (), NotYet.SETTLING),
        (a_workload(is_observed=False), (), NotYet.SETTLING),
        (a_workload(is_paused=True), (), NoWay.ROLLING_OUT),
        (a_workload(ready=2), (), NoWay.NOT_ALL_READY),
        (a_workload(writers=(Writer(manager="argocd", operation="Apply"),)), (a_budget(),), EVICTION),
        (a_workload(writers=(Writer(manager="keda", subresource="scale"),)), (), NoWay.NO_BUDGET),
        (a_workload(writers=(Writer(manager="kubectl", subresource="scale"),)), (), SCALE),
        (a_workload(writers=(Writer(manager="helm"),)), (), SCALE),
        (a_workload(writers=(Writer(manager=labels.FIELD_MANAGER, subresource="scale"),)), (), SCALE),
        (None, (), NoWay.NO_WORKLOAD),
    ],
)
def test_by_which_way_a_pod_may_be_moved(workload, budgets, answer):
    found = way_for(member("p"), workload, budgets)
    assert (found.why if isinstance(found, Refused) else found) == answer
