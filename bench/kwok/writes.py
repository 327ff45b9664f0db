"""What the writes of one pod's way cost the API server: processor time a pod, nothing else running beside it and etcd.

    python -m bench.kwok.writes                        # 10 rounds of 300 pods
    python -m bench.kwok.writes --rounds 3 --pods 100

A round creates pods in a namespace that is not managed, creates as many in one that is (they come gated), and writes
our pins to these, as the planner would: its account, its client, its patch. The three alternate, so that whoever shares
the machine shares it with all; printed are medians and the least. Times are the processes' own, from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table

from bench.kwok import load, proc
from bench.kwok.ground import Ground
from berthmaster.demo.replay import items
from berthmaster.local.binaries import ensure
from berthmaster.local.components import API, PLANNER, STORE
from berthmaster.local.progress import Lines
from berthmaster.options import run
from fleet.clock import SystemClock
from fleet.errors import BerthmasterError
from fleet.kube import paths
from fleet.kube.client import Client
from fleet.kube.credentials import connection
from fleet.kube.decode import pod_from
from fleet.kube.objects import PodObject
from fleet.kube.patches import pin_patch
from fleet.pod import Berth, Pod

NODE = "node-0"
_IN_FLIGHT = 16
_PLAIN, _MANAGED = "writes-plain", "writes-managed"
_WATCHED = (API, STORE)

T = TypeVar("T")
Spent = dict[str, list[dict[str, float]]]


def main() -> int:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.kwok.writes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10, help="counted ones, after one to warm up (10)")
    parser.add_argument("--pods", type=int, default=300, help="of one round (300)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    clock = SystemClock()
    report = Lines(lambda text: click.echo(text, nl=False, err=True), clock)
    with Ground(1, ensure(report, clock=clock), clock, report).standing() as ground:
        pids = {name: ground.families()[name][0] for name in _WATCHED}
        with report.step(f"{given.rounds} rounds of {given.pods} pods"):
            spent = run(_measure(ground, clock, pids, rounds=given.rounds, pods=given.pods))
    console = Console()
    (console if console.is_terminal else Console(width=120)).print(_table(spent))
    return 0


async def _measure(ground: Ground, clock: SystemClock, pids: dict[str, int], *, rounds: int, pods: int) -> Spent:
    """Return milliseconds of each process a pod, of every counted round, by what was written."""
    spent: Spent = {}
    planner = connection(str(ground.cluster.layout.config / f"{PLANNER}.kubeconfig"), clock=clock)
    async with (
        Client(ground.access, clock, user_agent="bench-kwok") as admin,
        Client(planner, clock, user_agent="bench-kwok") as ours,
    ):
        owner = {name: await load.prepare(admin, name, is_managed=name == _MANAGED) for name in (_PLAIN, _MANAGED)}
        for turn in range(rounds + 1):
            found = spent if turn else {}
            for namespace, title in ((_PLAIN, "create"), (_MANAGED, "create, gated")):
                wanted = [load.pod_object(f"p-{turn}-{i}", namespace, owner[namespace]) for i in range(pods)]
                with _counted(found, title, pids, pods):
                    await load.create(admin, wanted)
            gated = [_read(obj) for obj in await items(admin, f"/api/v1/namespaces/{_MANAGED}/pods")]
            patches = [(paths.pod(pod.namespace, pod.name), pin_patch(pod, Berth(node=NODE))) for pod in gated]
            with _counted(found, "pin", pids, pods):
                await _at_once(patches, lambda patch: ours.json_patch(*patch))
            for namespace in (_PLAIN, _MANAGED):
                await load.clear(admin, clock, namespace)
    return spent


def _read(obj: object) -> Pod:
    return pod_from(msgspec.convert(obj, PodObject))


async def _at_once(things: Iterable[T], work: Callable[[T], Awaitable[object]]) -> None:
    rest = iter(things)

    async def one() -> None:
        for thing in rest:
            await work(thing)

    await asyncio.gather(*(one() for _ in range(_IN_FLIGHT)))


@contextmanager
def _counted(spent: Spent, title: str, pids: dict[str, int], pods: int) -> Iterator[None]:
    before = {name: proc.cpu_s(pid) for name, pid in pids.items()}
    yield
    parts = {name: 1000.0 * (proc.cpu_s(pid) - before[name]) / pods for name, pid in pids.items()}
    spent.setdefault(title, []).append(parts)


def _table(spent: Spent) -> Table:
    table = Table(
        "ms of processor time a pod", *(f"{name}, {what}" for name in _WATCHED for what in ("median", "least"))
    )
    for title, rounds in spent.items():
        columns = [[parts[name] for parts in rounds] for name in _WATCHED]
        table.add_row(title, *(f"{value:.2f}" for column in columns for value in (median(column), min(column))))
    return table


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BerthmasterError as error:
        click.echo(f"bench.kwok.writes: {error}", err=True)
        sys.exit(1)
