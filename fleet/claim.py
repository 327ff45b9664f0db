"""A claim on a warm node: one annotation, written by compare-and-swap. Pure: texts and patches, no network.

A node is open to claims while it carries the annotation `berthmaster.dev/warm`. Whoever draws it adds
`berthmaster.dev/claim` in one JSON patch that tests both; whoever closes it removes `warm` in one JSON patch that tests
that there is no claim. The API server applies either as a whole, so no node is drawn twice and none is closed under a
claim, whoever dies between two writes. A claim expires by its own duration, counted by each reader from when that
reader first saw it: clocks of two machines are never compared. Every text carries a token, so that no text comes twice.

Model: the leases of Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism", SOSP 1989.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fleet import labels
from fleet.errors import DecodeError

SOFT_S = 30
FIRM_S = 600
_MOST_PODS = 1000
_MOST_SECONDS = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who has spoken for a node.

    Attributes:
        set_id: Names the pods that are placed together; they may share a node. Another set's claim excludes.
        pods: UIDs of the pods.
        is_firm: The pods are being pinned; a soft claim is one that the planner still considers.
        seconds: How long it stands after a reader first saw this text, unless its pods are there.
        token: Makes every text unlike any before it.
    """

    set_id: str
    pods: tuple[str, ...]
    is_firm: bool = False
    seconds: int = SOFT_S
    token: str = ""

    @property
    def kind(self) -> str:
        """Return `firm` or `soft`."""
        return "firm" if self.is_firm else "soft"


class _Wire(msgspec.Struct, forbid_unknown_fields=False):
    set: str
    pods: list[str]
    kind: str
    seconds: int
    token: str = ""


def format_claim(claim: Claim) -> str:
    """Return the annotation's text."""
    wire = _Wire(set=claim.set_id, pods=list(claim.pods), kind=claim.kind, seconds=claim.seconds, token=claim.token)
    return msgspec.json.encode(wire).decode()


def parse_claim(text: str) -> Claim:
    """Return the claim.

    Raises:
        DecodeError: The text is no claim. It still stands in the way of other claims: treat it as `unreadable`.
    """
    try:
        wire = msgspec.json.decode(text, type=_Wire)
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(f"annotation {labels.CLAIM} {text[:80]!r}: {error}") from None
    if wire.kind not in ("soft", "firm") or not 0 < wire.seconds <= _MOST_SECONDS or len(wire.pods) > _MOST_PODS:
        raise DecodeError(f"annotation {labels.CLAIM} {text[:80]!r}: kind, seconds or pods out of bounds")
    return Claim(
        set_id=wire.set, pods=tuple(wire.pods), is_firm=wire.kind == "firm", seconds=wire.seconds, token=wire.token
    )


def unreadable_claim() -> Claim:
    """Return what an unreadable text counts as: somebody's claim that lapses like any other."""
    return Claim(set_id="", pods=(), is_firm=True, seconds=FIRM_S)


def read_claim(text: str) -> Claim | None:
    """Return the claim an annotation stands for: None for no text, `unreadable_claim` for a text that is none."""
    if not text:
        return None
    try:
        return parse_claim(text)
    except DecodeError:
        return unreadable_claim()


def lapses_at_s(claim: Claim, seen_at_s: float) -> float:
    """Return when a claim lapses for a reader who first saw this very text at `seen_at_s`, on the reader's clock."""
    return seen_at_s + claim.seconds


def standing(claim: Claim | None, seen_at_s: float, now_s: float, *, pods_here: bool = False) -> bool:
    """Return True while the claim keeps others off: it has not lapsed, or its pods are bound or pinned to the node."""
    return claim is not None and (pods_here or now_s < lapses_at_s(claim, seen_at_s))


def claim_patch(uid: str, claim: Claim, *, warm: str = "", over: str = "") -> bytes:
    """Return the JSON patch that takes an open node, or changes a claim that is held.

    Args:
        uid: Of the Node that is meant: one that took over its name is another.
        claim: What to write.
        warm: For a new claim: the text of the `warm` annotation as read. The node must still be open with it.
        over: For a change: the claim's text as read (one's own made firm or longer). The node may be open or not.

    Raises:
        DecodeError: Neither is given: a node that is not open cannot be claimed.

    The API server answers 422 where a test does not hold: somebody was faster.
    """
    if not warm and not over:
        raise DecodeError(f"annotation {labels.WARM} is not there: the node is not open to claims")
    tests = [_test("/metadata/uid", uid), _test(_CLAIM_PATH, over or None)]
    if not over:
        tests.append(_test(_WARM_PATH, warm))
    return _encode([*tests, {"op": "add", "path": _CLAIM_PATH, "value": format_claim(claim)}])


def unclaim_patch(uid: str, text: str) -> bytes:
    """Return the JSON patch that removes exactly this claim: given back by its owner, or lapsed."""
    return _encode([_test("/metadata/uid", uid), _test(_CLAIM_PATH, text), {"op": "remove", "path": _CLAIM_PATH}])


def with_pods(claim: Claim, pods: Sequence[str], *, token: str) -> Claim:
    """Return the claim with more pods of the same set."""
    return Claim(
        set_id=claim.set_id,
        pods=tuple(dict.fromkeys((*claim.pods, *pods))),
        is_firm=claim.is_firm,
        seconds=claim.seconds,
        token=token,
    )


def firm(claim: Claim, *, token: str, seconds: int = FIRM_S) -> Claim:
    """Return the claim made firm."""
    return Claim(set_id=claim.set_id, pods=claim.pods, is_firm=True, seconds=seconds, token=token)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _test(path: str, value: str | None) -> dict[str, Any]:
    return {"op": "test", "path": path, "value": value}


_CLAIM_PATH = f"/metadata/annotations/{_escaped(labels.CLAIM)}"
_WARM_PATH = f"/metadata/annotations/{_escaped(labels.WARM)}"
_encode = msgspec.json.encode
