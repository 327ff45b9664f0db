"""Proposed moves, read by people and by machines: devices of resource claims stand beside all others."""

from __future__ import annotations

import pytest

from berthmaster.move_goals import Proposed
from berthmaster.move_words import as_json, lines
from binpack.repack.values import Move, MovePlan, MoveReason, Verdict
from fleet.dra import ClaimChoice
from fleet.pod import Berth
from tests.support.builders import a_pod
from tests.support.devices import DRIVER, given


def choice(claim: str, node: str, device: str) -> ClaimChoice:
    return ClaimChoice(claim_uid=claim, allocation=given(node, device)["allocation"])


def a_plan(count: int, *, freed: int = 0, reason: MoveReason = MoveReason.MAKES_ROOM) -> MovePlan:
    move = Move(pod_uid="p", source=Berth(node="a"), target=Berth(node="b"), reason=reason)
    verdict = Verdict.REACHED if count else Verdict.NOTHING_FOUND
    return MovePlan(verdict=verdict, moves=(move,) * count, freed_devices=freed, objective=-0.01, bound=-0.04)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (a_plan(0), "no moves (solver not-asked)"),
        (a_plan(1, freed=1), "1 move, 1 device more that nobody uses; objective 0.0 milli-GPU, bound 0.0, gap"),
        (a_plan(2, freed=-2), "2 moves, 2 devices fewer that nobody uses;"),
        (a_plan(2), "2 moves, as many free devices as before;"),
        (
            a_plan(2, reason=MoveReason.FREES_DEVICES),
            "2 moves, as many free devices as before, more of them on one node;",
        ),
    ],
)
def test_what_comes_of_it_is_said_in_words_that_fit_the_numbers(plan: MovePlan, said: str) -> None:
    (*_, last) = lines(Proposed(title="t", plan=plan), {})
    assert last.strip().startswith(said)


def test_a_move_names_the_devices_of_claims_on_both_sides() -> None:
    move = Move(
        pod_uid="uid-p",
        source=Berth(node="n1", choices=(choice("c", "n1", "d0"),)),
        target=Berth(node="n2", devices=("3",), choices=(choice("like c", "n2", "d1"),)),
        reason=MoveReason.EMPTIES_NODE,
    )
    one = Proposed(title="nothing left on n1", plan=MovePlan(verdict=Verdict.REACHED, moves=(move,)))
    pods = {"uid-p": a_pod("p")}
    assert any(f"n1[{DRIVER}/n1/d0] -> n2[3,{DRIVER}/n2/d1]" in line for line in lines(one, pods))
    (told,) = as_json(one, pods)["moves"]
    assert told["from"] == {"node": "n1", "devices": [], "claimed": [[DRIVER, "n1", "d0"]]}
    assert told["to"] == {"node": "n2", "devices": ["3"], "claimed": [[DRIVER, "n2", "d1"]]}
