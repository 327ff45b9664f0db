"""What the planner asks and the solver answers: a batch in plain values, names of nodes and devices aside."""

from __future__ import annotations

from dataclasses import dataclass

from binpack.index.excerpt import Excerpt
from fleet.plan import SolveStatus
from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Pods of a batch that nothing tells apart.

    Attributes:
        pod: What all of them ask; no more of it is filled in.
        uids: Who they are, in the order in which they are seated.
        tier: Rank of their priority within the batch, 0 = lowest.
        demand: Of one, in milli-GPU.
    """

    pod: Pod
    uids: tuple[str, ...]
    tier: int
    demand: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One pod of a kind on a node.

    Attributes:
        kind: Which kind of the question.
        node: Place of the node in the excerpt.
        positions: Of its devices; empty for a count of devices and for none.
        cost: What it cost there after the pods before it, milli-GPU.
    """

    kind: int
    node: int
    positions: tuple[int, ...] = ()
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One batch and the index's answer to it, to be improved.

    Attributes:
        seats: The index's answer, in the order in which it was booked.
        unplaced_price: What leaving out one milli-GPU of demand of the lowest tier costs, milli-GPU.
    """

    excerpt: Excerpt
    kinds: tuple[Kind, ...]
    seats: tuple[Seat, ...]
    unplaced_price: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the solver found.

    Attributes:
        seats: The best answer; empty where there is none.
        cost: What it costs, milli-GPU, pods left out not priced in.
        draft_cost: What the index's answer costs by the same rule.
        gap_milli_gpu: By how much another answer over the same patterns could be cheaper at most, pods left out
            priced in; None where nothing is proven.
        patterns: How many were weighed.
        detail: Why there is no answer, for the log.
    """

    status: SolveStatus
    seats: tuple[Seat, ...] = ()
    cost: float = 0.0
    draft_cost: float = 0.0
    gap_milli_gpu: float | None = None
    patterns: int = 0
    deterministic_s: float = 0.0
    detail: str = ""
