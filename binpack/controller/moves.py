"""The moves that are open, out of the planner's world: whose seat waits for a successor, what is seen of each. Pure.

What is open stands in the API: pods that are marked, and successors that carry a record. Only three things are
remembered: pods that went first and whose successor is still to come, those that a replica more is ordered for, in case
they go before their successor comes, and since when a move has stood as it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from binpack.books import is_agent
from binpack.controller.moving_devices import Devices
from binpack.dra.desk import Desk
from binpack.fit import refusal
from binpack.ledger import Ledger
from binpack.moving import afresh
from binpack.moving_seats import seat_key
from binpack.relocation.one_surge import Surging, out_of_turn, shares_surge
from binpack.relocation.record import Way, WayKind, parse_way
from binpack.relocation.steps import CREATED_WITHIN_S, Do, Facts, Stage, Step, Surge
from binpack.tenants import Tenants
from fleet.errors import DecodeError
from fleet.pod import Berth, Pod

_ENDED_FOR_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """One open move.

    Attributes:
        uid: Of the pod that moves, or moved.
        way: None = its record cannot be read.
        is_out_of_turn: Another move of its workload has the surge.
    """

    uid: str
    old: Pod | None
    successor: Pod | None
    way: Way | None
    is_out_of_turn: bool = False

    @property
    def witness(self) -> Pod:
        """Return the pod that is left to speak of."""
        pod = self.old if self.old is not None else self.successor
        assert pod is not None
        return pod


class Moves:
    """Open moves of one leadership."""

    def __init__(
        self, ledger: Ledger, tenants: Tenants, allows: Callable[[Pod, str], bool], desk: Desk | None = None
    ) -> None:
        """Begin with nothing remembered.

        Args:
            ledger: The planner's.
            tenants: Who has a berth.
            allows: Whether rules between pods let one go to a node, by name.
            desk: What resource claims hold and could get; None = there are none.
        """
        self._ledger = ledger
        self._tenants = tenants
        self._allows = allows
        self._devices = Devices(ledger, Desk() if desk is None else desk)
        self._went: dict[str, tuple[Pod, float]] = {}
        self._surged: dict[str, Pod] = {}
        self._since: dict[str, tuple[tuple[str, str], float]] = {}
        self._ended: dict[str, float] = {}
        self._begun: dict[str, tuple[Pod, float]] = {}
        self._why: dict[str, Stage] = {}

    # -- what is open --------------------------------------------------------------------------------------------

    def open(self, now_s: float) -> Sequence[Open]:
        """Return the open moves, by uid; those that ended a moment ago are left out until the watch shows it."""
        self._forget(now_s)
        waiting = self._out_of_turn()
        return [replace(move, is_out_of_turn=move.uid in waiting) for move in self._shown()]

    def _out_of_turn(self) -> frozenset[str]:
        return out_of_turn(one for move in self._shown() if (one := _surging(move)) is not None)

    def is_surging(self, pod: Pod, way: Way | None = None) -> bool:
        """Return True while another replica of the pod's workload moves by a replica more, or is about to.

        Args:
            pod: One that might move.
            way: By which it would; None = not known yet, so that its controller alone tells.
        """
        asked = _asked(pod, way or Way(kind=WayKind.SCALE))
        others = [one for move in self._shown() if (one := _surging(move)) is not None]
        others += [
            _asked(begun, by)
            for uid, (begun, _) in self._begun.items()
            if uid not in self._ended and (by := _way(begun, None)) is not None
        ]
        return any(one.uid != pod.uid and shares_surge(asked, one) for one in others)

    def _shown(self) -> Iterator[Open]:
        successors = {pod.moved_from: pod for pod in self._tenants.moved.values()}
        # Gone before anybody took its place: nothing in the API speaks of the move any more, but for the count.
        vanished = {
            uid: replace(pod, is_terminating=True) for uid, pod in self._surged.items() if uid not in successors
        }
        marked = vanished | {uid: pod for uid, (pod, _) in self._went.items()} | self._tenants.moving
        for uid in sorted({*marked, *successors}):
            old, successor = marked.get(uid), successors.get(uid)
            if uid not in self._ended:
                yield Open(uid=uid, old=old, successor=successor, way=_way(old, successor))

    def facts(self, move: Open, way: Way, surge: Surge, now_s: float, *, is_wanted: bool, is_stale: bool) -> Facts:
        """Return what is seen of a move."""
        owner = move.witness.owner
        members = self._tenants.of_owner(owner.uid) if owner is not None else ()
        there = self._tenants.get(move.uid)
        known = self._since.get(move.uid)
        return Facts(
            way=way,
            old=there if there is not None and there.moving_to is not None else None,
            successor=move.successor,
            others=tuple(
                pod
                for pod in members
                if pod.namespace == move.witness.namespace  # anybody may claim to have this owner
                and pod.uid != move.uid
                and pod is not move.successor
                and not pod.is_terminating
                and not is_agent(pod)
            ),
            surge=surge,
            is_wanted=is_wanted and move.uid not in self._why,
            is_out_of_turn=move.is_out_of_turn,
            is_of_old_template=is_stale,
            for_s=0.0 if known is None else now_s - known[1],
        )

    def note(self, move: Open, step: Step, now_s: float) -> bool:
        """Note how a move stands; return True if that is new."""
        stands = (step.do.value, step.stage.value)
        known = self._since.get(move.uid)
        if known is not None and known[0] == stands:
            return False
        self._since[move.uid] = (stands, now_s)
        return True

    def undo(self, uid: str, why: Stage) -> Stage:
        """Note why a move is being undone, and return why it was in the first place."""
        return self._why.setdefault(uid, why)

    def expect(self, uid: str) -> None:
        """Note that the successor of a pod may come from now on: before, a pod like it is somebody else's."""
        self._begun.pop(uid, None)

    def surged(self, pod: Pod) -> None:
        """Note that a replica more is ordered for a pod: should it be gone all at once, somebody takes that back."""
        self.expect(pod.uid)
        self._surged[pod.uid] = pod

    def begin(self, pod: Pod, now_s: float) -> None:
        """Keep the seat of a pod whose marks are about to be written."""
        self._begun[pod.uid] = (pod, now_s)
        self._ended.pop(pod.uid, None)
        self._ledger.assume_move(pod)
        self._devices.keep(pod)

    def not_begun(self, uid: str) -> None:
        """Note that the marks were not written."""
        self._begun.pop(uid, None)
        self._ledger.forget_move(uid)

    def is_cleared(self, move: Open) -> bool:
        """Return True if the old pod is there and no longer marked: only the successor's record is left of the move."""
        return move.old is None and self._ledger.berth_of(move.uid) is not None

    def ended(self, uid: str, now_s: float) -> None:
        """Note that the last write of a move was made: the watch will show it."""
        self._ended[uid] = now_s
        self._since.pop(uid, None)
        self._begun.pop(uid, None)
        self._surged.pop(uid, None)
        self._why.pop(uid, None)
        if self._went.pop(uid, None) is not None:
            self._ledger.forget_move(uid)

    def goes_first(self, pod: Pod, now_s: float) -> None:
        """Note that a pod is being evicted before it has a successor: its seat is kept when its object is gone."""
        self._went[pod.uid] = (pod, now_s)

    def pod_gone(self, uid: str) -> None:
        """Take note that a pod's object is gone, after the ledger did."""
        if uid in self._went:
            self._ledger.assume_move(self._went[uid][0])

    def _forget(self, now_s: float) -> None:
        for uid, at_s in list(self._ended.items()):
            is_shown = uid not in self._tenants.moving and all(
                pod.moved_from != uid for pod in self._tenants.moved.values()
            )
            if is_shown or now_s - at_s > _ENDED_FOR_S:
                del self._ended[uid]
        for uid, (_, at_s) in list(self._begun.items()):
            if uid not in self._tenants.moving and now_s - at_s > _ENDED_FOR_S:
                self.not_begun(uid)
        successors = {pod.moved_from for pod in self._tenants.moved.values()}
        for uid, (_, at_s) in list(self._went.items()):
            if uid in successors or now_s - at_s > CREATED_WITHIN_S + _ENDED_FOR_S:
                del self._went[uid]
                self._ledger.forget_move(uid)

    # -- devices for resource claims ---------------------------------------------------------------------------

    def keep_devices(self) -> None:
        """Keep for every open move the devices that its successor's claims are to have, after a restart as well."""
        for pod in (*self._tenants.moving.values(), *(gone for gone, _ in self._went.values())):
            self._devices.keep(pod)
        self._devices.release()

    def has_devices(self, pod: Pod, berth: Berth) -> bool:
        """Return True if the berth's node has devices for what the claims of a pod would want."""
        return self._devices.choices(pod, berth) is not None

    # -- successors ----------------------------------------------------------------------------------------------

    def seat_for(self, pod: Pod) -> tuple[Pod, Berth] | None:
        """Return a gated pod as the successor that it is to be, and its seat; None = no seat waits for one like it."""
        if pod.owner is None or not (self._tenants.moving or self._went):
            return None
        for old in (*self._tenants.moving.values(), *(gone for gone, _ in self._went.values())):
            if (
                (old.owner, old.namespace) != (pod.owner, pod.namespace)
                or old.moving_to is None
                or not self._expects(old.uid)
                or old.uid in self._out_of_turn()
            ):
                continue
            if _wish(afresh(old)) != _wish(pod) or _way(old, None) is None:
                continue
            state = self._ledger.state_without(old.moving_to.node, seat_key(old.uid))
            if state is None or refusal(pod, old.moving_to, state) or not self._allows(pod, old.moving_to.node):
                continue
            choices = self._devices.given(pod, old)
            if choices is not None:
                berth = replace(old.moving_to, choices=choices)
                return replace(pod, moved_from=old.uid, moving_by=old.moving_by), berth
        return None

    def _expects(self, uid: str) -> bool:
        is_open = uid not in self._ended and uid not in self._begun
        return is_open and self._ledger.keeps_seat(uid)


def is_over(step: Step) -> bool:
    """Return True if a step is the last of its move."""
    return step.do in (Do.CLEAR, Do.FINISH)


def _surging(move: Open) -> Surging | None:
    if move.way is None:
        return None
    return replace(
        _asked(move.witness, move.way),
        uid=move.uid,
        has_successor=move.successor is not None,
        is_leaving=move.old is None or move.old.is_terminating or not move.old.is_live,
    )


def _asked(pod: Pod, way: Way) -> Surging:
    return Surging(uid=pod.uid, namespace=pod.namespace, owner="" if pod.owner is None else pod.owner.uid, way=way)


def _way(old: Pod | None, successor: Pod | None) -> Way | None:
    for pod in (old, successor):
        if pod is not None:
            try:
                return parse_way(pod.moving_by)
            except DecodeError:
                continue
    return None


def _wish(pod: Pod) -> tuple[object, ...]:
    """Return what a successor must wish like the pod whose place it takes; a pool's toleration comes with the pin."""
    constraints = pod.constraints
    claims = tuple((one.name, one.template) for one in pod.resource_claims)
    return (pod.requests, pod.ask, constraints.node_selector, constraints.terms, claims)
