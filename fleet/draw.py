"""How a pod's draw from a warm pool ended, as one annotation on the pod. Pure.

A draw is a pod that needed room no serving node had, of a pool that serves it. The planner notes once per pod how its
draw ended: the first answer counts, so a pod that found no warm node and got one a minute later stays a miss. The
pool's controller counts these notes, and the cold-start ledger reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from fleet import labels
from fleet.errors import DecodeError


class MissReason(StrEnum):
    """Why there was no warm node."""

    NO_NODES = "NoNodes"  # the pool has none at all
    ON_THEIR_WAY = "OnTheirWay"  # none is warm, some are being made
    ALL_CLAIMED = "AllClaimed"  # those that there are were drawn before
    NO_ROOM = "NoRoom"  # one is open, and the pod does not fit there (any more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One draw.

    Attributes:
        pool: Drawn from.
        is_hit: Whether a warm node was there.
        why: The node of a hit; a `MissReason` of a miss.
    """

    pool: str
    is_hit: bool
    why: str = ""


class _Wire(msgspec.Struct):
    pool: str
    outcome: str
    why: str = ""


def hit(pool: str, node: str) -> Draw:
    """Return a draw that found a warm node."""
    return Draw(pool=pool, is_hit=True, why=node)


def miss(pool: str, why: MissReason) -> Draw:
    """Return a draw that found none."""
    return Draw(pool=pool, is_hit=False, why=why.value)


def format_draw(draw: Draw) -> str:
    """Return the annotation's text."""
    wire = _Wire(pool=draw.pool, outcome="hit" if draw.is_hit else "miss", why=draw.why)
    return msgspec.json.encode(wire).decode()


def parse_draw(text: str) -> Draw:
    """Return the draw.

    Raises:
        DecodeError: The text is none.
    """
    try:
        wire = msgspec.json.decode(text, type=_Wire)
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(f"annotation {labels.DRAW} {text[:80]!r}: {error}") from None
    if wire.outcome not in ("hit", "miss"):
        raise DecodeError(f"annotation {labels.DRAW} {text[:80]!r}: outcome is neither hit nor miss")
    return Draw(pool=wire.pool, is_hit=wire.outcome == "hit", why=wire.why)


def read_draw(text: str) -> Draw | None:
    """Return the draw an annotation tells of; None where there is none, or none that can be read."""
    try:
        return parse_draw(text) if text else None
    except DecodeError:
        return None
