"""One pod's start in words with numbers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleet.draw import Draw
from fleet.errors import BerthmasterError
from warmpool.starts.parts import Part, Start, start_of
from warmpool.starts.reading import StartPod, moments_of, pulls_s

_SAYS = {
    Part.WAIT: "waiting for a node",
    Part.INIT: "initialising",
    Part.PULL: "pulling images",
    Part.WEIGHTS: "loading weights",
    Part.ENGINE: "starting the engine",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is said of one start.

    Attributes:
        draw: How its draw from a pool ended; None = it needed none.
        has_events: Whether the kubelet's events told how long pulls took.
    """

    pod: str
    node: str
    draw: Draw | None
    start: Start
    has_events: bool

    def document(self) -> dict[str, Any]:
        """Return it as JSON; what nobody could see is null."""
        return {
            "pod": self.pod,
            "node": self.node or None,
            "draw": None
            if self.draw is None
            else {
                "pool": self.draw.pool,
                "outcome": "hit" if self.draw.is_hit else "miss",
                "why": self.draw.why,
            },
            "doing": self.start.doing.value if self.start.doing else None,
            "totalSeconds": round(self.start.total_s, 3),
            "partsSeconds": {
                part.value: round(self.start.parts_s[part], 3) if part in self.start.parts_s else None for part in Part
            },
        }


def told_of(pod: StartPod, pulled: Sequence[str], now_s: float) -> Told:
    """Return what is said of a pod's start.

    Args:
        pod: As the API shows it.
        pulled: Texts of the kubelet's events about pulls; empty = there are none (any more).
        now_s: Time since the epoch.

    Raises:
        BerthmasterError: Nobody can tell when it was created.
    """
    meta = pod.metadata
    moments = moments_of(meta.creation_timestamp, pod.spec, pod.status, meta.annotations)
    if moments is None:
        raise BerthmasterError(f"pod {meta.namespace}/{meta.name} does not say when it was created")
    took_s = pulls_s(pulled)
    return Told(
        pod=f"{meta.namespace}/{meta.name}",
        node=pod.spec.node_name or "",
        draw=pod.draw,
        start=start_of(moments, now_s, took_s or None),
        has_events=bool(took_s),
    )


def words(told: Told) -> tuple[str, ...]:
    """Return the lines for people."""
    start = told.start
    where = f" on {told.node}" if told.node else ""
    state = "Ready" if start.doing is None else f"{_SAYS[start.doing]} now"
    lines = [f"{told.pod}{where}: {state}, {_seconds(start.total_s)} since it was created", _draw(told.draw)]
    for part, value_s in ((part, start.parts_s.get(part)) for part in Part):
        if value_s is None:
            if part is Part.WEIGHTS:
                lines.append(f"  {_SAYS[part]:<20} not told apart from the engine's start")
            continue
        share = value_s / start.total_s if start.total_s else 0.0
        note = "" if part is not Part.PULL or told.has_events else "  (gaps before containers: no events tell of pulls)"
        lines.append(f"  {_SAYS[part]:<20} {_seconds(value_s):>9}  {share:>4.0%}{note}")
    return tuple(lines)


def _draw(draw: Draw | None) -> str:
    if draw is None:
        return "it drew from no warm pool: a serving node had room, or no pool serves it"
    if draw.is_hit:
        return f"hit: pool {draw.pool} had a warm node, {draw.why}"
    return f"miss: pool {draw.pool} had no warm node for it ({draw.why})"


def _seconds(value_s: float) -> str:
    return f"{value_s:.1f} s" if value_s < 100 else f"{value_s:.0f} s"
