"""Claims are linearizable: whoever is killed between two writes, no node has two holders or is closed under one."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet import labels
from fleet.claim import parse_claim, read_claim, unclaim_patch
from fleet.constraints import Taint
from fleet.errors import ApiError
from fleet.kube import paths
from fleet.kube.claimer import Candidate, Claimer, Held
from tests.support.claims import Nodes, Pause, step
from warmpool.nodes.action import Mark
from warmpool.nodes.marks import mark_patch
from warmpool.values import Why

_NAMES = ("w1", "w2", "w3")
_SETS = ("a", "b", "c", "d")


def _candidates(api: Nodes, order: tuple[str, ...]) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(name=name, uid=f"uid-{name}", warm=api.warm_of(name), claim=api.claim_of(name)) for name in order
    )


async def _planner(
    api: Nodes, claimer: Claimer, sets: tuple[str, ...], order: tuple[str, ...], held: list[Held]
) -> None:
    """Draw one node per set, as a planner does: look, claim softly, make it firm."""
    for number, set_id in enumerate(sets):
        seen = _candidates(api, order)
        await Pause()  # what was seen may be old by now
        try:
            answer = await claimer.draw(set_id, (f"{set_id}-{number}",), seen)
            if isinstance(answer, Held):
                firm = await claimer.confirm(answer)
                if firm is not None:
                    held.append(firm)
        except ApiError:
            continue


async def _manager(api: Nodes, closes: tuple[str, ...]) -> None:
    """Close nodes, and remove claims that it takes for lapsed, as read some time before."""
    for name in closes:
        text = api.claim_of(name)
        await Pause()
        try:
            if text:
                await api.json_patch(paths.node(name), unclaim_patch(f"uid-{name}", text))
            elif api.warm_of(name):
                mark = Mark(
                    node=name,
                    uid=f"uid-{name}",
                    why=Why.SURPLUS,
                    added=(Taint(key="readiness.k8s.io/g1"),),
                    has_taints=False,
                    unschedulable=True,
                    annotations=((labels.CLOSING, "Surplus"), (labels.WARM, None)),
                )
                await api.json_patch(paths.node(name), mark_patch(mark))
        except ApiError:
            continue


@settings(max_examples=300, deadline=None)
@given(
    sets=st.lists(st.lists(st.sampled_from(_SETS), max_size=3).map(tuple), min_size=2, max_size=2),
    orders=st.lists(st.permutations(_NAMES).map(tuple), min_size=2, max_size=2),
    closes=st.lists(st.sampled_from(_NAMES), max_size=4).map(tuple),
    turns=st.lists(st.integers(0, 2), max_size=120),
    kills=st.dictionaries(st.integers(0, 119), st.integers(0, 2), max_size=2),
    lost=st.integers(0, 2),
)
def test_no_node_is_ever_held_twice(
    sets: list[tuple[str, ...]],
    orders: list[tuple[str, ...]],
    closes: tuple[str, ...],
    turns: list[int],
    kills: dict[int, int],
    lost: int,
) -> None:
    api: Any = Nodes(w1="img", w2="img", w3="")
    api.lose = lost
    tokens = itertools.count()
    held: list[Held] = []
    claimer = Claimer(api, lambda: str(next(tokens)))
    # Two planners of the same rank, each with sets of its own name.
    works: list[Any] = [
        _planner(api, claimer, tuple(f"{planner}{name}" for name in sets[planner]), orders[planner], held)
        for planner in (0, 1)
    ]
    works.append(_manager(api, closes))
    for turn, who in enumerate(turns):
        if kills.get(turn) is not None and works[kills[turn]] is not None:
            works[kills[turn]].close()
            works[kills[turn]] = None
        if works[who] is not None and not step(works[who]):
            works[who] = None
    for work in works:  # whoever was not killed comes to an end
        while work is not None and step(work):
            pass

    texts: set[str] = set()
    for name, before, after in api.writes:
        old, new = before.get(labels.CLAIM, ""), after.get(labels.CLAIM, "")
        if new and new != old:
            assert new not in texts, "no text comes twice"
            texts.add(new)
            claim = parse_claim(new)
            if old:
                assert parse_claim(old).set_id == claim.set_id, f"{name} went from one set to another"
            else:
                assert before.get(labels.WARM), f"{name} was claimed while it was closed"
        assert not (after.get(labels.CLOSING) and new), f"{name} was closed under a claim"
    for one in held:
        assert any(name == one.node and after.get(labels.CLAIM) == one.text for name, _, after in api.writes)
    for name in _NAMES:
        standing = read_claim(api.claim_of(name))
        holders = {one.claim.set_id for one in held if one.node == name and one.text == api.claim_of(name)}
        assert holders <= ({standing.set_id} if standing else set())
