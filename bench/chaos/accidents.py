"""Everything that breaks: processes killed or stopped, watches lost, nodes and devices gone, CPU taken by strangers."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import msgspec

from bench.chaos.load import POOL, Load
from bench.chaos.planners import Planners
from bench.chaos.referee import Referee
from bench.chaos.seen import Object
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import API, EXTENDER
from fleet import labels
from fleet.clock import Clock
from fleet.errors import BerthmasterError, Conflict, NotFound
from fleet.kube import paths
from fleet.kube.client import Client

SCHEDULER, MANAGER = "kube-scheduler", "kube-controller-manager"
_SETTLE_S: Final = 2.0
_LONGEST_TAKEOVER_S: Final = 60.0
_POLL_S: Final = 0.2
_STRANGERS: Final = (1, 8)


class Accidents:
    """One accident after the other, each kind once before any a second time.

    Args:
        cluster: With the extender; its planner is one of `planners`.
        planners: Both run.
        client: As the administrator.
        clock: To wait on.
        draw: Of everything random.
        load: Whose strangers come and go.

    Attributes:
        done: (seconds since the first, what happened).
        takeovers_s: How long nobody led, each time.
    """

    def __init__(
        self, cluster: Cluster, planners: Planners, client: Client, clock: Clock, draw: random.Random, load: Load
    ) -> None:
        self.done: list[tuple[float, str]] = []
        self.takeovers_s: list[float] = []
        self._cluster = cluster
        self._planners = planners
        self._client = client
        self._clock = clock
        self._draw = draw
        self._load = load
        self._missing: set[str] = set()
        self._healing: set[asyncio.Task[None]] = set()
        self._wounded: set[str] = set()
        self._began_s = clock.monotonic_s()

    def serves(self) -> bool:
        """Return whether nobody is away who is needed to place pods."""
        return not self._missing

    @property
    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return every kind of accident by name."""
        return {
            "leader killed": self.leader_killed,
            "leader stopped for a while": self.leader_stopped,
            "both planners killed": self.both_killed,
            "follower killed": self.follower_killed,
            "extender killed": lambda: self._killed(EXTENDER),
            "kube-scheduler killed": lambda: self._killed(SCHEDULER),
            "API server killed": self.api_killed,
            "controller manager killed": lambda: self._killed(MANAGER),
            "node vanishes and comes back smaller": self.node_reborn,
            "several nodes vanish": self.nodes_reborn,
            "device dies": self.device_dies,
            "node is cordoned": self.node_cordoned,
            "strangers take CPU by the default profile": lambda: self.strangers(is_direct=False),
            "strangers are bound past everybody": lambda: self.strangers(is_direct=True),
        }

    async def run(self, referee: Referee, every_s: float, stop_at_s: float, *, names: list[str] | None = None) -> None:
        """Let accidents happen until a time, and have everything counted after each."""
        self._nodes = referee.nodes.objects
        waiting: list[str] = []
        while self._clock.monotonic_s() < stop_at_s:
            await self._clock.sleep(every_s * self._draw.uniform(0.6, 1.4))
            if not waiting:
                waiting = list(names or self.kinds)
                self._draw.shuffle(waiting)
            name = waiting.pop()
            self.done.append((round(self._clock.monotonic_s() - self._began_s, 1), name))
            await self.kinds[name]()
            await self._clock.sleep(_SETTLE_S)
            await self._counted(referee)

    async def _counted(self, referee: Referee) -> None:
        while True:
            try:
                await referee.count_everything()
            except BerthmasterError:
                await self._clock.sleep(_POLL_S)
            else:
                return

    async def heal(self) -> None:
        """Wait until every node is whole again, and start whoever does not run."""
        await asyncio.gather(*self._healing, return_exceptions=True)
        for name in (API, SCHEDULER, EXTENDER, MANAGER):
            await asyncio.to_thread(self._cluster.start, name)
        await asyncio.to_thread(self._planners.start)

    # -- processes -----------------------------------------------------------------------------------------------

    async def leader_killed(self) -> None:
        """Kill the leader; the follower takes over."""
        holder, _, pid = await self._planners.leader(self._client)
        await self._leaderless(holder, [pid] if pid else [])

    async def both_killed(self) -> None:
        """Kill both planners, and start both again."""
        holder, _, _ = await self._planners.leader(self._client)
        await self._leaderless(holder, list(self._planners.pids()))

    async def follower_killed(self) -> None:
        """Kill the planner that does not lead."""
        _, _, leader = await self._planners.leader(self._client)
        for pid in self._planners.pids():
            if pid != leader:
                await asyncio.to_thread(self._planners.send, pid, signal.SIGKILL)
        await asyncio.to_thread(self._planners.start)

    async def leader_stopped(self) -> None:
        """Stop the leader's process, shorter or longer than a lease, and let it go on: it must not write any more."""
        _, _, pid = await self._planners.leader(self._client)
        if pid is None:
            return
        with self._away("leader"):
            self._planners.send(pid, signal.SIGSTOP)
            try:
                await self._clock.sleep(self._draw.choice((2.0, 6.0, 20.0)))
            finally:
                self._planners.send(pid, signal.SIGCONT)
            await self._led()

    async def _leaderless(self, holder: str, pids: list[int]) -> None:
        with self._away("leader"):
            began_s = self._clock.monotonic_s()
            for pid in pids:
                await asyncio.to_thread(self._planners.send, pid, signal.SIGKILL)
            await self._clock.sleep(self._draw.uniform(0.0, 2.0))
            await asyncio.to_thread(self._planners.start)
            await self._led(besides=holder)
            self.takeovers_s.append(round(self._clock.monotonic_s() - began_s, 1))

    async def _led(self, *, besides: str = "") -> None:
        """Wait until somebody leads: another one than `besides`, or anybody who renews the lease."""
        deadline_s = self._clock.monotonic_s() + _LONGEST_TAKEOVER_S
        first = ""
        while self._clock.monotonic_s() < deadline_s:
            with contextlib.suppress(BerthmasterError):
                holder, version, _ = await self._planners.leader(self._client)
                first = first or version
                if holder and ((besides and holder != besides) or (not besides and version != first)):
                    return
            await self._clock.sleep(_POLL_S)

    async def _killed(self, name: str) -> None:
        with self._away(name) if name != MANAGER else contextlib.nullcontext():
            await asyncio.to_thread(self._cluster.kill, name)
            await self._clock.sleep(self._draw.uniform(0.0, 2.0))
            await asyncio.to_thread(self._cluster.start, name)

    async def api_killed(self) -> None:
        """Kill the API server: every watch is lost, every write under way unanswered."""
        with self._away(API):
            await asyncio.to_thread(self._cluster.kill, API)
            await self._clock.sleep(self._draw.uniform(0.0, 3.0))
            await asyncio.to_thread(self._cluster.start, API)
            await self._led()

    @contextlib.contextmanager
    def _away(self, name: str) -> Iterator[None]:
        self._missing.add(name)
        try:
            yield
        finally:
            self._missing.discard(name)

    # -- nodes ---------------------------------------------------------------------------------------------------

    async def node_reborn(self) -> None:
        """Delete a node under its pods; it comes back with fewer devices, and later with all."""
        self._heal_later(self._reborn(self._victim()))

    async def nodes_reborn(self) -> None:
        """The same for three at once."""
        for _ in range(3):
            self._heal_later(self._reborn(self._victim()))

    async def device_dies(self) -> None:
        """Let one device of a node die, as its device plugin and its health's annotation would show it; it heals."""
        self._heal_later(self._sick(self._victim()))

    async def node_cordoned(self) -> None:
        """Cordon a node for a while."""
        self._heal_later(self._cordoned(self._victim()))

    async def strangers(self, *, is_direct: bool) -> None:
        """Let others take most of the CPU of a few nodes for a while."""
        names = [node["metadata"]["name"] for node in self._nodes.values()]
        for _ in range(self._draw.randint(*_STRANGERS)):
            with contextlib.suppress(BerthmasterError):
                await self._load.stranger(
                    self._draw.choice(names), self._draw.choice((2000, 8000)), is_direct=is_direct
                )
        self._heal_later(self._strangers_go())

    def _victim(self) -> Object:
        whole = [node for node in self._nodes.values() if node["metadata"]["name"] not in self._wounded]
        node = copy.deepcopy(self._draw.choice(sorted(whole, key=lambda one: str(one["metadata"]["name"]))))
        self._wounded.add(node["metadata"]["name"])
        return node

    def _heal_later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._healing.add(task)
        task.add_done_callback(self._healing.discard)

    async def _reborn(self, node: Object) -> None:
        name = node["metadata"]["name"]
        await self._surely(lambda: self._client.delete(paths.node(name)))
        await self._clock.sleep(self._draw.uniform(0.5, 12.0))
        cards = int(node["status"]["capacity"][labels.NVIDIA_GPU])
        smaller = _newborn(node, max(1, cards - self._draw.randint(1, 2)))
        await self._surely(lambda: self._client.create(paths.NODES, msgspec.json.encode(smaller)))
        await self._clock.sleep(self._draw.uniform(8.0, 25.0))
        await self._patched(name, {"labels": {labels.GPU_COUNT: str(cards)}}, cards, cards)
        self._wounded.discard(name)

    async def _sick(self, node: Object) -> None:
        name, cards = node["metadata"]["name"], int(node["status"]["capacity"][labels.NVIDIA_GPU])
        dead = str(self._draw.randrange(cards))
        await self._patched(name, {"annotations": {labels.UNHEALTHY_DEVICES: dead}}, cards, cards - 1)
        await self._clock.sleep(self._draw.uniform(8.0, 25.0))
        await self._patched(name, {"annotations": {labels.UNHEALTHY_DEVICES: None}}, cards, cards)
        self._wounded.discard(name)

    async def _cordoned(self, node: Object) -> None:
        name = node["metadata"]["name"]
        for is_closed in (True, None):
            body = msgspec.json.encode({"spec": {"unschedulable": is_closed}})
            await self._surely(lambda body=body: self._client.merge_patch(paths.node(name), body))  # type: ignore[misc]
            if is_closed:
                await self._clock.sleep(self._draw.uniform(5.0, 15.0))
        self._wounded.discard(name)

    async def _strangers_go(self) -> None:
        await self._clock.sleep(self._draw.uniform(6.0, 20.0))
        await self._surely(self._load.strangers_go)

    async def _patched(self, name: str, metadata: Object, capacity: int, allocatable: int) -> None:
        amounts = {"capacity": {labels.NVIDIA_GPU: str(capacity)}, "allocatable": {labels.NVIDIA_GPU: str(allocatable)}}
        meta, status = msgspec.json.encode({"metadata": metadata}), msgspec.json.encode({"status": amounts})
        await self._surely(lambda: self._client.merge_patch(paths.node(name), meta))
        await self._surely(lambda: self._client.merge_patch(f"{paths.node(name)}/status", status))

    async def _surely(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do something until the API server has taken it."""
        while True:
            try:
                await work()
            except (Conflict, NotFound):
                return
            except BerthmasterError:
                await self._clock.sleep(_POLL_S)
            else:
                return


def _newborn(node: Object, cards: int) -> Object:
    """Return the node as a machine of the same name with so many devices would register."""
    meta, status = node["metadata"], node["status"]
    amounts = {**status["capacity"], labels.NVIDIA_GPU: str(cards)}
    notes = {name: text for name, text in meta["annotations"].items() if name != labels.UNHEALTHY_DEVICES}
    assert POOL in meta["labels"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": meta["name"],
            "labels": {**meta["labels"], labels.GPU_COUNT: str(cards)},
            "annotations": notes,
        },
        "status": {**status, "capacity": amounts, "allocatable": amounts},
    }
