"""What is asked of a repack and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from fleet.plan import Placement, SolveStatus, Unplaced
from fleet.pod import Berth, Pod


class MoveReason(Enum):
    """What one move is for."""

    MAKES_ROOM = "MakesRoom"  # a waiting pod takes what it held
    GIVES_WAY = "GivesWay"  # another pod that moves takes what it held
    FREES_DEVICES = "FreesDevices"  # devices nobody else uses become whole
    EMPTIES_NODE = "EmptiesNode"  # its node is to be given up
    LEAVES_LESS_WASTE = "LeavesLessWaste"  # what is free is worth more afterwards


class Verdict(Enum):
    """What came of a goal."""

    REACHED = "Reached"
    PARTLY = "Partly"  # some of it, within the budget; never of a gang or of the emptying of one node
    NOT_NEEDED = "NotNeeded"  # reached without a move
    NO_BUDGET = "NoBudget"  # moves would help, but none may be made now
    NOTHING_FOUND = "NothingFound"  # no way was found; that there is none is not proven


@dataclass(frozen=True, slots=True, kw_only=True)
class Movable:
    """A pod that may be moved, and where it is.

    Attributes:
        service: What it is a replica of; "" = nothing that counts replicas.
    """

    pod: Pod
    berth: Berth
    service: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One pod from one berth to another.

    Attributes:
        gain_milli: By how much this move alone raised the worth of what is free, in milli-GPU of potential; below 0
            where it prepares another move or makes room.
    """

    pod_uid: str
    source: Berth
    target: Berth
    reason: MoveReason
    gain_milli: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveBudget:
    """How many pods may be moved.

    Attributes:
        pods_per_hour: Started within any 3,600 s.
        per_service: Replicas of one service that are moved at a time.
        per_node: Moves under way that leave or reach one node; a node that is to be emptied may be left by any number.
        allowed: By service how many at a time where its disruption budget says so; it stands above `per_service`.
    """

    pods_per_hour: int = 60
    per_service: int = 1
    per_node: int = 4
    allowed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMove:
    """A move that was started.

    Attributes:
        is_over: The old pod is gone, or the move was given up.
    """

    started_at_s: float
    service: str
    source: str
    target: str
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeRoom:
    """Goal: berths for these waiting pods.

    Attributes:
        is_gang: All of them or none.
    """

    pods: tuple[Pod, ...]
    is_gang: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeDevices:
    """Goal: devices that nobody uses, beside those that already are free.

    Attributes:
        openings: For how many pods.
        devices: Of each pod, all of them on one node; nothing is kept of CPU and memory.
        models: Acceptable ones; empty = any.
    """

    openings: int
    devices: int = 1
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyNodes:
    """Goal: no movable pod left on these nodes, on as many of them as possible, the first ones first."""

    nodes: tuple[str, ...]


Goal = MakeRoom | FreeDevices | EmptyNodes


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """Moves in an order in which each has room once those before it are over, and what they lead to.

    While a move is under way the pod holds both berths.

    Attributes:
        moves: None where `verdict` is neither REACHED nor PARTLY.
        placements: Waiting pods that fit after the moves.
        unplaced: Waiting pods that still do not, with the reason.
        freed_devices: Devices more that nobody uses once the moves are over, before any waiting pod takes its berth.
        freed_nodes: Nodes of the goal that no movable pod is left on.
        objective: Cost of the answer, milli-GPU: by how much the potential rises, and the price of the moves.
        bound: Proven lower limit of `objective` over the berths that were weighed; None where none was proven.
        solve_status: How the solver ended, NOT_ASKED where the index alone answered.
    """

    verdict: Verdict
    moves: tuple[Move, ...] = ()
    placements: tuple[Placement, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    freed_devices: int = 0
    freed_nodes: tuple[str, ...] = ()
    objective: float = 0.0
    bound: float | None = None
    solve_status: SolveStatus = SolveStatus.NOT_ASKED
    detail: str = ""

    @property
    def gap_ratio(self) -> float | None:
        """Return (objective - bound) / max(1, |objective|); None without a bound."""
        if self.bound is None:
            return None
        return max(0.0, self.objective - self.bound) / max(1.0, abs(self.objective))
