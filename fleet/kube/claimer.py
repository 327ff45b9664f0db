"""Draws warm nodes for pods: writes claims by compare-and-swap, one node after the other until one is had.

What a claim is and why no node is drawn twice stands in fleet/claim.py; this only carries its patches. A process that
dies anywhere in here leaves at most a soft claim behind, which lapses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from fleet import labels
from fleet.claim import FIRM_S, SOFT_S, Claim, claim_patch, firm, format_claim, read_claim, unclaim_patch, with_pods
from fleet.errors import ApiError, Conflict, Invalid, NotFound, NotLeading
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.objects import MetaObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node that would do, as read: name, uid and the texts of its `warm` and `claim` annotations ("" = none)."""

    name: str
    uid: str
    warm: str
    claim: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A node that is ours for these pods, until the claim lapses."""

    node: str
    uid: str
    claim: Claim

    @property
    def text(self) -> str:
        """Return the annotation as it was written."""
        return format_claim(self.claim)


class Loss(StrEnum):
    """Why a candidate was not had."""

    NOT_OPEN = "NotOpen"
    CLAIMED = "Claimed"
    FASTER = "SomebodyWasFaster"
    GONE = "Gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """No candidate was had: each with why; none at all where the pool was empty."""

    losses: tuple[tuple[str, Loss], ...] = ()


class _Node(msgspec.Struct):
    metadata: MetaObject


_decode = msgspec.json.Decoder(_Node).decode


class Claimer:
    """Claims nodes in the name of one planner.

    Args:
        client: To the API server.
        token: Returns a text that was never returned before, by any process: no two claims may be the same text.
    """

    def __init__(self, client: Client, token: Callable[[], str]) -> None:
        self._client = client
        self._token = token

    async def draw(
        self, set_id: str, pods: Sequence[str], candidates: Sequence[Candidate], *, seconds: int = SOFT_S
    ) -> Held | Miss:
        """Return the first candidate that could be claimed, softly; a node that this set holds takes the pods as well.

        Args:
            set_id: Of pods that are placed together and may share a node.
            pods: Their UIDs.
            candidates: In order of preference, as read.
            seconds: How long the claim stands if nothing follows.

        Raises:
            ApiError: The API server could not be asked; a claim that may have been written lapses.
        """
        losses: list[tuple[str, Loss]] = []
        for candidate in candidates:
            answer = await self._take(set_id, pods, candidate, seconds)
            if isinstance(answer, Held):
                return answer
            losses.append((candidate.name, answer))
        return Miss(losses=tuple(losses))

    async def confirm(self, held: Held, *, seconds: int = FIRM_S) -> Held | None:
        """Make a claim firm; None = it is no longer ours. Pin pods only after this."""
        claim = firm(held.claim, token=self._token(), seconds=seconds)
        written = replace(held, claim=claim)
        candidate = Candidate(name=held.node, uid=held.uid, warm="", claim=held.text)
        return written if await self._write(written, candidate) is None else None

    async def give_back(self, held: Held) -> None:
        """Remove the claim, if it still is as it was written."""
        try:
            await self._client.json_patch(paths.node(held.node), unclaim_patch(held.uid, held.text))
        except (Conflict, Invalid, NotFound):
            return

    async def _take(self, set_id: str, pods: Sequence[str], candidate: Candidate, seconds: int) -> Held | Loss:
        for seen in (candidate, None):
            if seen is None:  # somebody was faster; perhaps another of this very set
                seen = await self._read(candidate)
                if seen is None:
                    return Loss.GONE
            standing = read_claim(seen.claim)
            if standing is not None and standing.set_id != set_id:
                return Loss.CLAIMED if seen is candidate else Loss.FASTER
            if standing is None and not seen.warm:
                return Loss.NOT_OPEN
            # A new token for every write: the one before may have taken place, and have been removed since.
            token = self._token()
            asked = Claim(set_id=set_id, pods=tuple(pods), seconds=seconds, token=token)
            claim = asked if standing is None else with_pods(standing, pods, token=token)
            held = Held(node=candidate.name, uid=candidate.uid, claim=claim)
            if await self._write(held, seen) is None:
                return held
        return Loss.FASTER

    async def _write(self, held: Held, seen: Candidate) -> Loss | None:
        """Write the claim over what was seen; None = it is written, also where only the answer was lost."""
        body = claim_patch(held.uid, held.claim, warm=seen.warm, over=seen.claim)
        try:
            await self._client.json_patch(paths.node(held.node), body)
        except (Conflict, Invalid, NotFound):
            return Loss.FASTER
        except NotLeading:
            raise
        except ApiError:
            now = await self._read(seen)
            return None if now is not None and now.claim == held.text else Loss.FASTER
        return None

    async def _read(self, candidate: Candidate) -> Candidate | None:
        try:
            meta = _decode(await self._client.get(paths.node(candidate.name))).metadata
        except NotFound:
            return None
        if meta.uid != candidate.uid:
            return None
        notes = meta.annotations or {}
        return replace(candidate, warm=notes.get(labels.WARM, ""), claim=notes.get(labels.CLAIM, ""))
