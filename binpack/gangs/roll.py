"""Which members of each gang are there, which are placed, and whether enough of them wait to be placed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from fleet import labels
from fleet.pod import Phase, Pod

Key = tuple[str, str]  # namespace and name of a gang


class Call(Enum):
    """How a gang stands."""

    WHOLE = "whole"  # enough members wait: they can be placed together now
    ENOUGH = "enough"  # as many are placed as the gang needs: whoever waits is placed like any other pod
    INCOMPLETE = "incomplete"  # members are missing
    UNKNOWN = "unknown"  # nobody says yet how many it needs: its PodGroup is not there
    AT_ODDS = "at-odds"  # its members tell different sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A PodGroup.

    Attributes:
        size: Members that must be placed together (`schedulingPolicy.gang.minCount`); 0 = the basic policy, no gang.
    """

    namespace: str
    name: str
    size: int

    @property
    def key(self) -> Key:
        """Return the key of its gang."""
        return self.namespace, labels.POD_GROUP_PREFIX + self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A gang as it is now.

    Attributes:
        size: Members that must be placed together; 0 where nobody says.
        placed: Members that are placed, or were until they ended well.
        ready: Gated members that could be placed now, the oldest first, by name within.
        needed: How many of them must be placed together: what the placed ones leave of the size.
    """

    key: Key
    call: Call
    size: int
    placed: int
    ready: tuple[Pod, ...]

    @property
    def needed(self) -> int:
        """Return how many more members must be placed together."""
        return max(0, self.size - self.placed)

    @property
    def unit(self) -> tuple[Pod, ...]:
        """Return the members to place together; the others follow once these are placed."""
        return self.ready[: self.needed] if self.call is Call.WHOLE else ()

    @property
    def text(self) -> str:
        """Return how the gang stands, with the numbers."""
        name = self.key[1].removeprefix(labels.POD_GROUP_PREFIX)
        match self.call:
            case Call.UNKNOWN:
                return f"PodGroup {name} is not there, so nobody knows how many members it needs"
            case Call.AT_ODDS:
                return f"members of gang {name} tell different sizes in the label {labels.GANG_SIZE}"
            case _:
                here = self.placed + len(self.ready)
                return f"gang {name} needs {self.size} members at once; there are {here} so far"


class Roll:
    """All gangs by their members; moved by single objects in any order."""

    def __init__(self) -> None:
        self._members: dict[Key, dict[str, Pod]] = {}
        self._key_of: dict[str, Key] = {}
        self._groups: dict[Key, Group] = {}

    def __iter__(self) -> Iterator[Key]:
        return iter(self._members)

    def seen(self, pod: Pod) -> Key | None:
        """Take a new or changed pod; return its gang if that may stand otherwise now."""
        key = key_of(pod)
        if key is None:
            return None
        self._key_of[pod.uid] = key
        members = self._members.setdefault(key, {})
        before = members.get(pod.uid)
        members[pod.uid] = pod
        return key if before is None or _what_counts(before) != _what_counts(pod) else None

    def gone(self, uid: str) -> Key | None:
        """Forget a pod whose object is gone; return the gang that lost it."""
        key = self._key_of.pop(uid, None)
        if key is not None:
            members = self._members[key]
            members.pop(uid, None)
            if not members:
                del self._members[key]
        return key

    def group_seen(self, group: Group) -> Key:
        """Take a new or changed PodGroup; return its gang."""
        self._groups[group.key] = group
        return group.key

    def group_gone(self, namespace: str, name: str) -> Key:
        """Forget a PodGroup; return its gang."""
        key = (namespace, labels.POD_GROUP_PREFIX + name)
        self._groups.pop(key, None)
        return key

    def members(self, key: Key) -> tuple[Pod, ...]:
        """Return all members of a gang, in no order."""
        return tuple(self._members.get(key, {}).values())

    def is_alone(self, pod: Pod) -> bool:
        """Return True if the pod is placed like any other: it has no gang, or its gang stands already."""
        key = key_of(pod)
        return key is None or self.standing(key).call is Call.ENOUGH

    def standing(self, key: Key) -> Standing:
        """Return how a gang stands."""
        members = self._members.get(key, {}).values()
        placed = sum(map(_is_placed, members)) + _ended_well(members)
        ready = tuple(sorted(filter(_is_ready, members), key=lambda pod: (pod.created_at_s, pod.name)))
        size, call = self._size(key)
        if call is None:
            is_whole = placed + len(ready) >= size
            call = Call.ENOUGH if placed >= size else Call.WHOLE if is_whole else Call.INCOMPLETE
        return Standing(key=key, call=call, size=size, placed=placed, ready=ready)

    def _size(self, key: Key) -> tuple[int, Call | None]:
        if key[1].startswith(labels.POD_GROUP_PREFIX):
            group = self._groups.get(key)
            return (0, Call.UNKNOWN) if group is None else (group.size, None)
        told = {pod.gang_size for pod in self._members.get(key, {}).values() if pod.is_live and not pod.is_terminating}
        return (max(told, default=0), Call.AT_ODDS if len(told) > 1 else None)


def key_of(pod: Pod) -> Key | None:
    """Return the gang of a pod."""
    return (pod.namespace, pod.gang) if pod.gang else None


def _what_counts(pod: Pod) -> tuple[object, ...]:
    return (
        pod.gates,
        pod.seat,
        pod.node_name,
        pod.phase,
        pod.is_terminating,
        pod.gang_size,
        pod.problems,
        pod.requests,
        pod.ask,
        pod.constraints,
    )


def _is_ready(pod: Pod) -> bool:
    is_ours = pod.gates == (labels.PLAN_GATE,) and not pod.node_name
    return is_ours and pod.is_live and not pod.is_terminating and not pod.problems


def _is_placed(pod: Pod) -> bool:
    """Return True for a member that has its place; one that leaves has none."""
    return pod.is_live and not pod.is_terminating and not pod.gates


def _ended_well(members: Iterable[Pod]) -> int:
    """Count members that had their place and ended well, of owners that still have others.

    Those of an earlier run under the same name are no members of this one.
    """
    owners = {pod.owner.uid for pod in members if pod.owner is not None and pod.is_live}
    return sum(pod.phase is Phase.SUCCEEDED and pod.owner is not None and pod.owner.uid in owners for pod in members)
