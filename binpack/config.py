"""What an operator may set; everything else is an internal mechanism and has no knob."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from binpack.batch import BatchPolicy

RENAMED: Final = {"moves.free_seats": "moves.free_openings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesSettings:
    """When and how pods that serve are moved so that others fit.

    Attributes:
        mode: `off`; `propose` = tell people which moves would help; `act` = make them.
        pods_per_hour: Moves begun within any hour.
        per_service: Replicas of one service that are moved at a time, unless its disruption budget allows more.
        per_node: Moves under way that leave or reach one node.
        waits_s: How long a pod must have waited for room before others are moved for it. Below `hand_over_after_s`, or
            a whole-GPU pod is handed over before moves are looked for.
        every_s: How often to see, while nobody waits, whether whole devices should be freed.
        free_openings: For how many pods of `free_devices` devices each room is kept free so; 0 = for none.
        free_devices: Of one node; 0 = as many as the largest node has.
    """

    mode: str = "off"
    pods_per_hour: int = 60
    per_service: int = 1
    per_node: int = 4
    waits_s: float = 15.0
    every_s: float = 300.0
    free_openings: int = 0
    free_devices: int = 0

    def problems(self) -> list[str]:
        """Return everything that is wrong with these settings."""
        least = {"pods_per_hour": 1, "per_service": 1, "per_node": 1, "waits_s": 1, "every_s": 1}
        found = [
            f"moves: {name} must be at least {bound}, got {getattr(self, name):g}"
            for name, bound in (least | {"free_openings": 0, "free_devices": 0}).items()
            if getattr(self, name) < bound
        ]
        if self.mode not in ("off", "propose", "act"):
            found.append(f"moves: mode must be off, propose or act, got {self.mode!r}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """Settings of the planner.

    Attributes:
        batch: When a batch of gated pods closes.
        hand_over_after_s: How long a whole-GPU or CPU pod waits before a node autoscaler may see it.
        solve_s: Deterministic solver time for one batch (OR-Tools' own unit, about a second of a core); 0 = index only.
        spare_after_s: How long everything on a warm pool's node must have fitted elsewhere before the pool is told.
        moves: Whether and how pods that serve are moved so that others fit.
        preempts: Whether pods of lower priority may be made to go for a pod that has no other place.
        preempts_past_budgets: Whether that may break a PodDisruptionBudget where nothing else makes room.
        namespace: Where the leadership lease lives.
    """

    batch: BatchPolicy = field(default_factory=BatchPolicy)
    hand_over_after_s: float = 30.0
    solve_s: float = 0.2
    spare_after_s: float = 120.0
    moves: MovesSettings = field(default_factory=MovesSettings)
    preempts: bool = True
    preempts_past_budgets: bool = False
    namespace: str = "berthmaster-system"

    def problems(self) -> list[str]:
        """Return everything that is wrong with these settings, naming setting, bound and value."""
        found: list[str] = []
        if self.batch.idle_s < 0 or self.batch.longest_s < self.batch.idle_s:
            found.append(
                "batch window: 0 <= idle <= longest must hold, "
                f"got {self.batch.idle_s:g} s and {self.batch.longest_s:g} s"
            )
        if self.batch.most_pods < 1:
            found.append(f"batch size: must be at least 1 pod, got {self.batch.most_pods}")
        if self.hand_over_after_s < 1:
            found.append(f"hand-over: must be at least 1 s, got {self.hand_over_after_s:g} s")
        if self.spare_after_s < 1:
            found.append(f"spare nodes: must have been so for at least 1 s, got {self.spare_after_s:g} s")
        if not 0 <= self.solve_s <= 30:
            found.append(f"solver budget: must lie between 0 and 30 s, got {self.solve_s:g} s")
        return found + self.moves.problems()
