"""Several replicas of one Deployment that are to move: any order of events, planners that die, two marks at once."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.controller.moves import Moves, Open, is_over
from binpack.ledger import Ledger
from binpack.relocation.one_surge import Surging, out_of_turn, shares_surge
from binpack.relocation.record import Way, WayKind, format_way
from binpack.relocation.steps import Do, Stage, Surge, next_step, surge_of
from binpack.tenants import Tenants
from fleet import labels
from fleet.pod import Berth, Pod
from tests.support.builders import a_node, a_pod

BASE = 3
FROM = [f"old{number}" for number in range(BASE)]


class Deployment:
    """One of three as its controllers would keep it; a planner moves its pods, and may be another one at any time.

    The dictionary of pods is all that the API has; a planner is made afresh from it.
    """

    def __init__(self, kind: WayKind) -> None:
        self.way = Way(kind=kind, name="llm", base=BASE if kind is WayKind.SCALE else 0)
        self.pods: dict[str, Pod] = {}
        for number, name in enumerate(FROM):
            pod = a_pod(name, whole=1, node=f"n{number}", devices=("0",))
            self.pods[pod.uid] = replace(pod, is_ready=True)
        self.count, self.listed = BASE, set[str]()
        self.made = 0
        self.now_s = 0.0
        self.may_move = True
        self.least_ready = BASE
        self.most = BASE
        self.ends: list[Stage] = []
        self.restart()

    # -- the planner ---------------------------------------------------------------------------------------------

    def restart(self) -> None:
        self.ledger, self.tenants = Ledger(), Tenants()
        self.moves = Moves(self.ledger, self.tenants, lambda pod, name: True)
        for number in range(2 * BASE):
            self.ledger.set_node(a_node(f"n{number}", gpus=1))
        self.shown: set[str] = set()
        self.show()

    def show(self) -> None:
        """Let the watch come up to the API."""
        for pod in self.pods.values():
            self.ledger.set_pod(pod)
            self.tenants.seen(pod)
        for uid in self.shown - set(self.pods):
            self.ledger.remove_pod(uid)
            self.tenants.gone(uid)
            self.moves.pod_gone(uid)
        self.shown = set(self.pods)

    def mark(self, number: int, *, is_in_turn: bool = True) -> None:
        """Begin a move, as the proposer does; out of turn as one would whose mark another planner did not see."""
        pod = self.pods.get(f"uid-{FROM[number]}")
        if pod is None or pod.moving_to is not None or (is_in_turn and not self.is_at_rest(pod)):
            return
        target = Berth(node=f"n{BASE + number}", devices=("0",))
        marked = replace(pod, moving_to=target, moving_by=format_way(self.way))
        if is_in_turn:
            self.moves.begin(marked, self.now_s)
        self.pods[pod.uid] = marked

    def is_at_rest(self, pod: Pod) -> bool:
        settled = self.count == BASE == len(self.pods) and all(one.is_ready for one in self.pods.values())
        return self.may_move and settled and not self.moves.is_surging(pod)

    def look(self) -> None:
        """Do the next step of each open move, as the mover does."""
        for move in self.moves.open(self.now_s):
            surge = self.surge(move)
            if surge is Surge.PRESENT and move.old is not None:
                self.moves.surged(move.old)
            assert move.way is not None
            facts = self.moves.facts(move, move.way, surge, self.now_s, is_wanted=self.may_move, is_stale=False)
            step = next_step(facts)
            self.moves.note(move, step, self.now_s)
            self.do(move, step.do)
            if is_over(step):
                self.moves.ended(move.uid, self.now_s)
                self.ends.append(step.stage)

    def surge(self, move: Open) -> Surge:
        if move.is_out_of_turn:
            return Surge.ABSENT
        return surge_of(self.way, count=self.count, is_listed=move.uid in self.listed)

    def do(self, move: Open, do: Do) -> None:
        match do:
            case Do.SURGE:
                assert move.old is not None
                self.moves.surged(move.old)
                self.order(move.uid, 1)
            case Do.SETTLE:
                self.order(move.uid, -1)
            case Do.MARK if move.uid in self.pods:
                self.pods[move.uid] = replace(self.pods[move.uid], deletion_cost=labels.LEAVES_FIRST)
            case Do.CLEAR | Do.FINISH:
                for pod in (move.old, move.successor):
                    if pod is not None and pod.uid in self.pods:
                        self.pods[pod.uid] = replace(self.pods[pod.uid], moving_to=None, moving_by="", deletion_cost="")
            case _:
                pass

    def order(self, uid: str, more: int) -> None:
        if self.way.kind is WayKind.SCALE:
            self.count += more
        elif more > 0:
            self.listed = {uid}
        else:
            self.listed.discard(uid)

    # -- everybody else ------------------------------------------------------------------------------------------

    def autoscale(self) -> None:
        if self.way.kind is WayKind.AUTOSCALER:
            self.count = BASE + len(self.listed)

    def control(self) -> None:
        """Make a pod, or drop one, as a ReplicaSet would: first who is not Ready, then who is cheapest to lose."""
        if len(self.pods) < self.count:
            self.made += 1
            self.show()
            fresh = a_pod(f"new{self.made}", whole=1)
            found = self.moves.seat_for(fresh)
            if found is None:  # any other node
                taken = {pod.node_name for pod in self.pods.values()}
                nodes = [f"n{number}" for number in range(2 * BASE) if f"n{number}" not in taken]
                found = (fresh, Berth(node=nodes[0], devices=("0",)))
            pod, berth = found
            bound = a_pod(pod.name, whole=1, node=berth.node, devices=("0",))
            self.pods[pod.uid] = replace(bound, moved_from=pod.moved_from, moving_by=pod.moving_by)
        elif len(self.pods) > self.count:
            first = min(self.pods.values(), key=lambda pod: (pod.is_ready, int(pod.deletion_cost or 0), pod.name))
            del self.pods[first.uid]

    def serve(self) -> None:
        """Let the youngest pod that is not Ready be it."""
        late = [pod for pod in self.pods.values() if not pod.is_ready]
        if late:
            self.pods[late[-1].uid] = replace(late[-1], is_ready=True)

    def play(self, event: str) -> None:
        match event.split(" "):
            case ["mark", number]:
                self.mark(int(number))
            case ["stray", number]:
                self.mark(int(number), is_in_turn=False)
            case ["look"]:
                self.look()
            case ["show"]:
                self.show()
            case ["restart"]:
                self.restart()
            case ["scaler"]:
                self.autoscale()
            case ["controller"]:
                self.control()
            case ["kubelet"]:
                self.serve()
            case ["time"]:
                self.now_s += 200.0
            case ["vanish", number]:
                self.pods.pop(f"uid-{FROM[int(number)]}", None)
            case ["off"]:
                self.may_move = False
        self.least_ready = min(self.least_ready, sum(pod.is_ready for pod in self.pods.values()))
        self.most = max(self.most, self.count)

    def come_to_rest(self) -> None:
        for _ in range(60):
            for event in ("show", "look", "scaler", "controller", "kubelet", "time"):
                self.play(event)

    def hold(self) -> None:
        """Say that nothing is left of any move, and that nobody has missed anything."""
        assert self.count == BASE == len(self.pods)
        assert not self.listed
        assert not [pod.name for pod in self.pods.values() if pod.moving_to or pod.moving_by or pod.deletion_cost]
        assert self.least_ready == BASE
        assert self.most <= BASE + 1


MARKS = [f"mark {number}" for number in range(BASE)]
OTHERS = ["look", "show", "restart", "scaler", "controller", "kubelet", "time"]
KINDS = st.sampled_from([WayKind.SCALE, WayKind.AUTOSCALER])


@settings(max_examples=300, deadline=None)
@given(KINDS, st.lists(st.sampled_from([*MARKS, *OTHERS, "off"]), max_size=60))
def test_moves_of_one_deployment_leave_nothing_behind_and_nobody_is_missed(kind: WayKind, events: list[str]) -> None:
    played = Deployment(kind)
    for event in events:
        played.play(event)
    played.come_to_rest()
    played.hold()


@settings(max_examples=300, deadline=None)
@given(KINDS, st.lists(st.sampled_from([*MARKS, "stray 0", "stray 1", "stray 2", *OTHERS]), max_size=60))
def test_two_marks_at_once_wait_for_one_another_and_none_takes_the_surge_of_the_other(
    kind: WayKind, events: list[str]
) -> None:
    played = Deployment(kind)
    for event in events:
        played.play(event)
    played.come_to_rest()
    played.hold()


@settings(max_examples=300, deadline=None)
@given(
    KINDS,
    st.lists(
        st.sampled_from([*MARKS, "vanish 0", "vanish 1", *(one for one in OTHERS if one != "restart")]), max_size=60
    ),
)
def test_a_pod_that_vanishes_on_the_way_leaves_no_replica_too_many(kind: WayKind, events: list[str]) -> None:
    played = Deployment(kind)
    for event in events:
        played.play(event)
    played.come_to_rest()
    assert played.count == BASE == len(played.pods)
    assert not played.listed
    assert not [pod.name for pod in played.pods.values() if pod.moving_to or pod.moving_by or pod.deletion_cost]


@given(KINDS, st.permutations(range(BASE)), st.booleans())
def test_undisturbed_all_move_one_after_the_other_though_all_are_marked_at_once(
    kind: WayKind, order: list[int], dies: bool
) -> None:
    played = Deployment(kind)
    for number in order:
        played.play(f"stray {number}")
    for _ in range(60):
        for event in ("show", "look", "scaler", "controller", "kubelet", *(["restart"] if dies else [])):
            played.play(event)
        played.now_s += 1.0
    assert set(played.ends) == {Stage.MOVED}
    assert {pod.node_name for pod in played.pods.values()} == {f"n{BASE + number}" for number in range(BASE)}
    played.hold()


@st.composite
def surging(draw: st.DrawFn) -> Surging:
    kind = draw(st.sampled_from(list(WayKind)))
    name = "" if kind is WayKind.EVICTION else draw(st.sampled_from(["a", "b"]))
    return Surging(
        uid=draw(st.sampled_from("0123456789")),
        namespace=draw(st.sampled_from(["x", "y"])),
        owner=draw(st.sampled_from(["", "r", "s"])),
        way=Way(kind=kind, name=name, base=2 if kind is WayKind.SCALE else 0),
        has_successor=draw(st.booleans()),
        is_leaving=draw(st.booleans()),
    )


@given(st.lists(surging(), max_size=8, unique_by=lambda move: move.uid))
def test_of_those_that_share_a_surge_one_has_it_whoever_looks(moves: list[Surging]) -> None:
    waiting = out_of_turn(moves)
    going = [move for move in moves if move.uid not in waiting]
    assert out_of_turn(reversed(moves)) == waiting
    assert not any(shares_surge(a, b) for a in going for b in going if a is not b)
    for move in moves:
        assert (move.uid in waiting) == any(shares_surge(move, other) for other in going if other is not move)
