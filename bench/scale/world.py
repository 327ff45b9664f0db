"""Clusters of any size out of openb's machines, part-filled as the index fills them, and pods to place on them."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

from binpack.gangs.room import booked
from binpack.index import Index, Mix, mix_of
from binpack.state import NodeState
from binpack.trace import empty_state, load_nodes, load_pods
from fleet.device import WHOLE_MILLI
from fleet.plan import Placement
from fleet.pod import Pod

TRACE = "default"
BLOCK = 1_000
FULL_RATIO = 0.8
_URGENT_RATIO = 0.1


def states(count: int) -> dict[str, NodeState]:
    """Return so many nodes, 80 % of their GPUs allocated: blocks of a thousand, each drawn and filled on its own."""
    found: dict[str, NodeState] = {}
    for number in range(-(-count // BLOCK)):
        found |= _block(number)
    return dict(list(found.items())[:count])


@cache
def mix() -> Mix:
    """Return the demand that the trace's pods make."""
    return mix_of(load_pods(TRACE))


def pods(count: int, seed: int, *, urgent_ratio: float = _URGENT_RATIO) -> list[Pod]:
    """Return so many pods drawn from the trace: shares, whole devices, several of them, CPU alone, some urgent."""
    draw = random.Random(seed)
    drawn = draw.choices(load_pods(TRACE), k=count)
    return [
        replace(
            pod, uid=f"{seed}-{number}", name=f"pod-{number:05d}", priority=1000 if draw.random() < urgent_ratio else 0
        )
        for number, pod in enumerate(drawn)
    ]


@cache
def _block(number: int) -> dict[str, NodeState]:
    draw = random.Random(number)
    nodes = [replace(node, name=f"block-{number}-{node.name}") for node in draw.sample(load_nodes(), BLOCK)]
    found = {node.name: empty_state(node) for node in nodes}
    index = Index(found.values(), mix=mix())
    wanted = FULL_RATIO * WHOLE_MILLI * sum(len(node.devices) for node in nodes)
    choices, held = load_pods(TRACE), 0
    while held < wanted:
        pod = draw.choice(choices)
        answer = index.place(pod, with_shortfall=False)
        if isinstance(answer, Placement):
            index.take(pod, answer.berth)
            found[answer.berth.node] = booked(pod, answer.berth, found[answer.berth.node])
            held += pod.ask.total_milli_gpu if pod.ask is not None else 0
    return found
