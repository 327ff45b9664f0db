"""Where it comes to: slots, start times, bounds and what counts as late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The plant's settings; the defaults are those under which the rules were measured (bench/scaler).

    Attributes:
        slots: Requests that one replica holds at once.
        start_s: From order to Ready (D).
        start_jitter_ratio: Each start takes start_s x (1 + u), u uniform within this ratio either way.
        initial_replicas: Ready when it begins.
        initial_starting: Ordered when it begins.
        max_replicas: Orders beyond are not filled.
        warmup_s: Beginning that the scorecard leaves out.
        settle_s: Beginning in which nothing is decided: the plant begins empty, and a window that holds its first
            seconds would take them for a drop.
        slo_s: A request that waited longer is late.
        seed: Of the jitter.
    """

    slots: float = 8
    start_s: float = 60.0
    start_jitter_ratio: float = 0.0
    initial_replicas: int = 1
    initial_starting: int = 0
    max_replicas: int = 100_000
    warmup_s: int = 300
    settle_s: int = 0
    slo_s: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a world in which nothing can be served or that runs backwards.

        Raises:
            ValueError: A setting is out of its range; it is named.
        """
        for name, value, least in (
            ("slots", self.slots, 1),
            ("start_s", self.start_s, 0),
            ("initial_replicas", self.initial_replicas, 0),
            ("initial_starting", self.initial_starting, 0),
            ("max_replicas", self.max_replicas, 1),
            ("warmup_s", self.warmup_s, 0),
            ("settle_s", self.settle_s, 0),
            ("slo_s", self.slo_s, 0),
        ):
            if not value >= least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if not 0 <= self.start_jitter_ratio <= 1:
            raise ValueError(f"start_jitter_ratio must lie between 0 and 1, got {self.start_jitter_ratio}")
