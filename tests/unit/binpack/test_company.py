"""Pods in each other's company: what is answered, in which words, and what the rest of the planner makes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from binpack.check import check
from binpack.check_company import CompanyRule
from binpack.check_register import Register
from binpack.coming import Coming
from binpack.company.company import Company
from binpack.company.wishes import REPLICA_MILLI
from binpack.controller.retrying import requeue_waiting
from binpack.improvement import improve, question_of
from binpack.index import Index
from binpack.index.mix import mix_of
from binpack.planner import draft, plan_batch
from binpack.solver.instance import Budget
from binpack.solver.question import Answer
from binpack.state import NodeState
from fleet import labels
from fleet.company import Guest, HostPort, PodTerm, Selector, Spread
from fleet.constraints import NodeTerm, Requirement, Taint
from fleet.plan import Placement, Plan, Reason, SolveStatus, Source, Unplaced
from fleet.pod import Berth, Pod
from tests.support.berths import chosen, pod, seat, share
from tests.support.builders import a_node, a_pod
from tests.support.company import ZONE, a_world, is_app, newcomers
from tests.support.planning import a_world as a_planners_world

WEB = is_app("web")
ALONE = PodTerm(key=labels.HOSTNAME, selector=WEB, namespaces=("default",))


def a_guest(app: str = "web", **words: object) -> Guest:
    return Guest(labels=(("app", app),), **words)  # type: ignore[arg-type]


def a_guest_pod(name: str, guest: Guest, **words: object) -> Pod:
    return replace(pod(name, **words), guest=guest, labels=dict(guest.labels))  # type: ignore[arg-type]


def nodes(*guests: tuple[Guest, ...], zones: str = "", **words: object) -> list[NodeState]:
    """Return nodes n0, n1 ... with these guests, each in the zone of its letter; "-" = in none."""
    found = []
    for number, there in enumerate(guests):
        own = {labels.HOSTNAME: f"n{number}"}
        if zones and zones[number] != "-":
            own[ZONE] = zones[number]
        found.append(replace(seat(f"n{number}", labels=own, **words), guests=there))  # type: ignore[arg-type]
    return found


def node_for(states: list[NodeState], guest: Guest, **words: object) -> str:
    answer = Index(states).place(replace(a_guest_pod("p", guest), **words))  # type: ignore[arg-type]
    assert isinstance(answer, Placement), answer
    return answer.berth.node


# -- words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guest", "reason", "words"),
    [
        pytest.param(
            a_guest(spreads=(Spread(key=ZONE, selector=WEB),)),
            Reason.TOPOLOGY_SPREAD,
            f"topology spread over {ZONE}: skew would be 2 > 1 on 1 of 2 nodes with room",
            id="spread",
        ),
        pytest.param(
            a_guest(affinity=(PodTerm(key=ZONE, selector=is_app("db"), namespaces=("default",)),)),
            Reason.POD_AFFINITY,
            f"pod affinity over {ZONE} is in the way on 2 of 2 nodes with room",
            id="affinity",
        ),
        pytest.param(
            a_guest("other", anti=(PodTerm(key=ZONE, selector=Selector(), namespaces=("default",)),)),
            Reason.POD_ANTI_AFFINITY,
            f"pod anti-affinity over {ZONE} is in the way on 2 of 2 nodes with room",
            id="anti-affinity",
        ),
        pytest.param(
            a_guest("other", ports=(HostPort(port=80),)),
            Reason.HOST_PORT,
            "host port TCP/80 is taken on 2 of 2 nodes with room",
            id="port",
        ),
    ],
)
def test_a_miss_names_the_rule_with_its_numbers(guest: Guest, reason: Reason, words: str) -> None:
    holder = a_guest(ports=(HostPort(port=80, ip="10.0.0.1"),))
    away = PodTerm(key=ZONE, selector=is_app("other", "web"), namespaces=("default",))
    averse = a_guest("x", anti=(away,), ports=(HostPort(port=80),))
    third = replace(seat("full", cpu=0.0, labels={ZONE: "c"}), guests=())
    states = [*nodes((holder,), (averse,), zones="ab"), third]
    answer = Index(states).place(a_guest_pod("p", guest, cpu=1))
    assert isinstance(answer, Unplaced)
    assert words in answer.detail
    assert answer.allowed_nodes == 3
    if reason is not Reason.TOPOLOGY_SPREAD:
        assert answer.reason in (reason, Reason.POD_ANTI_AFFINITY)


def test_where_room_is_short_too_the_miss_says_what_is_short() -> None:
    states = nodes((a_guest(),), cpu=1.0)
    answer = Index(states).place(a_guest_pod("p", a_guest(anti=(ALONE,)), cpu=2))
    assert isinstance(answer, Unplaced)
    assert answer.reason is Reason.INSUFFICIENT
    assert answer.shortfall is not None


# -- soft rules -------------------------------------------------------------------------------------------------


def test_replicas_of_one_owner_go_to_different_nodes_and_pods_without_an_owner_are_packed() -> None:
    index = Index(nodes((), (), (), cpu=64.0))
    for owner, nodes_used in (("rs", 3), ("", 1)):
        pods = [a_guest_pod(f"{owner}{i}", a_guest(owner=owner), cpu=1) for i in range(3)]
        plan = draft(index, pods)
        assert len({one.berth.node for one in plan.placements}) == nodes_used


def test_replicas_share_a_node_rather_than_break_a_whole_one_that_others_need() -> None:
    states = [seat("n0", [1000] * 8), seat("n1", [500] * 8)]
    pods = [a_guest_pod(f"p{i}", a_guest(owner="rs"), ask=share(500)) for i in range(3)]
    plan = draft(Index(states, mix=mix_of([pod("large", ask=chosen(8)), pods[0]])), pods)
    assert {one.berth.node for one in plan.placements} == {"n1"}


@pytest.mark.parametrize(
    "rule",
    [
        {"spreads": (Spread(key=labels.HOSTNAME, is_hard=False, max_skew=9, selector=WEB),)},
        {"repulsed": ((1, PodTerm(key=labels.HOSTNAME, selector=is_app("nobody"), namespaces=("default",))),)},
    ],
)
def test_who_writes_how_replicas_share_nodes_is_taken_at_his_word(rule: dict[str, object]) -> None:
    pods = [a_guest_pod(f"p{i}", a_guest(owner="rs", **rule), cpu=1) for i in range(3)]
    plan = draft(Index(nodes((), (), ())), pods)
    assert len({one.berth.node for one in plan.placements}) == 1


def test_preferences_choose_among_nodes_that_pack_alike() -> None:
    there = a_guest("db")
    near = PodTerm(key=ZONE, selector=is_app("db"), namespaces=("default",))
    states = nodes((), (there,), (), zones="abc")
    assert node_for(states, a_guest(preferred=((50, near),))) == "n1"
    assert node_for(states, a_guest(repulsed=((50, replace(near, key=labels.HOSTNAME)),))) == "n0"
    wish = NodeTerm(labels=(Requirement(key=ZONE, operator="In", values=("c",)),))
    assert node_for(states, a_guest(), preferred_nodes=((10, wish),)) == "n2"
    assert (
        node_for(states, a_guest(spreads=(Spread(key=ZONE, is_hard=False, selector=is_app("db"), max_skew=1),))) == "n0"
    )


def test_nodes_without_the_key_come_last_for_a_soft_spread_and_count_for_no_wish() -> None:
    even = Spread(key=ZONE, is_hard=False, selector=WEB)
    assert node_for(nodes((), (a_guest(),), (), zones="-aa"), a_guest(spreads=(even,))) == "n1"
    far = PodTerm(key=ZONE, selector=is_app("db"), namespaces=("default",))
    states = nodes((a_guest("db"),), (), zones="-a")
    assert node_for(states, a_guest(repulsed=((50, far),))) == "n0"


def test_pods_that_would_rather_be_alone_are_left_alone_by_others() -> None:
    shy = a_guest("db", repulsed=((50, PodTerm(key=ZONE, selector=WEB, namespaces=("default",))),))
    assert node_for(nodes((shy,), (), zones="ab"), a_guest()) == "n1"


def test_a_node_that_prefers_no_pods_comes_last() -> None:
    states = nodes((), ())
    states[0] = replace(states[0], node=replace(states[0].node, taints=(Taint(key="k", effect="PreferNoSchedule"),)))
    assert node_for(states, Guest(labels=(("a", "b"),))) == "n1"


# -- the batch --------------------------------------------------------------------------------------------------


def test_a_pod_that_must_join_one_of_its_batch_waits_until_that_one_is_bound() -> None:
    join = PodTerm(key=ZONE, selector=is_app("db"), namespaces=("default",))
    first, second = a_guest_pod("big", a_guest(affinity=(join,)), cpu=8), a_guest_pod("small", a_guest("db"), cpu=1)
    states = nodes((), (), zones="ab")
    index, coming = Index(states), Coming()
    index.company.follow(coming)
    plan = draft(index, [first, second])
    (placement,), (unplaced,) = plan.placements, plan.unplaced
    assert (placement.pod_uid, unplaced.pod_uid, unplaced.reason) == ("small", "big", Reason.POD_AFFINITY)
    there = next(state for state in states if state.node.name == placement.berth.node)
    index.set_node(replace(there, guests=(second.guest,)))
    coming.seen(second, placement.berth.node)
    stamp = index.company.stamp(first.guest)
    (unplaced,) = draft(index, [first]).unplaced
    assert f"pod affinity over {ZONE} to pods not bound yet is in the way on 2 of 2" in unplaced.detail
    coming.gone(second.uid)
    assert index.company.stamp(first.guest) != stamp, "those who wait are told"
    assert [one.berth.node for one in draft(index, [first]).placements] == [placement.berth.node]


def test_a_spread_that_looks_at_all_nodes_waits_for_those_it_counts_to_be_bound() -> None:
    spread = Spread(key=ZONE, selector=is_app("web"), honors_affinity=False)
    pods = [a_guest_pod(f"p{number}", a_guest("web", spreads=(spread,)), cpu=1) for number in range(4)]
    index = Index(nodes((), (), zones="ab"))
    plan = draft(index, pods)
    assert len({one.berth.node for one in plan.placements}) == len(plan.placements) == 2
    assert {one.reason for one in plan.unplaced} == {Reason.TOPOLOGY_SPREAD}
    assert "while 2 pods that it counts are not bound yet: skew would be 2 > 1 on 2 of 2" in plan.unplaced[0].detail


def test_a_pod_without_rules_keeps_out_of_the_way_of_those_pinned_before_it() -> None:
    spread = Spread(key=ZONE, selector=is_app("web"), honors_affinity=False)
    index, coming = Index(nodes((a_guest("web", spreads=(spread,)),), (), zones="ab")), Coming()
    index.company.follow(coming)
    plain = a_guest_pod("plain", a_guest("web"), cpu=1)
    coming.seen(a_guest_pod("pinned", a_guest("web", spreads=(spread,)), cpu=1), "n0")
    assert [one.berth.node for one in draft(index, [plain]).placements] == ["n1"]
    coming.gone("pinned")
    assert draft(index, [plain]).unplaced == ()


@pytest.mark.parametrize("seed", range(25))
def test_the_solver_plans_around_pods_with_rules_and_the_plan_breaks_none(seed: int) -> None:
    rng = Random(seed)
    states = [replace(state, devices=seat("x", [1000, 1000]).devices) for state in a_world(rng)]
    states = [replace(state, node=replace(state.node, is_sharing=True)) for state in states]
    pods = newcomers(rng, 4)
    pods += [pod(f"gpu{i}", cpu=0.1, ask=share(rng.choice((300, 500, 700)))) for i in range(6)]
    index = Index(states)
    before = draft(index, pods)
    plan = plan_batch(index, pods, Budget(deterministic_s=0.2), {state.node.name: state for state in states})
    assert check({state.node.name: state for state in states}, pods, plan, register=Register(states)) == ()
    assert plan.objective <= before.objective + 1e-6
    berths = {one.pod_uid: one.berth for one in plan.placements}
    for one in before.placements:
        guest = next(p for p in pods if p.uid == one.pod_uid).guest
        if guest.has_wishes:
            assert berths[one.pod_uid] == one.berth
    assert index.place(pods[0]) == Index(states).place(pods[0])


def test_replicas_that_run_already_make_kinds_of_their_own_for_the_solver() -> None:
    states = [replace(seat("n0", [1000, 1000]), guests=(a_guest(owner="old"),)), seat("n1", [1000, 470])]
    index = Index(states)
    pods = [a_guest_pod(f"p{owner}", a_guest(owner=owner), ask=share(470)) for owner in ("old", "new", "newer")]
    pods.append(pod("other", ask=share(530)))
    question = question_of(index, pods, draft(index, pods))
    assert question is not None
    assert sorted(tuple(sorted(kind.uids)) for kind in question.kinds) == [("other",), ("pnew", "pnewer"), ("pold",)]


def test_replicas_together_cost_each_pair() -> None:
    placed = Counter({("rs", "n0"): 3, ("rs", "n1"): 1, ("", "n0"): 5})
    assert Company.togetherness(placed) == 3 * REPLICA_MILLI


def test_a_plan_that_stacks_replicas_to_save_less_than_they_cost_together_is_not_taken() -> None:
    index = Index([seat("n0", [1000, 1000]), seat("n1", [1000, 1000])])
    pods = [a_guest_pod(f"p{i}", a_guest(owner="rs"), ask=chosen(1)) for i in range(2)] + [pod("x", ask=share(300))]
    plan = draft(index, pods)
    question = question_of(index, pods, plan)
    assert question is not None
    assert len({one.berth.node for one in plan.placements if one.pod_uid != "x"}) == 2
    kind = next(number for number, one in enumerate(question.kinds) if len(one.uids) == 2)
    stacked = tuple(replace(seat_, node=0, positions=(0,)) if seat_.kind == kind else seat_ for seat_ in question.seats)
    for saving, source in ((REPLICA_MILLI - 1, Source.INDEX), (REPLICA_MILLI + 1, Source.SOLVER)):
        answer = Answer(status=SolveStatus.OPTIMAL, seats=stacked, cost=100.0 - saving, draft_cost=100.0)
        assert improve(plan, pods, question, answer).source is source


# -- the verifier -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guest", "rule"),
    [
        (a_guest(anti=(ALONE,)), CompanyRule.ANTI_AFFINITY),
        (a_guest("x"), CompanyRule.OTHERS_ANTI_AFFINITY),
        (a_guest("db", affinity=(replace(ALONE, selector=is_app("none")),)), CompanyRule.AFFINITY),
        (a_guest("db", ports=(HostPort(port=80),)), CompanyRule.HOST_PORT),
        (a_guest("db", spreads=(Spread(key=ZONE, selector=WEB),)), CompanyRule.SPREAD_KEY),
        (a_guest("web", spreads=(Spread(key=labels.HOSTNAME, selector=WEB),)), CompanyRule.SPREAD),
    ],
)
def test_the_verifier_names_the_rule(guest: Guest, rule: CompanyRule) -> None:
    there = a_guest(ports=(HostPort(port=80, ip="10.0.0.1"),), anti=(replace(ALONE, selector=is_app("x")),))
    states = nodes((there,), ())
    plan = Plan(placements=(Placement(pod_uid="p", berth=Berth(node="n0")),))
    by_name = {state.node.name: state for state in states}
    found = check(by_name, [a_guest_pod("p", guest)], plan, register=Register(states))
    assert [violation.rule for violation in found] == [rule]


# -- the planner's world ----------------------------------------------------------------------------------------


def test_a_pod_that_waits_for_others_is_planned_again_when_they_come_or_go_and_only_then() -> None:
    world = a_planners_world(*(a_node(f"n{i}", milli_cpu=8000, labels={ZONE: f"z{i}"}) for i in range(2)))
    join = PodTerm(key=ZONE, selector=is_app("db"), namespaces=("default",))
    seeker = replace(a_pod("seeker", milli_cpu=100), guest=a_guest(affinity=(join,)))
    world.pod_seen(seeker)
    (planned,) = world.take_batch(9)
    answer = world.index.place(planned)
    assert isinstance(answer, Unplaced)
    world.wait(answer)
    requeue_waiting(world)
    assert world.queue == {}
    assert not world.refresh()

    world.ledger.set_pod(replace(a_pod("stranger", node="n0", milli_cpu=100), guest=a_guest("cache")))
    assert not world.refresh()
    world.ledger.set_pod(replace(a_pod("db", node="n1", milli_cpu=100), guest=a_guest("db")))
    assert world.refresh()
    requeue_waiting(world)
    (planned,) = world.take_batch(9)
    found = world.index.place(planned)
    assert isinstance(found, Placement)
    assert found.berth.node == "n1"
    requeue_waiting(world)
    assert not world.refresh()


def test_a_closed_node_counts_for_topology_though_nobody_may_go_there() -> None:
    even = Spread(key=labels.HOSTNAME, selector=WEB)
    world = a_planners_world(
        a_node("n0", labels={labels.HOSTNAME: "n0"}),
        replace(a_node("shut", labels={labels.HOSTNAME: "shut"}), pool="pool", is_cordoned=True),
    )
    world.ledger.set_pod(replace(a_pod("there", node="n0"), guest=a_guest()))
    world.refresh()
    answer = world.index.place(a_guest_pod("p", a_guest(spreads=(even,))))
    assert isinstance(answer, Unplaced)
    assert answer.reason is Reason.TOPOLOGY_SPREAD


def test_namespaces_that_change_their_labels_change_what_rules_select() -> None:
    by_label = PodTerm(
        key=labels.HOSTNAME,
        selector=WEB,
        namespace_selector=Selector(requirements=(Requirement(key="kind", operator="In", values=("open",)),)),
    )
    states = nodes((a_guest(),))
    index = Index(states)
    seeker = a_guest_pod("p", replace(a_guest("x", anti=(by_label,)), namespace="team"))
    assert isinstance(index.place(seeker), Placement)
    assert index.company.set_namespace("default", {"kind": "open"})
    assert isinstance(index.place(seeker), Unplaced)
    assert not index.company.set_namespace("default", {"kind": "open"})
    index.company.set_namespace("default", None)
    assert isinstance(index.place(seeker), Placement)


def test_a_namespace_that_changes_its_labels_is_met_by_the_rules_of_pods_that_run() -> None:
    by_label = PodTerm(
        key=labels.HOSTNAME,
        selector=WEB,
        namespace_selector=Selector(requirements=(Requirement(key="kind", operator="In", values=("open",)),)),
    )
    index = Index(nodes((a_guest("averse", anti=(by_label,)),)))
    comer = a_guest_pod("p", replace(a_guest(), namespace="team"))
    assert isinstance(index.place(comer), Placement)
    index.company.set_namespace("team", {"kind": "open"})
    assert isinstance(index.place(comer), Unplaced)
