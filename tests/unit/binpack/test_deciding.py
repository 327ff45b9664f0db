"""A batch's decision while the cluster goes on: what the solver thought of may no longer hold when it has thought."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from binpack import planner
from binpack.check import check
from binpack.check_register import Register
from binpack.config import PlannerSettings
from binpack.controller.deciding import Decider
from binpack.controller.metrics import PlannerMetrics
from binpack.dra.desk import Desk
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.solver.question import Answer
from binpack.solver.solve import solve
from fleet.company import Guest, PodTerm, Selector
from fleet.constraints import Requirement
from fleet.plan import SolveStatus, Source
from fleet.pod import Berth
from tests.support.berths import card, chosen, pod, seat, share
from tests.support.builders import a_node, a_pod
from tests.support.devices import a_claim, a_claimant, a_desk, a_device, a_slice, an_index, given
from tests.support.planning import running


class World:
    """States and index, moved by hand."""

    def __init__(self, *states):
        self.states_now = {state.node.name: state for state in states}
        self.index = Index(states)
        self.register, self.desk, self.ledger = Register(states), Desk(), Ledger()
        self.waiting, self.weights = {}, {}
        self.coming, self.going = [], []

    def waited_s(self, uid):
        return 0.0

    def asks_still(self, pod):
        return True

    def refresh(self):
        for state in self.coming:
            self.states_now[state.node.name] = state
            for place in (self.index.company, self.index, self.register):
                place.set_node(state)
        for name in self.going:
            del self.states_now[name]
            for place in (self.index.company, self.index, self.register):
                place.remove_node(name)
        self.coming, self.going = [], []

    def states(self, names):
        return {name: self.states_now[name] for name in names if name in self.states_now}


class Solver:
    """Answers at once, after letting the cluster go on."""

    def __init__(self, meanwhile=lambda: None, answer=None):
        self.meanwhile, self.answer, self.asked = meanwhile, answer, 0

    async def solve(self, question, budget):
        self.asked += 1
        self.meanwhile()
        return self.answer or solve(question, budget)


class Liar(Solver):
    """Seats everybody on one device."""

    async def solve(self, question, budget):
        answer = await super().solve(question, budget)
        first = answer.seats[0]
        crowd = [replace(first, kind=n) for n, kind in enumerate(question.kinds) for _ in kind.uids]
        return replace(answer, seats=tuple(crowd), cost=answer.draft_cost - 1e6)


class Counts:
    """Metrics, and what they show of plans."""

    def __init__(self):
        self.registry = CollectorRegistry()
        self.metrics = PlannerMetrics(self.registry)

    @property
    def violations(self):
        return self.registry.get_sample_value("berthmaster_plan_violations_total")

    def stale(self, outcome):
        name = "berthmaster_placements_stale_total"
        return self.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


def metrics():
    return PlannerMetrics(CollectorRegistry())


# One device each that the index, largest first, fills worse than the solver: see the planner's own tests.
PODS = [
    pod("p0", ask=share(500), cpu=5),
    pod("p1", ask=share(600), cpu=6),
    pod("p2", ask=share(400), cpu=2),
    pod("p3", ask=share(500), cpu=4),
    pod("p4", ask=share(600), cpu=2),
]


def two_nodes():
    return World(seat("n0", [1000], cpu=10), seat("n1", [1000], cpu=6))


async def test_the_solvers_plan_is_used_where_it_holds():
    plan = await Decider(Solver(), PlannerSettings(), metrics())(two_nodes(), PODS)
    assert (plan.source, len(plan.placements)) == (Source.SOLVER, 4)


async def test_without_solver_time_nobody_is_asked():
    solver = Solver()
    plan = await Decider(solver, PlannerSettings(solve_s=0.0), metrics())(two_nodes(), PODS)
    assert (solver.asked, plan.source, len(plan.placements)) == (0, Source.INDEX, 3)


@pytest.mark.parametrize("status", [SolveStatus.LATE_OR_DEAD, SolveStatus.UNKNOWN])
async def test_without_an_answer_the_index_decides(status):
    decider = Decider(Solver(answer=Answer(status=status, detail="gone")), PlannerSettings(), metrics())
    plan = await decider(two_nodes(), PODS)
    assert (plan.source, plan.solve_status, len(plan.placements)) == (Source.INDEX, status, 3)


def three_nodes():
    return World(seat("n1", [1000]), seat("n2", [1000]), seat("n3", [1000]))


PAIR = [pod("a", ask=chosen(1), cpu=1), pod("b", ask=chosen(1), cpu=2)]


async def first_choice(world, pods):
    """Return the node that the first of the pods gets while nothing happens."""
    plan = await Decider(Solver(), PlannerSettings(solve_s=0.0), metrics())(world, pods)
    return plan.placements[0].berth.node


def nodes_of(plan):
    return {placement.pod_uid: placement.berth.node for placement in plan.placements}


SICK = [card("0", is_healthy=False)]


@pytest.mark.parametrize(
    ("happens", "is_gone"),
    [(lambda name: seat(name, [0]), False), (lambda name: seat(name, devices=SICK), False), (seat, True)],
    ids=["somebody else was bound there", "its device broke", "the node went"],
)
async def test_a_pod_whose_berth_went_meanwhile_gets_another_at_once_and_nobody_calls_it_a_bug(happens, is_gone):
    """Else it would wait until room appears somewhere, though there is room already."""
    world, noted = three_nodes(), Counts()
    taken = await first_choice(world, PAIR)

    def meanwhile():
        if is_gone:
            world.going = [taken]
        else:
            world.coming = [happens(taken)]

    plan = await Decider(Solver(meanwhile), PlannerSettings(), noted.metrics)(world, PAIR)
    assert set(nodes_of(plan)) == {"a", "b"}
    assert taken not in nodes_of(plan).values()
    assert (noted.violations, noted.stale("placed-again"), noted.stale("waits")) == (0, 1, 0)


async def test_a_pod_whose_berth_went_meanwhile_waits_where_there_is_no_other():
    world, noted = World(seat("n1", [1000]), seat("n2", [1000])), Counts()
    taken = await first_choice(world, PAIR)

    def meanwhile():
        world.coming = [seat(taken, [0])]

    plan = await Decider(Solver(meanwhile), PlannerSettings(), noted.metrics)(world, PAIR)
    assert (len(plan.placements), len(plan.unplaced)) == (1, 1)
    assert plan.unplaced[0].shortfall is not None  # it waits for what is missing, not for another try
    assert (noted.violations, noted.stale("placed-again"), noted.stale("waits")) == (0, 0, 1)


async def test_what_happens_elsewhere_makes_nothing_stale():
    world, noted = three_nodes(), Counts()

    def meanwhile():
        world.coming = [seat("n9", [0])]

    plan = await Decider(Solver(meanwhile), PlannerSettings(), noted.metrics)(world, PAIR)
    assert set(nodes_of(plan)) == {"a", "b"}
    assert (noted.violations, noted.stale("placed-again"), noted.stale("waits")) == (0, 0, 0)


async def test_an_answer_that_never_held_is_a_bug():
    noted = Counts()
    plan = await Decider(Liar(), PlannerSettings(), noted.metrics)(two_nodes(), PODS)
    assert (plan.source, len(plan.placements)) == (Source.INDEX, 3)
    assert noted.violations > 0
    assert (noted.stale("placed-again"), noted.stale("waits")) == (0, 0)


async def test_an_answer_that_never_held_is_a_bug_whatever_happened_meanwhile():
    """Room for all of it has come since; it was not there when the solver was asked."""
    world, noted = two_nodes(), Counts()

    def meanwhile():
        many = [card(str(n), 100_000) for n in range(1)]
        world.coming = [seat("n0", devices=many, cpu=1000), seat("n1", devices=many, cpu=1000)]

    plan = await Decider(Liar(meanwhile), PlannerSettings(), noted.metrics)(world, PODS)
    assert noted.violations > 0
    assert len(plan.placements) == len(PODS)
    assert (noted.stale("placed-again"), noted.stale("waits")) == (0, 0)


async def test_a_bug_and_a_stale_berth_are_told_apart():
    """The solver's plan never held; of the index's, which stands in for it, one berth has gone meanwhile."""
    world, noted = two_nodes(), Counts()

    def meanwhile():
        world.coming = [seat("n1", [0], cpu=6)]

    plan = await Decider(Liar(meanwhile), PlannerSettings(), noted.metrics)(world, PODS)
    assert set(nodes_of(plan).values()) == {"n0"}
    calm = Counts()
    await Decider(Liar(), PlannerSettings(), calm.metrics)(two_nodes(), PODS)
    assert noted.violations == calm.violations > 0
    assert noted.stale("placed-again") + noted.stale("waits") > 0


LONER = Guest(
    namespace="default",
    labels=(("app", "loner"),),
    anti=(
        PodTerm(
            key="rack",
            namespaces=("default",),
            selector=Selector(requirements=(Requirement(key="app", operator="In", values=("web",)),)),
        ),
    ),
)


async def test_somebody_who_keeps_others_away_and_came_meanwhile_is_no_bug():
    """The pod's own node is as it was: who came is on another of the same rack."""
    nodes = [seat(name, [1000], labels={"rack": rack}) for name, rack in (("n1", "r1"), ("n2", "r2"), ("n3", "r3"))]
    world, noted = World(*nodes, seat("bare1", labels={"rack": "r1"}), seat("bare2", labels={"rack": "r2"})), Counts()
    web = Guest(namespace="default", labels=(("app", "web"),))
    pods = [replace(one, guest=web) for one in PAIR]
    taken = (await first_choice(world, pods)).replace("n", "bare")
    bare = world.states_now[taken]

    def meanwhile():
        world.coming = [replace(bare, guests=(LONER,))]

    plan = await Decider(Solver(meanwhile), PlannerSettings(), noted.metrics)(world, pods)
    assert set(nodes_of(plan)) == {"a", "b"}
    assert (noted.violations, noted.stale("placed-again"), noted.stale("waits")) == (0, 1, 0)
    assert world.register.on[taken] == {LONER: 1}  # what is known now is known still


@pytest.mark.parametrize("rivals", [1, 2])
async def test_a_claimed_device_that_went_meanwhile_is_no_bug(rivals):
    """The nodes are as they were: only the claims tell."""
    world, noted = three_nodes(), Counts()
    bare = [seat("b1"), seat("b2")]
    slices = [a_slice(node.node.name, [a_device("d")]) for node in bare]
    world.states_now |= {node.node.name: node for node in bare}
    world.desk = a_desk(*slices, claims=[a_claim("wanted")])
    world.index, world.register = an_index(world.desk, *world.states_now.values()), Register(world.states_now.values())
    pods = [*PAIR, a_claimant("c", "wanted")]
    calm = Counts()
    plan = await Decider(Solver(), PlannerSettings(), calm.metrics)(world, pods)
    taken = nodes_of(plan)["c"]
    assert (calm.violations, calm.stale("placed-again"), calm.stale("waits")) == (0, 0, 0)

    def meanwhile():
        for name in [taken, *({"b1", "b2"} - {taken})][:rivals]:
            world.desk.set_claim(a_claim(f"rival-{name}", **given(name, "d", pods=["x"])))

    plan = await Decider(Solver(meanwhile), PlannerSettings(), noted.metrics)(world, pods)
    assert {"a", "b"} <= set(nodes_of(plan))
    assert nodes_of(plan).get("c") != taken
    assert noted.violations == 0
    assert (noted.stale("placed-again"), noted.stale("waits")) == ((1, 0) if rivals == 1 else (0, 1))


def goes(bridge, pod):
    bridge.lose(pod.uid)


def wishes_else(bridge, pod):
    bridge.see(replace(pod, constraints=replace(pod.constraints, node_selector=(("no", "where"),))))


@pytest.mark.parametrize("happens", [goes, wishes_else])
async def test_who_went_meanwhile_keeps_nobody_from_its_room(happens):
    noted, pods = Counts(), [a_pod("a", whole=1), a_pod("b", whole=1)]
    calm = Decider(Solver(), PlannerSettings(), metrics())
    async with running([a_node("n1", gpus=1, milli_cpu=64_000)], decide=calm) as bridge:
        bridge.see(*pods)
        await bridge.pass_s(1)
        (first,) = [uid for verb, uid, _ in bridge.writer.calls if verb == "pin"]
    solver = Solver(lambda: solver.asked == 1 and happens(bridge, next(one for one in pods if one.uid == first)))
    decide = Decider(solver, PlannerSettings(), noted.metrics)
    async with running([a_node("n1", gpus=1, milli_cpu=64_000)], decide=decide) as bridge:
        bridge.see(*pods)
        await bridge.pass_s(1)
        (other,) = [one.uid for one in pods if one.uid != first]
        assert ("pin", other, Berth(node="n1", devices=("0",))) in bridge.writer.calls
        assert not [what for verb, uid, what in bridge.writer.calls if (verb, uid) == ("say", other)]
    assert (noted.violations, noted.stale("placed-again"), noted.stale("waits")) == (0, 0, 0)


async def test_where_nothing_happened_an_answer_is_judged_once(monkeypatch):
    judged = []

    def counted(states, pods, plan, **more):
        judged.append(plan)
        return check(states, pods, plan, **more)

    monkeypatch.setattr(planner, "check", counted)
    await Decider(Solver(), PlannerSettings(), metrics())(two_nodes(), PODS)
    assert len(judged) == 1
