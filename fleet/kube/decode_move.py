"""What a pod's annotations say of its being moved."""

from __future__ import annotations

from collections.abc import Mapping

from fleet import labels
from fleet.berths import parse_candidates
from fleet.errors import DecodeError
from fleet.pod import Berth


def moving_to_of(annotations: Mapping[str, str] | None) -> Berth | None:
    """Return the berth that a pod's successor is to have; None where there is none, or it cannot be read.

    Only the planner writes it; what nobody can read keeps no seat and is taken back by whoever looks after moves.
    """
    text = annotations.get(labels.MOVING_TO, "") if annotations else ""
    if not text:
        return None
    try:
        (berth,) = parse_candidates(text)
    except (DecodeError, ValueError):
        return None
    return berth
