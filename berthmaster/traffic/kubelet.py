"""The kubelet of pods that are processes here: starts one for each, says when it is Ready, lets it finish and go.

Drain before delete: a leaving pod's slot is drained first, its process ends when the balancer counts nothing on it any
more, and only then does the pod object go. That is what a preStop hook and a grace period do on a real node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from berthmaster.traffic.objects import ServedPod, running
from berthmaster.traffic.process import ReplicaProcess
from berthmaster.traffic.slots import SlotKeeper
from fleet.clock import Clock
from fleet.condition import stamp
from fleet.errors import ApiError, DecodeError, LocalClusterError, NotFound
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.reflector import Reflector
from scaler.balancer.socket import SocketError

_log = logging.getLogger(__name__)

_TURN_S = 0.2


@dataclass(slots=True)
class _Held:
    """A pod and its process."""

    pod: ServedPod
    process: ReplicaProcess | None = None
    is_ready: bool = False
    is_told_ready: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        return self.task is not None and not self.task.done()


class Kubelet:
    """Runs for the pods of one namespace, one balancer backend.

    Attributes:
        started: Processes started so far.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        keeper: SlotKeeper,
        *,
        profile: str,
        start_delay_s: float,
        log: Path,
        seed: int = 0,
    ) -> None:
        self.started = 0
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._keeper = keeper
        self._profile = profile
        self._start_delay_s = start_delay_s
        self._log = log
        self._seed = seed
        self._held: dict[str, _Held] = {}
        self._hosts = _loopback_hosts()

    def upsert(self, obj: ServedPod) -> None:
        """Take a pod as it is now."""
        if not obj.is_ours:
            return
        held = self._held.get(obj.metadata.uid)
        if held is not None:
            held.pod = obj
        elif obj.spec.node_name:
            self._held[obj.metadata.uid] = _Held(pod=obj)

    def delete(self, obj: ServedPod) -> None:
        """Take note that a pod is gone: its process, if any is left, goes with the next turn."""
        held = self._held.get(obj.metadata.uid)
        if held is not None:
            held.pod = obj
            held.pod.metadata.deletion_timestamp = held.pod.metadata.deletion_timestamp or "gone"

    def synced(self) -> None:
        """Nothing to do: each pod is looked at on its own."""

    @property
    def serving(self) -> int:
        """Return how many replicas answer and may be sent requests."""
        return sum(held.is_ready and not held.pod.is_leaving for held in self._held.values())

    @property
    def pods(self) -> int:
        """Return how many pods are held: starting, serving and finishing."""
        return len(self._held)

    async def run(self) -> None:
        """Turn until cancelled; then end every process."""
        watch = Reflector(self._client, self._clock, paths.pods(self._namespace), ServedPod, self)
        watching = asyncio.ensure_future(watch.run())
        try:
            while True:
                await self._turn()
                await self._clock.sleep(_TURN_S)
        finally:
            watching.cancel()
            async with AsyncExitStack() as stack:
                for held in self._held.values():
                    if held.task is not None:
                        held.task.cancel()
                    if held.process is not None:
                        stack.push_async_callback(held.process.kill)
            with suppress(asyncio.CancelledError):
                await watching

    async def _turn(self) -> None:
        wanted = {
            held.process.address
            for held in self._held.values()
            if held.process is not None and held.is_ready and not held.pod.is_leaving
        }
        try:
            turn = await self._keeper.turn(wanted)
        except (SocketError, DecodeError, KeyError) as error:
            # The balancer is restarting: nothing may end before it says what is in progress.
            _log.warning("the balancer did not answer: %s", error)
            return
        for uid, held in list(self._held.items()):
            if held.is_busy:
                continue
            if held.pod.is_leaving:
                if held.process is None or not turn.holds(held.process.address):
                    held.task = asyncio.ensure_future(self._end(uid, held))
            elif held.process is None:
                held.task = asyncio.ensure_future(self._start(held))
            elif not held.is_told_ready:
                held.task = asyncio.ensure_future(self._probe(held))

    async def _start(self, held: _Held) -> None:
        self.started += 1
        with self._log.open("ab") as log:
            try:
                held.process = await ReplicaProcess.start(
                    host=next(self._hosts),
                    profile=self._profile,
                    start_delay_s=self._start_delay_s,
                    seed=self._seed + self.started,
                    log=log.fileno(),
                )
            except LocalClusterError as error:
                _log.warning("%s", error)
                return
        await self._tell(held, is_ready=False)

    async def _probe(self, held: _Held) -> None:
        assert held.process is not None
        held.is_ready = held.is_ready or await held.process.answers()
        if held.is_ready:
            held.is_told_ready = await self._tell(held, is_ready=True)

    async def _tell(self, held: _Held, *, is_ready: bool) -> bool:
        assert held.process is not None
        meta = held.pod.metadata
        at = stamp(self._clock.now_s())
        try:
            await self._client.merge_patch(
                paths.pod(meta.namespace, meta.name, "status"),
                running(held.pod, held.process.host, is_ready=is_ready, at=at),
            )
        except ApiError as error:
            # Told again with the next probe; a pod that is gone is ended by its deletion.
            _log.warning("status of pod %s not written: %s", meta.name, error)
            return False
        return True

    async def _end(self, uid: str, held: _Held) -> None:
        if held.process is not None:
            await (held.process.finish() if held.is_ready else held.process.kill())
            held.process = None
        meta = held.pod.metadata
        try:
            await self._client.delete(paths.pod(meta.namespace, meta.name), uid=uid, grace_s=0)
        except NotFound:
            pass
        except ApiError as error:
            _log.warning("pod %s not deleted: %s", meta.name, error)
            return
        self._held.pop(uid, None)


def _loopback_hosts() -> Iterator[str]:
    """Yield loopback addresses, one per replica: a balancer's server is matched to its pod by address."""
    return (f"127.77.{number // 250}.{number % 250 + 1}" for number in count())
