"""One endpoint with real traffic in a local cluster: HAProxy, its exporter, replica processes, Deployment, autoscaler.

The scaler runs in the cluster (`berthmaster up`) and finds the exporter at the port that the cluster keeps for it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from berthmaster.local import ports
from berthmaster.local.cluster import Cluster
from berthmaster.local.components import BALANCER, EXPORTER, SCALER
from berthmaster.traffic.haproxy import BackendPlan, HaproxyProcess
from berthmaster.traffic.kubelet import Kubelet
from berthmaster.traffic.objects import IMAGE, autoscaler, deployment, namespace
from berthmaster.traffic.slots import SlotKeeper
from fleet.clock import Clock
from fleet.errors import ApiError, Conflict, LocalClusterError, NotFound
from fleet.kube import paths
from fleet.kube.client import Client

_EXPORTER_S = 20.0
_GONE_S = 60.0
_PORT = "traffic"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPlan:
    """One endpoint.

    Attributes:
        name: Of Deployment, autoscaler and backend.
        namespace: Made if it is not there.
        profile: How long its requests take; see berthmaster/traffic/profiles.py.
        replicas: At first.
        start_delay_s: From a replica's start to Ready.
        limit: Requests in progress per replica until the learnt one is known.
        slots: Most replicas.
        spec: Of the autoscaler, where it differs from the usual.
        is_managed: Whether Berthmaster's planner places its pods.
        requests: Of one replica, beside a little CPU and memory.
        node_selector: Labels of the nodes that may take them.
        image: Of its container; never pulled.
    """

    name: str
    namespace: str
    profile: str = "cpu"
    replicas: int = 1
    start_delay_s: float = 3.0
    limit: int = 8
    slots: int = 64
    spec: dict[str, Any] = field(default_factory=dict)
    is_managed: bool = False
    requests: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    image: str = IMAGE


class Ground:
    """Stands for the life of an `async with` block.

    Attributes:
        balancer: The HAProxy.
        kubelet: Who runs the replicas.
    """

    def __init__(self, local: Cluster, client: Client, clock: Clock, directory: Path, plan: EndpointPlan) -> None:
        self._local = local
        self._client = client
        self._clock = clock
        self._directory = directory
        self._plan = plan
        self._stack = AsyncExitStack()
        self.balancer = HaproxyProcess(
            directory,
            ports.choose([_PORT], promised=())[_PORT],
            [BackendPlan(name=plan.name, slots=plan.slots, limit=plan.limit)],
            clock=clock,
        )
        self.kubelet = Kubelet(
            client,
            clock,
            plan.namespace,
            SlotKeeper(self.balancer.runtime, plan.name),
            profile=plan.profile,
            start_delay_s=plan.start_delay_s,
            log=directory / "replicas.log",
        )

    @property
    def url(self) -> str:
        """Return where requests for the endpoint go."""
        return f"{self.balancer.url}/{self._plan.name}/predict"

    @property
    def autoscaler_path(self) -> str:
        """Return the API path of the autoscaler."""
        return paths.autoscalers(self._plan.namespace, self._plan.name)

    @property
    def deployment_path(self) -> str:
        """Return the API path of the Deployment."""
        return f"{self._collection}/{self._plan.name}"

    async def __aenter__(self) -> Self:
        """Start everything; on return the first replicas serve.

        Raises:
            LocalClusterError: A part did not start, or the cluster runs no scaler.
            ApiError: The API server refused an object.
        """
        await self._stack.__aenter__()
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def _start(self) -> None:
        plan = self._plan
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._stack.enter_async_context(self.balancer)
        await self._start_exporter()
        running = asyncio.ensure_future(self.kubelet.run())
        self._stack.push_async_callback(_cancelled, running)
        # Callbacks run in reverse: the objects go first, while there still is a kubelet that lets their pods finish.
        self._stack.push_async_callback(self._remove_objects)
        with suppress(Conflict):
            made_namespace = namespace(plan.namespace, is_managed=plan.is_managed)
            await self._client.create("/api/v1/namespaces", msgspec.json.encode(made_namespace))
        made = deployment(
            plan.name,
            plan.namespace,
            replicas=plan.replicas,
            requests=plan.requests,
            node_selector=plan.node_selector,
            image=plan.image,
        )
        await self._client.create(self._collection, msgspec.json.encode(made))
        scaled = autoscaler(plan.name, plan.namespace, balancer=BALANCER, backend=plan.name, spec=plan.spec)
        await self._client.create(paths.autoscalers(plan.namespace), msgspec.json.encode(scaled))
        await self._until(lambda: self.kubelet.serving >= plan.replicas, 60.0 + plan.start_delay_s, "replicas")

    async def _start_exporter(self) -> None:
        record = self._local.record()
        if record is None or EXPORTER not in record.ports:
            raise LocalClusterError(f"cluster {self._local.name} keeps no port for an exporter: it runs no scaler")
        config = self._local.layout.config
        log = self._stack.enter_context((self._directory / "exporter.log").open("ab"))
        process = self._spawn_exporter(record.ports[EXPORTER], config / f"{SCALER}.kubeconfig", log)
        self._stack.callback(_ended, process)

        async def answers() -> bool:
            if process.poll() is not None:
                said = (self._directory / "exporter.log").read_text(errors="replace")[-600:]
                raise LocalClusterError(f"the exporter ended: {said.strip()}")
            return await _listens(record.ports[EXPORTER])

        deadline_s = self._clock.monotonic_s() + _EXPORTER_S
        while not await answers():
            if self._clock.monotonic_s() > deadline_s:
                raise LocalClusterError(f"the exporter did not listen within {_EXPORTER_S:.0f} s")
            await self._clock.sleep(0.1)

    def _spawn_exporter(self, port: int, kubeconfig: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                "-P",  # the folder that the command was typed in must not shadow the package
                "-m",
                "scaler",
                "exporter",
                f"--socket={self.balancer.runtime_path}",
                f"--name={BALANCER}",
                f"--listen=127.0.0.1:{port}",
                f"--log-socket={self.balancer.log_path}",
                f"--kubeconfig={kubeconfig}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    async def _remove_objects(self) -> None:
        """Delete autoscaler and Deployment and wait until the last replica has finished."""
        for path in (self.autoscaler_path, self.deployment_path):
            with suppress(NotFound, ApiError):
                await self._client.delete(path)
        with suppress(LocalClusterError):
            await self._until(lambda: not self.kubelet.pods, _GONE_S, "replicas to end")

    async def _until(self, holds: Any, most_s: float, what: str) -> None:
        deadline_s = self._clock.monotonic_s() + most_s
        while not holds():
            if self._clock.monotonic_s() > deadline_s:
                raise LocalClusterError(f"waited {most_s:.0f} s for {what} of {self._plan.name}")
            await self._clock.sleep(0.1)

    @property
    def _collection(self) -> str:
        return f"/apis/apps/v1/namespaces/{self._plan.namespace}/deployments"


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


async def _cancelled(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
