"""Who is placed together, and whose seat is kept: gangs as they gather, seats until their pods are pinned. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from binpack.controller.begun import Begun
from binpack.gangs.roll import Call, Group, Key, Roll, Standing, key_of
from binpack.preemption.seats import Seating, SeatStanding
from binpack.tenants import node_of
from fleet import labels
from fleet.pod import Pod

_GOING_S = 30.0  # how long the watch may take to show that a pod was made to go
_REFUSED_PAUSE_S = 5.0
_LONGEST_REFUSED_S = 60.0
# Pods may take long to leave, for the sake of requests in progress; one that takes longer may never leave (a finalizer,
# a dead node), and its node is then nowhere to look for a seat for a while.
_LONGEST_LEAVING_S = 1800.0
_SHUNNED_S = 3600.0


class Step(Enum):
    """What is to be done about the seats of one group."""

    PIN = "pin"  # these pods may be pinned to their seats now
    EVICT = "evict"  # others must be made to go first
    WAIT = "wait"  # for pods that leave
    GIVE_UP = "give-up"  # the seats cannot be kept


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStep:
    """The next step of a gang with seats, or of one pod with a seat.

    Attributes:
        pods: Whom it is about: those to pin, or all of the group.
        victims: (pod, for whom) of those who must go.
        detail: For people: why seats are given up, or what is waited for.
        pause_s: How long others are not asked to go again for the group, where its seats are given up.
    """

    step: Step
    pods: tuple[Pod, ...]
    victims: tuple[tuple[Pod, Pod], ...] = ()
    detail: str = ""
    pause_s: float = 0.0


class Together:
    """What the planner remembers of gangs and seats; all of it can be read again from the API's objects.

    Attributes:
        roll: Gangs by their members.
        called: Gangs that changed since they were looked at.
        due: Gangs that can be placed now, as far as is known.
        short: Gangs of which members are missing: what was said of them may be old.
        without_room: Gangs that were tried and did not fit: due again when room appears.
    """

    def __init__(self) -> None:
        self.roll = Roll()
        self.called: set[Key] = set()
        self.due: set[Key] = set()
        self.without_room: set[Key] = set()
        self.short: set[Key] = set()
        self._seated: dict[str, Pod] = {}
        self._going_until_s: dict[str, float] = {}
        self._begun = Begun()
        self._refused_since_s: dict[str, float] = {}
        self._ask_again_s: dict[str, float] = {}
        self._rest_until_s: dict[object, float] = {}
        self._leaving_since_s: dict[object, float] = {}
        self._shunned_until_s: dict[str, float] = {}

    # -- watch events ------------------------------------------------------------------------------------------

    def seen(self, pod: Pod) -> None:
        """Take a new or changed pod, with the seat that it has by what was written last."""
        self.called.update(self.roll.seen(pod))
        if pod.seat is not None and labels.PLAN_GATE in pod.gates:
            self._seated[pod.uid] = pod
        else:
            self._seated.pop(pod.uid, None)
            self._begun.called_off(pod.uid)
        if pod.is_terminating:
            self._forget_victim(pod.uid)

    def gone(self, uid: str) -> None:
        """Forget a pod whose object is gone."""
        key = self.roll.gone(uid)
        if key is not None:
            self.called.add(key)
        self._seated.pop(uid, None)
        self._rest_until_s.pop(uid, None)
        self._forget_victim(uid)

    def group_seen(self, group: Group) -> None:
        """Take a new or changed PodGroup: it says how many members its gang needs."""
        self.called.add(self.roll.group_seen(group))

    def group_gone(self, namespace: str, name: str) -> None:
        """Forget a PodGroup."""
        self.called.add(self.roll.group_gone(namespace, name))

    # -- gangs -------------------------------------------------------------------------------------------------

    def is_alone(self, pod: Pod) -> bool:
        """Return True if the pod is planned like any other: it keeps no seat, and no gang needs it."""
        return pod.seat is None and (not pod.gang or self.roll.is_alone(pod))

    def take_called(self) -> list[Standing]:
        """Return how the gangs stand that changed since the last call."""
        called, self.called = self.called, set()
        return [self.roll.standing(key) for key in sorted(called)]

    def left_out(self) -> list[tuple[Pod, ...]]:
        """Return the members of gangs that were tried and did not fit, the most urgent first, then the oldest."""
        units = filter(None, (self.roll.standing(key).unit for key in self.without_room))

        def rank(unit: tuple[Pod, ...]) -> tuple[int, float, str]:
            return -min(pod.priority for pod in unit), min(pod.created_at_s for pod in unit), unit[0].uid

        return sorted(units, key=rank)

    def rest(self, what: object, until_s: float) -> None:
        """Leave a gang, or a pod that found nobody to go for it, alone until then (monotonic)."""
        self._rest_until_s[what] = until_s

    def rests(self, what: object, now_s: float) -> bool:
        """Return True while it is left alone."""
        until_s = self._rest_until_s.get(what)
        if until_s is not None and until_s <= now_s:
            del self._rest_until_s[what]
        return until_s is not None and now_s < until_s

    def forget_past(self, now_s: float) -> None:
        """Drop what is over by time alone, of gangs and nodes that are gone as well."""
        self._rest_until_s = {what: until_s for what, until_s in self._rest_until_s.items() if until_s > now_s}
        self._shunned_until_s = {name: until_s for name, until_s in self._shunned_until_s.items() if until_s > now_s}

    # -- seats -------------------------------------------------------------------------------------------------

    @property
    def seated(self) -> Mapping[str, Pod]:
        """Return the gated pods for which a seat is kept, by uid."""
        return self._seated

    def seats_by_node(self) -> dict[str, list[Pod]]:
        """Return the pods with seats, by the node of the seat."""
        found: dict[str, list[Pod]] = {}
        for pod in self._seated.values():
            if pod.seat is not None:
                found.setdefault(pod.seat.node, []).append(pod)
        return found

    def steps(self, standings: Mapping[str, SeatStanding], is_away: Iterable[str], now_s: float) -> Iterator[GroupStep]:
        """Yield the next step of every gang with seats and of every other pod with one.

        Args:
            standings: How each seat stands, by the uid of its pod.
            is_away: Pods whose patch is being written: their group is looked at again afterwards.
            now_s: Monotonic time.
        """
        away = set(is_away)
        groups: dict[object, list[Pod]] = {}
        for pod in self._seated.values():
            groups.setdefault(pod.uid if self._is_late(pod) else key_of(pod) or pod.uid, []).append(pod)
        self._leaving_since_s = {what: since_s for what, since_s in self._leaving_since_s.items() if what in groups}
        for what, pods in groups.items():
            members = self.roll.standing(what).ready if isinstance(what, tuple) else tuple(pods)
            if not any(pod.uid in away for pod in (*pods, *members)):
                yield self._step(what, tuple(sorted(pods, key=lambda pod: pod.name)), standings, now_s)

    def _is_late(self, pod: Pod) -> bool:
        """Return True for a member of a gang that stands already, or of which some are placed: each goes as it can."""
        key = key_of(pod)
        return key is None or self.roll.is_enough(key) or self.roll.has_begun(key)

    def _step(self, what: object, pods: tuple[Pod, ...], found: Mapping[str, SeatStanding], now_s: float) -> GroupStep:
        if isinstance(what, tuple):
            gang = self.roll.standing(what)
            if gang.call is not Call.WHOLE or len(pods) < gang.needed:
                missing = gang.text if gang.call is not Call.WHOLE else "not all of its members have a seat"
                return GroupStep(step=Step.GIVE_UP, pods=pods, detail=missing)
        if any(pod.gates != (labels.PLAN_GATE,) for pod in pods):
            return GroupStep(step=Step.GIVE_UP, pods=pods, detail="somebody else holds it with another gate")
        standings = [found[pod.uid] for pod in pods if pod.uid in found]
        lost = next((one for one in standings if one.seating is Seating.LOST), None)
        if lost is not None or len(standings) < len(pods):
            why = "its node is gone" if lost is None else f"{lost.pod.name} can no longer have its seat: {lost.detail}"
            return GroupStep(step=Step.GIVE_UP, pods=pods, detail=why, pause_s=_REFUSED_PAUSE_S)
        victims = self._victims(pods, standings, now_s)
        stubborn = next((v for v, _ in victims if self._is_stubborn(v.uid, now_s)), None)
        if stubborn is not None:
            self._forget_victim(stubborn.uid)
            why = f"{stubborn.key} is not let go: a disruption budget, or whoever decides on evictions, says no"
            return GroupStep(step=Step.GIVE_UP, pods=pods, detail=why, pause_s=_LONGEST_REFUSED_S)
        if not victims and all(one.seating is Seating.FREE for one in standings):
            return GroupStep(step=Step.PIN, pods=pods)
        due = tuple(pair for pair in _next_to_go(victims) if self.may_ask(pair[0].uid, now_s))
        leaving = sum(one.seating is Seating.LEAVING for one in standings)
        if leaving and now_s - self._leaving_since_s.setdefault(what, now_s) >= _LONGEST_LEAVING_S:
            for one in standings:
                if one.seating is Seating.LEAVING and one.pod.seat is not None:
                    self._shunned_until_s[one.pod.seat.node] = now_s + _SHUNNED_S
            why = f"pods that were to leave for it have not left for {_LONGEST_LEAVING_S / 60:.0f} minutes"
            return GroupStep(step=Step.GIVE_UP, pods=pods, detail=why, pause_s=_LONGEST_REFUSED_S)
        text = f"{len(victims)} pods are asked to go, {leaving} seats wait for pods that leave"
        return GroupStep(step=Step.EVICT if due else Step.WAIT, pods=pods, victims=due, detail=text)

    def _victims(
        self, pods: Iterable[Pod], standings: Iterable[SeatStanding], now_s: float
    ) -> tuple[tuple[Pod, Pod], ...]:
        """Return (victim, for whom) of all who must go, and of those whose gang goes already."""
        named = {victim.uid: (victim, one.pod) for one in standings for victim in one.victims}
        for victim, pod in self._begun.rest(pods, self.going(now_s)):
            if victim.uid in named:
                continue
            if self._is_stubborn(victim.uid, now_s):
                self._forget_victim(victim.uid)  # the seat does not need it to go
            else:
                named[victim.uid] = (victim, pod)
        return tuple(named.values())

    # -- who goes ----------------------------------------------------------------------------------------------

    def going(self, now_s: float) -> set[str]:
        """Return the pods that were made to go and of which the watch does not show it yet."""
        self._going_until_s = {uid: until_s for uid, until_s in self._going_until_s.items() if until_s > now_s}
        return set(self._going_until_s)

    def is_shunned(self, node: str, now_s: float) -> bool:
        """Return True for a node on which pods that should leave do not, for a while."""
        return now_s < self._shunned_until_s.get(node, float("-inf"))

    def may_ask(self, uid: str, now_s: float) -> bool:
        """Return True for a pod that nobody has asked to go a moment ago."""
        return now_s >= self._ask_again_s.get(uid, float("-inf"))

    def asked(self, uid: str, now_s: float) -> None:
        """Note that a pod is being asked to go: nobody asks it again meanwhile."""
        self._ask_again_s[uid] = now_s + _REFUSED_PAUSE_S

    def begins(self, pairs: Sequence[tuple[Pod, Pod]]) -> None:
        """Note that (victim, for whom) are asked to go now: of gangs that go as a whole, until none is left."""
        self._begun.note(pairs, self.roll)

    def goes(self, uid: str, now_s: float) -> None:
        """Note that a pod goes."""
        self._going_until_s[uid] = now_s + _GOING_S

    def refused(self, uid: str, now_s: float) -> None:
        """Note that a disruption budget did not let a pod go."""
        self._refused_since_s.setdefault(uid, now_s)
        self._ask_again_s[uid] = now_s + _REFUSED_PAUSE_S

    def _is_stubborn(self, uid: str, now_s: float) -> bool:
        return now_s - self._refused_since_s.get(uid, now_s) >= _LONGEST_REFUSED_S

    def _forget_victim(self, uid: str) -> None:
        self._begun.left(uid)
        self._refused_since_s.pop(uid, None)
        self._ask_again_s.pop(uid, None)


def _next_to_go(victims: tuple[tuple[Pod, Pod], ...]) -> Iterator[tuple[Pod, Pod]]:
    """Yield the pairs to be asked now: of a gang, its members on other nodes than the seat's before those on it.

    While these stand, the seat says that their gang has to go: whoever takes over asks the rest of it.
    """
    first = {key for victim, pod in victims if (key := key_of(victim)) is not None and not _is_on_seat(victim, pod)}
    return (pair for pair in victims if key_of(pair[0]) not in first or not _is_on_seat(*pair))


def _is_on_seat(victim: Pod, pod: Pod) -> bool:
    return pod.seat is not None and node_of(victim) == pod.seat.node
