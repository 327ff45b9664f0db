"""What every pod holds and what is free on every node: a function of the API's objects alone.

A bound pod holds the devices of its record: the devices annotation, else the candidate of its node. Before it is bound,
an ungated pod holds its pin, or the first of its candidates. A gated pod holds its seat, if one is kept for it; one
whose phase is terminal holds nothing. A terminating pod holds its berth until the object is gone. `assume` adds what
was decided here and does not show in the API yet.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from binpack.books import Account, Holding, account, holding_at, seat_holding
from binpack.coming import Coming
from binpack.moving_seats import MovingSeats, is_seat_key, seat_key
from binpack.state import NodeState
from fleet.node import Node
from fleet.pod import Berth, Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything a ledger knows, comparable: a fresh process and one that watched for a week hold equal ones.

    Attributes:
        states: One per node, by name.
        homeless: (node, pod) of everything held on nodes that do not exist yet, or any more.
        warnings: See `Ledger.warnings`.
    """

    states: tuple[NodeState, ...]
    homeless: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assumption:
    """Why a pod is booked otherwise than the API shows it: holds while the API shows the same as at that time."""

    shown: Holding | None
    seen: tuple[object, ...]


class Ledger:
    """Books of all nodes, moved by single objects in any order: O(pods of one node) for each changed node.

    Attributes:
        coming: Pods that hold a berth and are not bound to it yet.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._booked: dict[str, Holding] = {}
        self._assumed: dict[str, _Assumption] = {}
        self._written: dict[str, Berth | None] = {}
        self._on: dict[str, dict[str, Holding]] = {}
        self._uid_of: dict[str, str] = {}
        self._accounts: dict[str, Account] = {}
        self._changed: set[str] = set()
        self._seats = MovingSeats()
        self.coming = Coming()

    # -- what the API shows ------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        """Take a new or changed node; pods that name it may have come before it."""
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._touch(node.name)

    def remove_node(self, name: str) -> None:
        """Drop a node; what its pods hold is kept for the day it returns."""
        if self._nodes.pop(name, None) is not None:
            self._touch(name)

    def set_pod(self, pod: Pod) -> None:
        """Take a new or changed pod; another uid under the same name means that the earlier pod is gone."""
        if pod.uid in self._written and (pod.seat == self._written[pod.uid] or not pod.gates):
            del self._written[pod.uid]
        self._take_pod(self.as_written(pod))

    def as_written(self, pod: Pod) -> Pod:
        """Return a pod with the seat that it has by what was written last.

        Only the planner writes seats, so an event that does not show the last one is older than it.
        """
        if pod.uid not in self._written or not pod.gates:
            return pod
        return replace(pod, seat=self._written[pod.uid])

    def wrote_seat(self, pod: Pod, seat: Berth | None) -> Pod:
        """Count a seat that the API has taken, or taken back (None), as if it showed it; return the pod as it is then.

        Whatever was assumed for the pod is dropped.
        """
        self._written[pod.uid] = seat
        self._assumed.pop(pod.uid, None)
        pod = self.as_written(pod)
        self._take_pod(pod)
        return pod

    def _take_pod(self, pod: Pod) -> None:
        self._replace_earlier(pod)
        assumption = self._assumed.get(pod.uid)
        if assumption is not None:
            if assumption.seen == _seen(pod):
                booked = self._booked[pod.uid]
                renewed = holding_at(pod, booked.node, booked.devices)
                self._book(pod.uid, replace(renewed, is_seat=booked.is_seat))
                return
            del self._assumed[pod.uid]
        self._take(pod, _shown_holding(pod))

    def remove_pod(self, uid: str) -> None:
        """Drop a pod whose object is gone."""
        self._assumed.pop(uid, None)
        self._written.pop(uid, None)
        self._book(uid, None)
        self.coming.gone(uid)
        self._keep(self._seats.gone(uid))

    # -- what was decided and does not show yet ---------------------------------------------------------------

    def assume(self, pod: Pod, berth: Berth, *, as_seat: bool = False) -> None:
        """Count a berth as held by the pod until the API shows the pod changed, or until `forget`.

        Args:
            pod: As read when its berth was decided; where the API has shown another berth since, that one stands.
            berth: Node and devices decided for it.
            as_seat: It is only kept for the pod: others may still be there.
        """
        self._replace_earlier(pod)
        assumption = self._assumed.get(pod.uid)
        known = self._booked.get(pod.uid) if assumption is None else assumption.shown
        shown = _shown_holding(pod)
        if known == shown:
            self._assumed[pod.uid] = _Assumption(shown=shown, seen=_seen(pod))
            self._take(pod, replace(holding_at(pod, berth.node, berth.devices), is_seat=as_seat))

    def forget(self, uid: str) -> None:
        """Drop what was assumed for a pod; what the API shows of it stays."""
        assumption = self._assumed.pop(uid, None)
        if assumption is not None:
            self._book(uid, assumption.shown)
            if assumption.shown is None:
                self.coming.gone(uid)
                self._keep(self._seats.released(uid))
            else:
                self.coming.turned(uid, assumption.shown.node)

    def assume_move(self, pod: Pod) -> None:
        """Keep the seat that a pod is marked with (`moving_to`) until the API shows the mark, or `forget_move`."""
        self._keep(self._seats.assume(pod))

    def forget_move(self, uid: str) -> None:
        """Keep no seat for a pod whose mark was not written."""
        self._keep(self._seats.forget(uid))

    def keeps_seat(self, uid: str) -> bool:
        """Return True if a seat is kept for the successor of this pod, and nobody has it yet."""
        return seat_key(uid) in self._booked

    # -- reading -----------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """Return the names of all nodes, sorted."""
        return tuple(sorted(self._nodes))

    def known(self) -> KeysView[str]:
        """Return a live view of the names of all nodes, in no order: for set arithmetic on thousands of them."""
        return self._nodes.keys()

    def state(self, name: str) -> NodeState | None:
        """Return what is free on a node; the same object until something changes there; None = no such node."""
        current = self._account(name)
        return None if current is None else current.state

    def state_without(self, name: str, uid: str) -> NodeState | None:
        """Return what would be free on a node if this pod held nothing: for checking the pod's own berth.

        Seats do not count beside it: they were planned around what is held, and who leaves for one may still be here.
        """
        node = self._nodes.get(name)
        on_node = self._on.get(name, {})
        if node is None or uid not in on_node:
            return self.state(name)
        return account(node, [h for other, h in on_node.items() if other != uid and not h.is_seat]).state

    def holdings_on(self, name: str) -> Mapping[str, Holding]:
        """Return a live view of what pods hold on a node, by uid."""
        return MappingProxyType(self._on.get(name, {}))

    def node(self, name: str) -> Node | None:
        """Return a node as the API shows it; None = no such node."""
        return self._nodes.get(name)

    def berth_of(self, uid: str) -> Berth | None:
        """Return what a pod holds, shown by the API or assumed; None = nothing."""
        holding = self._booked.get(uid)
        return None if holding is None else holding.berth

    def pods_on(self, name: str) -> tuple[str, ...]:
        """Return the uids of all pods that hold anything on a node, sorted."""
        return tuple(sorted(uid for uid in self._on.get(name, ()) if not is_seat_key(uid)))

    def users_on(self, name: str) -> tuple[str, ...]:
        """Return the uids of the pods on a node that are no part of the node itself, sorted."""
        return tuple(sorted(uid for uid, holding in self._on.get(name, {}).items() if not holding.is_agent))

    def has_ours_on(self, name: str) -> bool:
        """Return True if a pod of our scheduler holds anything on a node, or is assumed to."""
        return any(holding.is_ours for holding in self._on.get(name, {}).values())

    def take_changed(self) -> set[str]:
        """Return the nodes that changed, came or went since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def warnings(self) -> tuple[str, ...]:
        """Return what people should look at: closed nodes, records of vanished devices, broken promises."""
        accounts = [self._account(name) for name in sorted(self._nodes)]
        return tuple(warning for current in accounts if current is not None for warning in current.warnings)

    def warnings_on(self, name: str) -> tuple[str, ...]:
        """Return those of one node, sorted; empty if there is no such node."""
        current = self._account(name)
        return () if current is None else current.warnings

    def picture(self) -> Picture:
        """Return everything known, comparable with another ledger's."""
        accounts = [self._account(name) for name in sorted(self._nodes)]
        return Picture(
            states=tuple(current.state for current in accounts if current is not None),
            homeless=tuple(
                sorted((n, h.key) for n, held in self._on.items() if n not in self._nodes for h in held.values())
            ),
            warnings=self.warnings(),
        )

    # -- inside ------------------------------------------------------------------------------------------------

    def _account(self, name: str) -> Account | None:
        current = self._accounts.get(name)
        node = self._nodes.get(name)
        if current is None and node is not None:
            current = account(node, self._on.get(name, {}).values())
            self._accounts[name] = current
        return current

    def _replace_earlier(self, pod: Pod) -> None:
        earlier = self._uid_of.get(pod.key)
        if earlier is not None and earlier != pod.uid:
            self.remove_pod(earlier)

    def _take(self, pod: Pod, holding: Holding | None) -> None:
        """Let this be what the pod holds, and keep or free the seat that it moves to, or that it takes."""
        self._book(pod.uid, holding)
        if holding is None or pod.node_name:
            self.coming.gone(pod.uid)
        else:
            self.coming.seen(pod, holding.node)
        self._keep(self._seats.pod(pod, holds=holding is not None))

    def _keep(self, seats: Iterable[tuple[str, Holding | None]]) -> None:
        for key, seat in seats:
            self._book(key, seat)

    def _book(self, uid: str, holding: Holding | None) -> None:
        """Let `holding` be all that the pod holds."""
        before = self._booked.get(uid)
        if before == holding:
            return
        if before is not None:
            on_node = self._on[before.node]
            del on_node[uid]
            if not on_node:
                del self._on[before.node]
            del self._booked[uid], self._uid_of[before.key]
            self._touch(before.node)
        if holding is not None:
            self._booked[uid] = holding
            self._on.setdefault(holding.node, {})[uid] = holding
            self._uid_of[holding.key] = uid
            self._touch(holding.node)

    def _touch(self, name: str) -> None:
        self._accounts.pop(name, None)
        self._changed.add(name)


def _seen(pod: Pod) -> tuple[object, ...]:
    """Return everything by which the API could confirm or overrule an assumption."""
    return (
        pod.node_name,
        pod.pinned_node,
        pod.devices,
        pod.candidates,
        pod.seat,
        bool(pod.gates),
        pod.is_terminating,
        pod.is_live,
    )


def _shown_holding(pod: Pod) -> Holding | None:
    """Return what the API says the pod holds."""
    if not pod.is_live:
        return None
    if pod.node_name:
        devices = pod.devices
        if devices is None:
            devices = next((c.devices for c in pod.candidates if c.node == pod.node_name), None)
        return holding_at(pod, pod.node_name, devices)
    if pod.gates:
        return seat_holding(pod)
    if pod.pinned_node:
        return holding_at(pod, pod.pinned_node, pod.devices)
    if pod.candidates:
        return holding_at(pod, pod.candidates[0].node, pod.candidates[0].devices)
    return None
