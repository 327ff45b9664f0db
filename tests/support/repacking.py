"""Small random clusters with pods on them that may be moved, scattered as departures leave them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from binpack.index import Index
from binpack.ledger import Ledger
from binpack.repack.values import Movable
from binpack.state import NodeState
from fleet.constraints import NodeConstraints
from fleet.node import Node
from fleet.pod import Berth, Phase, Pod
from tests.support.builders import a_node, a_pod

ZONE_A = NodeConstraints(node_selector=(("zone", "a"),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A cluster, what stands on it, and pods that wait."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    movables: tuple[Movable, ...]
    waiting: tuple[Pod, ...]

    def states(self) -> dict[str, NodeState]:
        """Return what is free beside all pods."""
        ledger = Ledger()
        for node in self.nodes:
            ledger.set_node(node)
        for pod in self.pods:
            ledger.set_pod(pod)
        states = {node.name: ledger.state(node.name) for node in self.nodes}
        return {name: state for name, state in states.items() if state is not None}

    def index(self) -> Index:
        """Return a fresh index of the states."""
        return Index(self.states().values())


@st.composite
def some_nodes(draw: st.DrawFn) -> tuple[Node, ...]:
    """One to five nodes."""
    return tuple(
        a_node(
            f"n{number}",
            gpus=draw(st.integers(0, 4)),
            model=draw(st.sampled_from(("G2", "T4"))),
            is_sharing=draw(st.integers(0, 4)) > 0,
            milli_cpu=draw(st.sampled_from((4000, 16000, 64000))),
            memory_gib=draw(st.sampled_from((16, 256))),
            pod_slots=draw(st.sampled_from((3, 110))),
            labels={"zone": draw(st.sampled_from("ab"))},
        )
        for number in range(draw(st.integers(1, 5)))
    )


@st.composite
def a_wish(draw: st.DrawFn, name: str) -> Pod:
    """A pod of some size."""
    kind = draw(st.integers(0, 6))
    shape: dict[str, int] = {}
    if kind in (1, 2):
        shape = {"whole": draw(st.sampled_from((1, 1, 2, 4)))}
    elif kind == 3:
        shape = {"classic": draw(st.sampled_from((1, 2)))}
    elif kind > 3:
        shape = {"milli": draw(st.sampled_from((190, 320, 470, 530, 810))), "count": draw(st.sampled_from((1, 1, 2)))}
    return a_pod(
        name,
        **shape,
        models=draw(st.sampled_from(((), (), ("T4",)))) if kind else (),
        milli_cpu=draw(st.sampled_from((0, 500, 3000, 8000))),
        memory_gib=draw(st.sampled_from((0, 4, 12))),
        constraints=draw(st.sampled_from((NodeConstraints(), NodeConstraints(), ZONE_A))),
    )


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Pods put wherever they fit, some of which have left again; of the rest not all may be moved."""
    nodes = draw(some_nodes())
    index = Index(Scene(nodes=nodes, pods=(), movables=(), waiting=()).states().values())
    held: list[tuple[Pod, Berth]] = []
    for number in range(draw(st.integers(0, 12))):
        wish = draw(a_wish(f"p{number}"))
        options = index.options(wish, 4)
        if options:
            berth = draw(st.sampled_from(options)).berth
            index.take(wish, berth)
            held.append((wish, berth))
    held = [one for one in held if draw(st.integers(0, 3)) > 0]
    pods = tuple(_placed(wish, berth) for wish, berth in held)
    movables = tuple(
        Movable(pod=wish, berth=berth, service=draw(st.sampled_from(("", "a", "b"))))
        for wish, berth in held
        if draw(st.integers(0, 5)) > 0
    )
    waiting = tuple(draw(a_wish(f"w{number}")) for number in range(draw(st.integers(1, 3))))
    return Scene(nodes=nodes, pods=pods, movables=movables, waiting=waiting)


def _placed(wish: Pod, berth: Berth) -> Pod:
    return replace(wish, node_name=berth.node, devices=berth.devices or None, phase=Phase.RUNNING, gates=())
