"""A planner's world with a proposer of moves in it; what it asks for is kept, and nothing is written."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from binpack.config import MovesSettings
from binpack.controller.budget_feed import Budgets
from binpack.controller.metrics import PlannerMetrics
from binpack.controller.proposer import Proposer
from binpack.controller.waiting import WaitingRoom
from binpack.controller.world import World
from binpack.index import Index
from binpack.ledger import Ledger
from binpack.relocation.record import format_way
from binpack.relocation.ways import Scaler, Workload
from fleet.plan import Unplaced
from fleet.pod import Owner
from tests.support.builders import a_node, a_pod
from tests.support.clock import ManualClock

HPA = Scaler(kind="HorizontalPodAutoscaler", name="h")


class Mover:
    """Takes orders, and marks the pods: their moves then last for ever."""

    def __init__(self, see):
        self.orders = []
        self.refuses, self.refused = False, 0
        self._see = see

    async def begin(self, order):
        if self.refuses:
            self.refused += 1
            return False
        self.orders.append(order)
        self._see(replace(order.pod, moving_to=order.target, moving_by=format_way(order.way)))
        return True


class Workloads:
    """Every pod is a Deployment's; those named in `foreign` are scaled by somebody else."""

    def __init__(self):
        self.foreign = set()
        self.error = None
        self.answer = {}

    async def of(self, pod):
        if self.error is not None:
            raise self.error
        scalers = (HPA,) if pod.owner.name in self.foreign else ()
        counts = {"replicas": 2, "updated": 2, "ready": 2} | self.answer
        return Workload(kind="Deployment", name=pod.owner.name, scalers=scalers, **counts)


class Recorder:
    """Keeps what is said."""

    def __init__(self):
        self.said = []

    async def record(self, about, *, reason, note, is_warning, action="Planning"):
        self.said.append((about.name, reason, note))


class Yard:
    """A planner's world with nodes of two devices, and a proposer in it."""

    def __init__(self, nodes=2, *, solves=False, **settings):
        self.clock = ManualClock()
        self.meanwhile = []
        self.ledger = Ledger()
        self.world = World(self.ledger, Index(), WaitingRoom(hand_over_after_s=1e9), self.clock.monotonic_s)
        self.mover, self.workloads = Mover(self.see), Workloads()
        self.recorder, self.budgets = Recorder(), Budgets()
        self.budgets.is_known = True
        self.registry = CollectorRegistry()
        self.settings = MovesSettings(**({"mode": "act", "per_service": 9} | settings))
        self.proposer = Proposer(
            self.world,
            self.budgets,
            self.workloads,
            self.mover,
            self.recorder,
            self.clock,
            PlannerMetrics(self.registry),
            self.settings,
            solves=solves,
            aside=self.aside,
        )
        for number in range(nodes):
            self.ledger.set_node(a_node(f"n{number}", gpus=2, milli_cpu=64_000))
        self.world.refresh()

    async def aside(self, work, wall_s):
        """Work at once; a test may have something happen before the answer comes."""
        answer = work()
        while self.meanwhile:
            self.meanwhile.pop(0)()
        return answer

    def figure(self, name, **labels):
        return self.registry.get_sample_value(f"berthmaster_{name}", labels)

    def serve(self, name, node, device="0", service="rs"):
        pod = replace(
            a_pod(
                name, whole=1, node=node, devices=(device,), owner=Owner(kind="ReplicaSet", name=service, uid=service)
            ),
            is_ready=True,
        )
        self.see(pod)
        return pod

    def see(self, pod):
        self.ledger.set_pod(pod)
        self.world.pod_seen(pod)
        self.world.refresh()

    def forget(self, pod):
        self.ledger.remove_pod(pod.uid)
        self.world.pod_gone(pod.uid)
        self.world.refresh()

    def wait(self, *pods):
        for pod in pods:
            self.see(pod)
            self.world.queue.pop(pod.uid, None)
            answer = self.world.index.place(pod)
            assert isinstance(answer, Unplaced)
            self.world.wait(answer)

    async def turn(self, seconds=31.0):
        await self.clock.advance(seconds)
        await self.proposer.turn()

    def begun(self):
        return [order.pod.name for order in self.mover.orders]


def a_pair(name="big"):
    return a_pod(name, whole=2)
