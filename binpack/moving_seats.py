"""Seats of pods that are being moved: each is kept beside the pod's own berth until its successor has it. Pure.

The annotation on the pod that moves is the only record, so that a fresh process keeps the same seats. A successor says
whom it replaces; from the moment it holds a berth the seat is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from binpack.books import Holding, holding_at
from fleet.company import NOBODY
from fleet.pod import Berth, Pod

_MARK = "/moving"

Booking = tuple[str, Holding | None]


class MovingSeats:
    """Which seats are kept now. Every method yields (key, holding or None) to be booked; a key is no pod's uid."""

    def __init__(self) -> None:
        self._wanted: dict[str, Holding] = {}
        self._assumed: set[str] = set()
        self._moved_by: dict[str, str] = {}
        self._successors: dict[str, set[str]] = {}

    def pod(self, pod: Pod, *, holds: bool) -> Iterator[Booking]:
        """Take a pod.

        Args:
            pod: As the API shows it, or as it will once what was decided is written.
            holds: Whether it holds a berth.
        """
        if pod.moving_to is not None and pod.is_live and not pod.gates:  # who stands nowhere cannot move
            self._assumed.discard(pod.uid)
            yield self._want(pod, pod.moving_to)
        elif pod.uid not in self._assumed and self._wanted.pop(pod.uid, None) is not None:
            yield self._booking(pod.uid)
        yield from self._replaces(pod.uid, pod.moved_from if holds else "")

    def gone(self, uid: str) -> Iterator[Booking]:
        """Take note that a pod is gone."""
        self._assumed.discard(uid)
        if self._wanted.pop(uid, None) is not None:
            yield self._booking(uid)
        yield from self._replaces(uid, "")

    def assume(self, pod: Pod) -> Iterator[Booking]:
        """Keep the seat of a pod whose mark is being written, until the API shows it, or `forget`."""
        if pod.moving_to is not None:
            yield self._want(pod, pod.moving_to)
            self._assumed.add(pod.uid)

    def forget(self, uid: str) -> Iterator[Booking]:
        """Take note that a pod is not being moved after all."""
        if uid in self._assumed:
            self._assumed.discard(uid)
            del self._wanted[uid]
            yield self._booking(uid)

    def released(self, uid: str) -> Iterator[Booking]:
        """Take note that a pod does not hold what it was assumed to."""
        yield from self._replaces(uid, "")

    def _want(self, pod: Pod, berth: Berth) -> Booking:
        seat = holding_at(pod, berth.node, berth.devices or None)
        # What the pod is by name is booked for the pod itself; who is to come in its place must not find itself there.
        self._wanted[pod.uid] = replace(seat, key=f"{pod.key} (moving)", is_seat=True, guest=NOBODY)
        return self._booking(pod.uid)

    def _replaces(self, uid: str, old: str) -> Iterator[Booking]:
        """Let `old` be whom a pod replaces; "" = nobody."""
        before = self._moved_by.pop(uid, "")
        if old:
            self._moved_by[uid] = old
        if before == old:
            return
        if before:
            others = self._successors[before]
            others.discard(uid)
            if not others:
                del self._successors[before]
            yield self._booking(before)
        if old:
            self._successors.setdefault(old, set()).add(uid)
            yield self._booking(old)

    def _booking(self, old: str) -> Booking:
        return seat_key(old), None if old in self._successors else self._wanted.get(old)


def seat_key(uid: str) -> str:
    """Return under which key the seat of a pod that moves is booked."""
    return uid + _MARK


def is_seat_key(key: str) -> bool:
    """Return True for the key of a seat, False for a pod's uid."""
    return key.endswith(_MARK)
