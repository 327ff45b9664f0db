"""Looks on and judges: every binding at once, everybody who waits twice a second, all objects after an accident."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from bench.chaos.judge import (
    is_gated,
    is_over,
    mark,
    node_of,
    note,
    over_allocated,
    pinned_node,
    torn_gangs,
    wrong_with,
)
from bench.chaos.room import Shape, fits, free_by_node, is_judged, shape_of
from bench.chaos.seen import Collection, Object
from berthmaster.demo.replay import items
from fleet.clock import Clock
from fleet.kube import paths
from fleet.kube.client import Client

LOOK_EVERY_S = 0.5
STUCK_S = 5.0
# A device that died or a stranger that came so shortly before a binding could not be known to whoever bound.
_RACE_S = 3.0
# Events of pods that the planner itself made go: for urgent ones, or because their pins were beyond hope.
_SENT_AWAY = ("Preempted", "PinnedNodeGone", "PinnedNodeRefusedTwice")
FOREIGN = "bench.berthmaster.dev/foreign"


@dataclass(slots=True)
class Verdict:
    """What was found wrong, and what was counted.

    Attributes:
        over_allocated: Bindings without room, and what a count over everything found.
        stuck: Pods and gangs that waited longer than allowed although they fitted all the while.
        torn: Gangs of which a part held room longer than allowed.
        lost: Pods that went and nobody of those who may had sent them away.
        longest_fitting_s: By kind of waiting, the longest that somebody who fitted waited, while everybody served.
    """

    over_allocated: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    longest_fitting_s: dict[str, float] = field(default_factory=dict)
    created_to_bound_s: list[float] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Return whether nothing was found."""
        return not (self.over_allocated or self.stuck or self.torn or self.lost)


@dataclass(slots=True)
class _Wait:
    """Somebody who waits: since when without a pause he could have been served."""

    fitting_since_s: float | None = None
    by_node: dict[str, float] = field(default_factory=dict)
    is_told: bool = False


class Referee:
    """Watches nodes and pods.

    Args:
        client: As the administrator.
        clock: For the looks.
        serves: Returns whether everybody is there who is needed: time in which not is not counted as waiting.
        is_ours: Returns whether a pod is one that the bench took away itself.
        namespace: Of the pods that may not be lost; others are strangers'.
    """

    def __init__(
        self, client: Client, clock: Clock, serves: Callable[[], bool], is_ours: Callable[[str], bool], namespace: str
    ) -> None:
        self.verdict = Verdict()
        self._client = client
        self._clock = clock
        self._serves = serves
        self._is_ours = is_ours
        self._namespace = namespace
        self._in_full: dict[str, Object] = {}
        self._versions: dict[str, deque[tuple[float, Object]]] = {}
        self._bound_at_s: dict[str, float] = {}
        self._created_at_s: dict[str, float] = {}
        self._torn_since_s: dict[str, float] = {}
        self._broken_gangs: set[str] = set()
        self._waits: dict[str, _Wait] = {}
        self._unexplained: dict[str, str] = {}
        self.nodes = Collection(client, clock, paths.NODES, self._node_changed)
        self.pods = Collection(client, clock, paths.PODS, self._pod_changed)

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[Referee]:
        """Watch and look while the block runs."""
        async with self.nodes.watching(), self.pods.watching():
            task = asyncio.ensure_future(self._look_for_ever())
            try:
                yield self
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def count_everything(self) -> None:
        """Count over fresh lists; called when an accident is over."""
        pods = await items(self._client, paths.PODS)
        ours = [pod for pod in pods if not is_foreign(pod)]
        self.verdict.counts["full counts"] += 1
        for fault in over_allocated(self._in_full.values(), ours):
            self.verdict.over_allocated.append(f"count of everything: {fault}")

    async def explain(self) -> None:
        """Call pods lost of which nobody says why they went; where the watch was down, the events tell; called last."""
        for event in await items(self._client, paths.events(self._namespace)):
            uid = event["regarding"].get("uid", "")
            if event["reason"] in _SENT_AWAY and self._unexplained.pop(uid, ""):
                self.verdict.counts[f"went unseen: {event['reason']}"] += 1
        self.verdict.lost += self._unexplained.values()

    # -- events --------------------------------------------------------------------------------------------------

    def _node_changed(self, before: Object | None, after: Object | None) -> None:
        if after is None:
            return
        name, now_s = after["metadata"]["name"], self._clock.monotonic_s()
        full = self._in_full.get(name)
        if full is None or _cards(after) > _cards(full):
            self._in_full[name] = copy.deepcopy(after)
            self._in_full[name]["status"]["allocatable"] = after["status"]["capacity"]
        self._versions.setdefault(name, deque(maxlen=40)).append((now_s, after))

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        counts, now_s = self.verdict.counts, self._clock.monotonic_s()
        if after is None:
            self._gone(before or {})
            return
        uid = after["metadata"]["uid"]
        if before is None:
            self._created_at_s[uid] = now_s
            counts["pods seen"] += 1
        if node_of(after) and not (before and node_of(before)):
            self._bound_at_s[uid] = now_s
            counts["bindings"] += 1
            if not is_foreign(after):
                self.verdict.created_to_bound_s.append(now_s - self._created_at_s.get(uid, now_s))
                self._judge(after, now_s)

    def _judge(self, pod: Object, now_s: float) -> None:
        node, uid = node_of(pod), pod["metadata"]["uid"]
        versions = list(self._versions.get(node, ()))
        late = [obj for at_s, obj in versions if at_s >= now_s - _RACE_S]
        known = [obj for at_s, obj in versions if at_s < now_s - _RACE_S][-1:] + late
        residents = [
            one
            for one in self.pods.objects.values()
            if node_of(one) == node and one["metadata"]["uid"] != uid and not is_over(one)
        ]
        wrong = wrong_with(pod, residents, known)
        if not wrong:
            return
        settled = [
            one
            for one in residents
            if not is_foreign(one) or self._bound_at_s.get(one["metadata"]["uid"], 0.0) < now_s - _RACE_S
        ]
        if len(settled) < len(residents) and not wrong_with(pod, settled, known):
            self.verdict.counts["raced by a stranger"] += 1
            return
        self.verdict.over_allocated += [f"{_name(pod)} bound to {node}: {fault}" for fault in wrong]

    def _gone(self, pod: Object) -> None:
        uid, counts = pod["metadata"]["uid"], self.verdict.counts
        self._waits.pop(uid, None)
        if mark(pod, "gang"):
            self._broken_gangs.add(mark(pod, "gang"))
        if self._is_ours(uid) or pod["metadata"]["namespace"] != self._namespace:
            return
        disrupted = next(
            (c for c in pod.get("status", {}).get("conditions", []) if c["type"] == "DisruptionTarget"), None
        )
        if disrupted is not None:
            counts[f"went: {disrupted['reason']}"] += 1
        elif pinned_node(pod) and not node_of(pod):
            counts["went: pin repaired"] += 1
        elif node_of(pod) and node_of(pod) not in {one["metadata"]["name"] for one in self.nodes.objects.values()}:
            counts["went: with its node"] += 1
        else:
            self._unexplained[uid] = f"{_name(pod)} on {node_of(pod) or 'no node'} is gone"

    # -- looks ---------------------------------------------------------------------------------------------------

    async def _look_for_ever(self) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            if self.nodes.is_current and self.pods.is_current and self._serves():
                self._look()
            else:
                self._waits.clear()
                self._torn_since_s.clear()

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        self.verdict.counts["looks"] += 1
        pods = list(self.pods.objects.values())
        waiting = [pod for pod in pods if not node_of(pod) and not is_over(pod) and not _is_going(pod)]
        free = free_by_node(self.nodes.objects.values(), pods)
        gangs: dict[str, list[Object]] = {}
        for pod in waiting:
            gang = mark(pod, "gang")
            if gang:
                gangs.setdefault(gang, []).append(pod)
            elif pinned_node(pod) in free and pinned_node(pod):
                self._served(f"pinned {_name(pod)}", "pinned", {pinned_node(pod): 1}, 1, pod, now_s)
            elif is_judged(pod) and not note(pod, "seat"):
                room = {name: n for name, left in free.items() if (n := fits(shape_of(pod), left))}
                kind = "gated" if is_gated(pod) else "steered or handed over"
                self._served(f"{kind} {_name(pod)}", kind, room, 1, pod, now_s)
        for gang, members in gangs.items():
            needed = int(mark(members[0], "gang-size"))
            if gang not in self._broken_gangs and len(members) == needed and not any(note(p, "seat") for p in members):
                shape: Shape = shape_of(members[0])
                room = {name: n for name, left in free.items() if (n := fits(shape, left))}
                self._served(f"gang {gang}", "gang", room, needed, members[0], now_s)
        here = {_name(pod) for pod in waiting} | {f"{gang}" for gang in gangs}
        for key in [key for key in self._waits if key.rpartition(" ")[2] not in here]:
            del self._waits[key]
        self._look_at_gangs(pods, now_s)

    def _served(self, key: str, kind: str, room: dict[str, int], needed: int, pod: Object, now_s: float) -> None:
        """Note who could be served by nodes that had room for him at every look since some time."""
        wait = self._waits.setdefault(key, _Wait())
        wait.by_node = {name: wait.by_node.get(name, now_s) for name in room}
        since = sorted((at_s, room[name]) for name, at_s in wait.by_node.items())
        found = 0
        for at_s, many in since:
            found += many
            if found >= needed:
                fitting_s = now_s - at_s
                longest = self.verdict.longest_fitting_s
                longest[kind] = round(max(longest.get(kind, 0.0), fitting_s), 2)
                if fitting_s > STUCK_S and not wait.is_told:
                    wait.is_told = True
                    where = ", ".join(sorted(wait.by_node)[:4])
                    self.verdict.stuck.append(f"{key} waits {fitting_s:.1f} s though {where} had room: {_says(pod)}")
                return

    def _look_at_gangs(self, pods: list[Object], now_s: float) -> None:
        torn = {
            gang: text
            for gang, text in torn_gangs(one for one in pods if not is_over(one)).items()
            if gang not in self._broken_gangs
        }
        self._torn_since_s = {gang: self._torn_since_s.get(gang, now_s) for gang in torn}
        for gang, since_s in self._torn_since_s.items():
            longest = self.verdict.longest_fitting_s
            longest["partly seated gang"] = round(max(longest.get("partly seated gang", 0.0), now_s - since_s), 2)
            if now_s - since_s > STUCK_S and not any(gang in told for told in self.verdict.torn):
                self.verdict.torn.append(f"{torn[gang]} for {now_s - since_s:.1f} s")


def is_foreign(pod: Object) -> bool:
    """Return whether a pod is a stranger's: bound past everybody by the bench itself."""
    return FOREIGN in (pod["metadata"].get("labels") or {})


def _cards(node: Object) -> int:
    return int(node["status"].get("capacity", {}).get("nvidia.com/gpu", "0"))


def _is_going(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _says(pod: Object) -> str:
    conditions: list[dict[str, Any]] = pod.get("status", {}).get("conditions", [])
    told = [f"{one['type']}={one['status']} {one.get('reason', '')} {one.get('message', '')}" for one in conditions]
    return "; ".join(told)[:300]
