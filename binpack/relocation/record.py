"""By which way a pod is being moved, as its annotation says it: the only record there is. Pure.

`scale:Deployment/NAME@5` raises the count from 5 to 6 and back; `autoscaler:NAME` lets an autoscaler of ours do so;
`eviction` takes the pod first, as its disruption budget allows. The old pod carries it, and from its pin on the
successor as well, so that what was begun can be ended whichever of the two is left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from fleet.errors import DecodeError

_MOST = 1_000_000
_SCALE = re.compile(r"scale:(Deployment)/([a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)@([0-9]{1,7})", re.ASCII)
_AUTOSCALER = re.compile(r"autoscaler:([a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)", re.ASCII)


class WayKind(StrEnum):
    """The ways."""

    SCALE = "scale"
    AUTOSCALER = "autoscaler"
    EVICTION = "eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One of them.

    Attributes:
        name: Of the Deployment or of the autoscaler; "" = of nobody.
        base: Replicas that the Deployment was set to before.
    """

    kind: WayKind
    name: str = ""
    base: int = 0


def format_way(way: Way) -> str:
    """Return the annotation's text."""
    match way.kind:
        case WayKind.SCALE:
            return f"scale:Deployment/{way.name}@{way.base}"
        case WayKind.AUTOSCALER:
            return f"autoscaler:{way.name}"
        case WayKind.EVICTION:
            return "eviction"


def parse_way(text: str) -> Way:
    """Return the way.

    Raises:
        DecodeError: Nobody can tell what was begun; nothing is guessed.
    """
    if text == WayKind.EVICTION:
        return Way(kind=WayKind.EVICTION)
    scale, autoscaler = _SCALE.fullmatch(text), _AUTOSCALER.fullmatch(text)
    if scale is not None and 0 < int(scale[3]) <= _MOST:
        return Way(kind=WayKind.SCALE, name=scale[2], base=int(scale[3]))
    if autoscaler is not None:
        return Way(kind=WayKind.AUTOSCALER, name=autoscaler[1])
    raise DecodeError(f"{text[:80]!r} is no way of moving a pod")
