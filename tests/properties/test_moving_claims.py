"""Moves of pods with resource claims: devices for the successor beside those of the pod, and all of it taken back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from binpack.check_moves import check_moves
from binpack.dra.choose import Chosen
from binpack.dra.desk import Desk
from binpack.dra.wishes import Wish
from binpack.fit import missing
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.moving import afresh
from binpack.relocation.candidates import movables
from binpack.repack.propose import propose
from binpack.repack.values import EmptyNodes, Goal, MakeRoom, Movable, MoveBudget, MovePlan, Verdict
from binpack.state import NodeState
from fleet.dra import Capacity, PodClaim, PoolDevice, RequestPolicy, Reserver, ResourceClaim
from fleet.node import Node
from fleet.plan import SolveStatus
from fleet.pod import Owner, Pod
from fleet.resources import Resources
from tests.support.builders import a_node, a_pod
from tests.support.devices import NANO, a_claim, a_claimant, a_desk, a_device, a_request, a_slice, agree
from tests.support.devices import given as given_to

SOME = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
AMPLE = MoveBudget(pods_per_hour=1000, per_service=1000, per_node=1000)
COUNTERS = {"card": {"slices": 3}}


@dataclass(frozen=True, kw_only=True)
class Port:
    """A cluster whose pods hold devices by claims."""

    nodes: tuple[Node, ...]
    devices: dict[str, tuple[PoolDevice, ...]]
    pods: tuple[Pod, ...]
    claims: tuple[ResourceClaim, ...]
    waiting: tuple[Pod, ...] = ()

    def desk(self) -> Desk:
        return a_desk(
            *(a_slice(name, found, counters=COUNTERS) for name, found in self.devices.items()), claims=self.claims
        )

    def states(self) -> dict[str, NodeState]:
        ledger = Ledger()
        for node in self.nodes:
            ledger.set_node(node)
        for pod in self.pods:
            ledger.set_pod(pod)
        found = {node.name: ledger.state(node.name) for node in self.nodes}
        return {name: state for name, state in found.items() if state is not None}

    def index(self, desk: Desk) -> Index:
        index = Index()
        index.use_claims(desk)
        for state in self.states().values():
            index.set_node(state)
        return index

    def movables(self, desk: Desk) -> tuple[Movable, ...]:
        return movables(self.pods, self.states(), lambda pod: (), claimed=desk.held_alone)


@st.composite
def some_devices(draw: st.DrawFn, name: str) -> tuple[PoolDevice, ...]:
    found = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(("plain", "plain", "counted", "shared")))
        words: dict[str, Any] = {}
        if kind == "counted":
            words["uses"] = {"card": {"slices": draw(st.integers(1, 2))}}
        elif kind == "shared":
            policy = RequestPolicy(default=NANO, least=NANO, step=NANO)
            words["capacity"] = {"memory": Capacity(value=2 * NANO, policy=policy)}
            words["is_multiple"] = True
        found.append(a_device(f"{name}-{number}", {"zone": draw(st.integers(0, 1))}, **words))
    return tuple(found)


@st.composite
def wishes(draw: st.DrawFn, name: str) -> ResourceClaim:
    constraints = [agree("zone")] if draw(st.booleans()) else []
    return a_claim(name, a_request("dev", draw(st.integers(1, 2))), constraints=constraints)


@st.composite
def ports(draw: st.DrawFn) -> Port:
    """Two to four nodes; pods come one after another, each to some node that has the devices for its claim."""
    names = [f"n{number}" for number in range(draw(st.integers(2, 4)))]
    nodes = tuple(a_node(name, gpus=0, milli_cpu=draw(st.sampled_from((2000, 4000)))) for name in names)
    devices = {name: draw(some_devices(name)) for name in names}
    port = Port(nodes=nodes, devices=devices, pods=(), claims=())
    desk = port.desk()
    cpu = {node.name: node.allocatable.milli_cpu for node in nodes}
    for number in range(draw(st.integers(0, 6))):
        claim = draw(wishes(f"c{number}"))
        desk.set_claim(claim)
        wish = desk.wish(a_claimant("p", claim.name))
        assert isinstance(wish, Wish)
        able = [name for name in names if cpu[name] >= 500 and isinstance(desk.offer(name, wish), Chosen)]
        if not able:
            desk.remove_claim(claim.uid)
            continue
        name = draw(st.sampled_from(able))
        cpu[name] -= 500
        answer = desk.offer(name, wish)
        assert isinstance(answer, Chosen)
        pod = running(f"p{number}", name, claim.name, template=draw(st.sampled_from(("t", "t", "t", ""))))
        users = [pod.uid] if draw(st.integers(0, 5)) else [pod.uid, "somebody"]
        reserved = tuple(Reserver(uid=uid, name=uid) for uid in users)
        claim = replace(claim, allocation=answer.choices[0].allocation, reserved_for=reserved)
        desk.set_claim(claim)
        port = replace(port, pods=(*port.pods, pod), claims=(*port.claims, claim))
    wanted = tuple(draw(wishes(f"w{number}")) for number in range(draw(st.integers(1, 2))))
    waiting = tuple(claimant(f"u{number}", claim.name) for number, claim in enumerate(wanted))
    return replace(port, claims=(*port.claims, *wanted), waiting=waiting)


def running(name: str, node: str, claim: str, *, template: str = "t") -> Pod:
    pod = a_pod(name, node=node, milli_cpu=500, owner=Owner(kind="ReplicaSet", name=f"of-{name}", uid=f"of-{name}"))
    return replace(
        pod, has_claims=True, is_ready=True, resource_claims=(PodClaim(name="dev", claim=claim, template=template),)
    )


def claimant(name: str, claim: str) -> Pod:
    return a_claimant(name, claim, requests=Resources(milli_cpu=500, pod_slots=1))


def run(port: Port, goal: Goal, budget: MoveBudget = AMPLE) -> tuple[MovePlan, Desk]:
    desk = port.desk()
    return propose(port.index(desk), port.states(), port.movables(desk), goal, budget, 0.0), desk


def held(desk: Desk, port: Port) -> dict[object, object]:
    cells = [cell.id for node in port.nodes for cell in desk.pools.reach(node.name).cells]
    return {cell: (desk.books.holders(cell), desk.books.consumed(cell)) for cell in cells}


@st.composite
def scattered(draw: st.DrawFn) -> Port:
    """Nodes on each of which one device is free, and a pod that wants two of one node."""
    names = [f"n{number}" for number in range(draw(st.integers(2, 3)))]
    nodes = tuple(a_node(name, gpus=0, milli_cpu=4000) for name in names)
    devices, pods, claims = {}, [], []
    for name in names:
        many = draw(st.integers(1, 3))
        devices[name] = tuple(a_device(f"{name}-{i}", {"zone": draw(st.integers(0, 1))}) for i in range(many))
        for number in range(many - 1):
            pod = running(
                f"{name}-p{number}", name, f"{name}-c{number}", template=draw(st.sampled_from(("t", "t", "")))
            )
            pods.append(pod)
            constraints = [agree("zone")] if draw(st.booleans()) else []
            users = (Reserver(uid=pod.uid, name=pod.name),)
            claim = a_claim(f"{name}-c{number}", constraints=constraints, **given_to(name, f"{name}-{number}"))
            claims.append(replace(claim, reserved_for=users))
    wanted = a_claim("w0", a_request("dev", 2), constraints=[agree("zone")] if draw(st.booleans()) else [])
    waiting = (claimant("u0", "w0"),)
    return Port(nodes=nodes, devices=devices, pods=tuple(pods), claims=(*claims, wanted), waiting=waiting)


@st.composite
def goals(draw: st.DrawFn, port: Port) -> Goal:
    if draw(st.booleans()):
        return EmptyNodes(nodes=tuple(draw(st.permutations([node.name for node in port.nodes]))))
    return MakeRoom(pods=port.waiting)


@SOME
@given(st.data(), ports())
def test_moves_with_claims_break_no_rule_and_leave_the_desk_as_it_was(data: st.DataObject, port: Port) -> None:
    goal = data.draw(goals(port))
    plan, desk = run(port, goal)
    assert held(desk, port) == held(port.desk(), port)
    assert desk.wish(port.waiting[0]) == port.desk().wish(port.waiting[0])
    assert "did not hold" not in plan.detail
    waiting = port.waiting if isinstance(goal, MakeRoom) else ()
    published = desk.published([node.name for node in port.nodes])
    assert check_moves(port.states(), port.movables(desk), waiting, plan, AMPLE, published) == ()
    assert replayed(port, plan)
    moved = {move.pod_uid for move in plan.moves}
    stay = {pod.uid for pod, claim in zip(port.pods, port.claims, strict=False) if not is_own(pod, claim)}
    assert not moved & stay


def is_own(pod: Pod, claim: ResourceClaim) -> bool:
    return bool(pod.resource_claims[0].template) and len(claim.reserved_for) == 1


def replayed(port: Port, plan: MovePlan) -> bool:
    """Carry the moves out as the cluster would, on a desk apart: each new claim beside the old, which then goes."""
    desk = port.desk()
    own = {pod.uid: pod.resource_claims[0].claim for pod in port.pods}
    for move in plan.moves:
        old = desk.claims[own[move.pod_uid]]
        (choice,) = move.target.choices
        for result in choice.allocation.results:
            holders = desk.books.holdings(result.id)
            if any(not one.share_id for results in holders.values() for one in results):
                return False
        desk.set_claim(replace(old, uid=f"new {old.uid}", name=f"new-{old.name}", allocation=choice.allocation))
        desk.remove_claim(old.uid)
    for placement in plan.placements:
        for choice in placement.berth.choices:
            if any(desk.books.is_whole_held(result.id) for result in choice.allocation.results):
                return False
            desk.set_claim(replace(desk.claims[choice.claim_uid], allocation=choice.allocation))
    return True


@SOME
@given(ports())
def test_a_node_with_one_pod_is_emptied_exactly_where_another_has_the_devices(port: Port) -> None:
    desk = port.desk()
    alone = [node.name for node in port.nodes if sum(pod.node_name == node.name for pod in port.pods) == 1]
    for name in alone[:1]:
        ((pod, claim),) = [(p, c) for p, c in zip(port.pods, port.claims, strict=False) if p.node_name == name]
        plan, _ = run(port, EmptyNodes(nodes=(name,)))
        wish = desk.wish(replace(afresh(pod)))
        assert isinstance(wish, Wish)
        states = port.states()
        could = is_own(pod, claim) and any(
            isinstance(desk.offer(other, wish), Chosen) and not missing(afresh(pod), state)
            for other, state in states.items()
            if other != name
        )
        assert (plan.verdict is Verdict.REACHED) == could


@SOME
@given(scattered())
def test_room_is_made_where_one_move_of_a_claim_makes_it(port: Port) -> None:
    """By brute force: some pod goes to a node with devices for its like, and then the waiting pod fits."""
    port = replace(port, waiting=port.waiting[:1])
    (waiting,) = port.waiting
    desk = port.desk()
    wish = desk.wish(waiting)
    assert isinstance(wish, Wish)
    states = port.states()
    if any(fits(desk, waiting, name, wish, states) for name in states):
        return
    plan, _ = run(port, MakeRoom(pods=port.waiting))
    if plan.verdict is Verdict.REACHED:
        assert plan.solve_status is SolveStatus.NOT_ASKED
        return
    for pod, claim in zip(port.pods, port.claims, strict=False):
        if not is_own(pod, claim):
            continue
        like = desk.wish(afresh(pod))
        assert isinstance(like, Wish)
        for name in states:
            answer = desk.offer(name, like)
            if name == pod.node_name or not isinstance(answer, Chosen) or missing(afresh(pod), states[name]):
                continue
            desk.set_claim(replace(claim, uid="new", name="new", allocation=answer.choices[0].allocation))
            desk.remove_claim(claim.uid)
            after = replace(
                port, pods=tuple(replace(one, node_name=name) if one is pod else one for one in port.pods)
            ).states()
            assert not fits(desk, waiting, pod.node_name, wish, after), (pod.name, name)
            desk.remove_claim("new")
            desk.set_claim(claim)


def fits(desk: Desk, pod: Pod, name: str, wish: Wish, states: dict[str, NodeState]) -> bool:
    return not missing(pod, states[name]) and isinstance(desk.offer(name, wish), Chosen)
