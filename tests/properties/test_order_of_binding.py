"""Pins hold in whatever order kube-scheduler binds them, those of batches before included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from binpack.check_order import disorders
from binpack.check_register import Register
from binpack.coming import Coming
from binpack.index import Index
from binpack.planner import draft, plan_batch
from binpack.solver.instance import Budget
from fleet.company import Guest
from fleet.plan import Placement, Plan
from fleet.pod import Berth, Pod
from tests.support.company import TEAMS, a_world, newcomers
from tests.support.kube_filter import admits

SEEDS = st.integers(0, 2**32 - 1)


class Scene:
    """A cluster, who is bound in it, and who is on the way."""

    def __init__(self, rng: Random) -> None:
        self.states = {state.node.name: state for state in a_world(rng)}
        self.nodes = {name: state.node for name, state in self.states.items()}
        self.bound = [(guest, name) for name, state in self.states.items() for guest in state.guests]
        self.coming = Coming()
        self.index, self.register = Index(self.states.values()), Register(self.states.values())
        self.index.company.follow(self.coming)
        for name, labels in TEAMS.items():
            self.index.company.set_namespace(name, labels)
            self.register.set_namespace(name, labels)

    def pin(self, pod: Pod, name: str) -> None:
        """Let a pod be on its way, as the ledger would show it."""
        before = self.states[name]
        guests = tuple(sorted((*before.guests, pod.guest), key=hash))
        state = self.states[name] = replace(before, guests=guests)
        self.coming.seen(pod, name)
        self.index.set_node(state)
        self.register.set_node(state)

    def admits(self, pod: Pod, name: str, also: Sequence[tuple[Guest, str]] = ()) -> bool:
        return admits(self.nodes, TEAMS, [*self.bound, *also], pod, name)

    def bind(self, pod: Pod, name: str) -> None:
        assert self.admits(pod, name), f"{pod.uid} on {name}"
        self.coming.gone(pod.uid)
        self.bound.append((pod.guest, name))


def batch(rng: Random, number: int, most: int = 5) -> list[Pod]:
    """Return pods that are pinned: of those that honor node affinity in a spread over several domains none is."""
    found = []
    for pod in newcomers(rng, most):
        guest = replace(
            pod.guest,
            spreads=tuple(replace(one, min_domains=1) if one.honors_affinity else one for one in pod.guest.spreads),
        )
        found.append(replace(pod, uid=f"{number}-{pod.uid}", guest=guest))
    return found


@settings(max_examples=800, deadline=None)
@given(seed=SEEDS)
def test_whatever_the_order_of_binding_kube_scheduler_takes_every_pin(seed: int) -> None:
    rng = Random(seed)
    scene = Scene(rng)
    for number in range(rng.randint(1, 4)):
        pods = batch(rng, number)
        plan = draft(scene.index, pods)
        assert disorders(scene.register, scene.coming, pods, plan) == ()
        by_uid = {pod.uid: pod for pod in pods}
        for one in plan.placements:
            scene.pin(by_uid[one.pod_uid], one.berth.node)
        for pod, name in rng.sample(list(scene.coming), rng.randint(0, len(scene.coming))):
            scene.bind(pod, name)
    rest = list(scene.coming)
    rng.shuffle(rest)
    for pod, name in rest:
        scene.bind(pod, name)


def _of_whom_all_is_checked(pod: Pod) -> Pod:
    """Return a pod of whose spreads kube-scheduler has something to compare, pinned or not."""
    spreads = tuple(replace(one, honors_affinity=False) for one in pod.guest.spreads)
    return replace(pod, guest=replace(pod.guest, spreads=spreads))


def subsets(way: Sequence[tuple[Pod, str]]) -> Iterator[list[tuple[Guest, str]]]:
    for many in range(len(way) + 1):
        for chosen in combinations(way, many):
            yield [(pod.guest, name) for pod, name in chosen]


def holds(scene: Scene, way: Sequence[tuple[Pod, str]]) -> bool:
    """Return True if every pod on its way may be bound whoever of the others was before: all subsets are tried."""
    return all(
        scene.admits(pod, name, there)
        for pod, name in way
        for there in subsets([one for one in way if one[0].uid != pod.uid])
    )


@settings(max_examples=500, deadline=None)
@given(seed=SEEDS)
def test_a_node_is_offered_exactly_where_all_orders_of_binding_hold(seed: int) -> None:
    rng = Random(seed)
    scene = Scene(rng)
    for pod in map(_of_whom_all_is_checked, batch(rng, 0)):
        names = [name for name in scene.states if holds(scene, [*scene.coming, (pod, name)])]
        with scene.index.company.pinning([pod]):
            against = scene.index.company.against(pod)
        assert [name for name in scene.states if name not in against] == names
        for name in scene.states:
            plan = Plan(placements=(Placement(pod_uid=pod.uid, berth=Berth(node=name)),))
            if scene.admits(pod, name, [(other.guest, at) for other, at in scene.coming]):
                assert bool(disorders(scene.register, scene.coming, [pod], plan)) == (name not in names)
        if names and len(scene.coming) < 4:
            scene.pin(pod, rng.choice(names))


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS)
def test_the_solver_and_what_is_filled_in_after_it_keep_to_it(seed: int) -> None:
    rng = Random(seed)
    scene = Scene(rng)
    for number in range(2):
        pods = batch(rng, number)
        plan = plan_batch(scene.index, pods, Budget(deterministic_s=0.05))
        assert disorders(scene.register, scene.coming, pods, plan) == ()
        by_uid = {pod.uid: pod for pod in pods}
        for one in plan.placements:
            scene.pin(by_uid[one.pod_uid], one.berth.node)
