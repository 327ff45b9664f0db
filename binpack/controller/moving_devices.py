"""Devices by claim for successors of pods that move: kept beside those of the pod until the successor has them.

The claims of a successor are made when it is, from the templates that its predecessor's were made from, so which
devices they are to have is worked out from these; after a restart as well, since the pod's mark names its node alone.
"""

from __future__ import annotations

from dataclasses import replace

from binpack.dra.desk import Desk
from binpack.dra.floor import Floor
from binpack.dra.wishes import Pending
from binpack.ledger import Ledger
from binpack.moving import afresh
from binpack.moving_seats import seat_key
from fleet.dra import ClaimChoice
from fleet.plan import Placement, Plan
from fleet.pod import Berth, Pod


class Devices:
    """Keeps devices on the desk, by the uid of the pod that moves."""

    def __init__(self, ledger: Ledger, desk: Desk) -> None:
        """Keep none yet."""
        self._ledger = ledger
        self._desk = desk
        self._kept: set[str] = set()

    def keep(self, old: Pod) -> None:
        """Keep devices for the successor of a pod that is marked; where nobody can tell which, what is kept stays."""
        if not old.resource_claims or old.moving_to is None or not self._ledger.keeps_seat(old.uid):
            return
        found = self.choices(afresh(old), old.moving_to, old.uid)
        if found is not None:
            self._kept.add(old.uid)
            self._desk.keep(seat_key(old.uid), found)

    def release(self) -> None:
        """Let go of what is kept for moves whose seat nobody needs any more."""
        for uid in [uid for uid in self._kept if not self._ledger.keeps_seat(uid)]:
            self._let_go(uid)

    def given(self, successor: Pod, old: Pod) -> tuple[ClaimChoice, ...] | None:
        """Return devices for the successor's claims, verified, no longer kept; None = none, or no claims yet."""
        if old.moving_to is None:
            return None
        found = self.choices(successor, old.moving_to, old.uid)
        if found is None:
            return None
        self._let_go(old.uid)
        placement = Placement(pod_uid=successor.uid, berth=replace(old.moving_to, choices=found))
        wrong = self._desk.violations(Plan(placements=(placement,)), [successor])
        return None if wrong else found

    def choices(self, pod: Pod, berth: Berth, old: str = "") -> tuple[ClaimChoice, ...] | None:
        """Return devices for a pod's claims on a node beside all that are held; None where there are none.

        Args:
            pod: It may have no claims.
            berth: Of the node.
            old: Uid of the pod whose successor it is: what is kept for that is its own.
        """
        if not pod.resource_claims:
            return ()
        node, wish = self._ledger.node(berth.node), self._desk.wish(pod)
        if node is None or isinstance(wish, Pending):
            return None
        mine = seat_key(old)
        floor = Floor(node, self._desk, apart=[mine])
        held = self._ledger.holdings_on(node.name)
        return floor.choices(wish, floor.now([holding for uid, holding in held.items() if uid != mine]))

    def _let_go(self, uid: str) -> None:
        self._kept.discard(uid)
        self._desk.keep(seat_key(uid), ())
