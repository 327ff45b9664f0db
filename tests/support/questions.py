"""A batch that the solver can improve, for tests of whoever asks it."""

from __future__ import annotations

from binpack.index import Index
from binpack.planner import draft, question_of
from binpack.solver.question import Question
from tests.support.berths import pod, seat, share


def two_pods_two_nodes() -> Question:
    """Return the question of two different shares on two nodes."""
    index = Index([seat("n1", [1000]), seat("n2", [1000, 470])])
    pods = [pod("a", ask=share(470)), pod("b", ask=share(530))]
    question = question_of(index, pods, draft(index, pods))
    assert question is not None
    return question
