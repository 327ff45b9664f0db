"""Judges how gangs are made to go: as a whole, or by no more than they can do without, and only for seats.

No budget covers gangs in storms, so only a leader's death, or a seat that is called off, may leave half a gang behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from fleet.kube import paths
from fleet.pod import Phase, Pod
from tests.support.storm.api import Key, StormApi
from tests.support.storm.cluster import decoded


@dataclass(slots=True, kw_only=True)
class Crew:
    """What ran of a gang, as the planner was shown, when the first of it was made to go.

    Attributes:
        members: Their names.
        waits_for: Pods with seats that stood where members were, by uid.
        is_excused: A leader died, or a seat was called off, while it went.
    """

    members: frozenset[Key]
    size: int
    waits_for: set[str] = field(default_factory=set)
    is_excused: bool = False


class Crews:
    """Gangs of which members were made to go."""

    def __init__(self, api: StormApi) -> None:
        self._api = api
        self._crews: dict[Key, Crew] = {}

    def evicted(self, victim: Pod, seats: Mapping[str, Collection[Pod]], *, is_late: bool) -> Iterator[str]:
        """Yield what is wrong with the eviction of a member that takes place now.

        Args:
            victim: Member of a gang.
            seats: By node, the pods that have a seat there and are more important.
            is_late: The write was on its way for a while.
        """
        gang = (victim.namespace, victim.gang)
        crew = self._crews.get(gang)
        if crew is None or not self._is_going(crew):
            crew = self._crews[gang] = Crew(members=frozenset(self._shown(gang)), size=victim.gang_size)
        left = [pod for pod in self._left(crew) if pod.uid != victim.uid]
        direct = [pod for pod in left if pod.node_name in seats]
        asks = [*seats.get(victim.node_name, ()), *(seat for pod in direct for seat in seats[pod.node_name])]
        if is_late:
            crew.is_excused = True
        elif not asks and not (crew.waits_for & self._seated()):
            yield f"{victim.key} is evicted from {victim.node_name}, and nobody has a seat there or where its gang is"
        elif victim.node_name not in seats and not self._is_short(gang, crew, [*left, victim], without=direct):
            yield f"{victim.key} is evicted from {victim.node_name}, and its gang of {crew.size} could lose others"
        elif victim.node_name in seats and len(direct) < len(left) and self._is_short(gang, crew, left):
            away = ", ".join(f"{pod.name} on {pod.node_name}" for pod in left if pod not in direct)
            yield f"{victim.key} is evicted from the node of the seat, and of its gang of {crew.size} stays {away}"
        crew.waits_for |= {pod.uid for pod in asks}

    def seat_used(self, uid: str) -> Iterator[str]:
        """Yield the gangs of which half is left when the last seat is used for which others of it went."""
        for gang, crew in self._crews.items():
            if uid not in crew.waits_for:
                continue
            others = crew.waits_for - {uid}
            crew.waits_for = others & self._seated()
            crew.is_excused |= others != crew.waits_for
            if not crew.waits_for:
                yield from self._half(gang, crew)

    def leader_died(self) -> None:
        """Excuse gangs of which some are gone: a successor goes on only where the seat still needs others of them."""
        for crew in self._crews.values():
            crew.is_excused |= self._is_going(crew)

    def at_rest(self) -> Iterator[str]:
        """Yield the gangs of which half is left though every seat for which others of it went was used."""
        for gang, crew in self._crews.items():
            crew.is_excused |= bool(crew.waits_for - self._seated())
            yield from self._half(gang, crew)

    def _half(self, gang: Key, crew: Crew) -> Iterator[str]:
        left = self._left(crew)
        if left and not crew.is_excused and self._is_short(gang, crew, left):
            yield f"of gang {gang[1]}, which needs {crew.size}, others went and {', '.join(p.name for p in left)} stays"

    def _is_short(self, gang: Key, crew: Crew, left: Collection[Pod], *, without: Collection[Pod] = ()) -> bool:
        """Return True if these, without those, are fewer than the gang needs."""
        pods = [decoded(obj) for obj in self._api.objects[paths.PODS].values()]
        ended = sum((pod.namespace, pod.gang) == gang and pod.phase is Phase.SUCCEEDED for pod in pods)
        return len(left) - len(without) + ended < crew.size

    def _is_going(self, crew: Crew) -> bool:
        return bool(crew.waits_for & self._seated())

    def _seated(self) -> set[str]:
        pods = [decoded(obj) for obj in self._api.objects[paths.PODS].values()]
        return {pod.uid for pod in pods if pod.gates and pod.seat is not None}

    def _left(self, crew: Crew) -> list[Pod]:
        objects = self._api.objects[paths.PODS]
        pods = [decoded(objects[key]) for key in sorted(crew.members) if key in objects]
        return [pod for pod in pods if _runs(pod)]

    def _shown(self, gang: Key) -> Iterator[Key]:
        for key, obj in self._api.seen[paths.PODS].items():
            pod = decoded(obj)
            if (pod.namespace, pod.gang) == gang and _runs(pod):
                yield key


def _runs(pod: Pod) -> bool:
    return bool(pod.node_name) and pod.is_live and not pod.is_terminating and not pod.gates
