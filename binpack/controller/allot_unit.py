"""Gives the resource claims of a gang their devices: those of all its members, or none. Decides nothing.

Three passes over all claims, each ended before the next begins: allocate what was chosen; join what has devices
already; wait until the watch shows all of it, and that nobody was there before. Where one claim fails (it is gone,
somebody else has given it or one of its devices away), what was allocated here is taken back. A process that dies
between two writes leaves claims that are reserved for gated pods without a seat; whoever leads next plans the gang with
them, or frees them when that does not go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterable, Sequence
from typing import Final

from binpack.controller.allotter import Allotter, has_these
from binpack.controller.writer import Outcome
from binpack.dra.desk import Desk
from fleet.dra import ClaimChoice, Reserver, ResourceClaim
from fleet.pod import Berth, Pod

log = logging.getLogger(__name__)

_MOST_TRIES: Final = 4
_DONE: Final = (Outcome.DONE, "")


async def allot_unit(
    allotter: Allotter, desk: Desk, seats: Sequence[tuple[Pod, Berth]], gate: asyncio.Semaphore
) -> tuple[Outcome, str]:
    """Allocate the claims of all these pods as chosen, and reserve them; DONE = every pod may have its seat.

    Args:
        allotter: The hand.
        desk: What the watches show.
        seats: The gated pods and their berths, with the choices for claims that have no devices.
        gate: Bounds how many claims are written at once.
    """
    chosen = {choice.claim_uid: choice for _, berth in seats for choice in berth.choices}
    users: dict[str, tuple[ResourceClaim, list[Reserver]]] = {}
    for pod, _ in seats:
        claims = desk.claims_of(pod)
        if len(claims) < sum(not one.is_none for one in pod.resource_claims):
            return Outcome.GONE, f"a claim of {pod.name} is gone"
        for claim in claims:
            users.setdefault(claim.uid, (claim, []))[1].append(Reserver(uid=pod.uid, name=pod.name))
    given = [(claim, chosen[uid], by) for uid, (claim, by) in users.items() if uid in chosen]
    had = [(claim, by) for uid, (claim, by) in users.items() if uid not in chosen]
    failed = (
        await _each(gate, ((claim, allotter.allocate(claim, choice, *by)) for claim, choice, by in given))
        or await _each(gate, ((claim, allotter.join(claim.uid, *by)) for claim, by in had))
        or await _each(gate, ((claim, allotter.confirm(claim.uid)) for claim, _, _ in given))
    )
    if failed is None:
        return _DONE
    members = {pod.uid for pod, _ in seats}
    await asyncio.gather(*(_take_back(allotter, claim, choice, members) for claim, choice, _ in given))
    return failed


async def _each(
    gate: asyncio.Semaphore, writes: Iterable[tuple[ResourceClaim, Awaitable[tuple[Outcome, str]]]]
) -> tuple[Outcome, str] | None:
    """Do all of this; return how the first ended that is not DONE, None = all are."""

    async def one(claim: ResourceClaim, write: Awaitable[tuple[Outcome, str]]) -> tuple[Outcome, str]:
        async with gate:
            outcome, detail = await write
        return outcome, f"claim {claim.key}: {detail}"

    ended = await asyncio.gather(*(one(claim, write) for claim, write in writes))
    return next(((outcome, detail) for outcome, detail in ended if outcome is not Outcome.DONE), None)


async def _take_back(allotter: Allotter, claim: ResourceClaim, choice: ClaimChoice, members: Collection[str]) -> None:
    """Take back what a claim was given here, unless somebody else uses it by now."""
    for _ in range(_MOST_TRIES):
        _, now = await allotter.read(claim)
        if now is None or not has_these(now, choice) or any(one.uid not in members for one in now.reserved_for):
            return
        outcome, _ = await allotter.release(now)
        if outcome in (Outcome.DONE, Outcome.GONE, Outcome.NOT_LEADING):
            return
    log.info("claim %s was not taken back; it is freed while its pod waits", claim.key)
