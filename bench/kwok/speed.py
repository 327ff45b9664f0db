"""Created to bound: the two sides in turns on one cluster, each on the empty cluster, and the ratio of every pair."""

from __future__ import annotations

import itertools
from statistics import median
from typing import Any

from bench.kwok import load, proc
from bench.kwok.ground import GPUS_PER_NODE, SCHEDULER, STOCK_SCHEDULER, Ground, Side
from bench.kwok.rivals import kai_side
from berthmaster.demo.scrape import fetch, histogram_quantile
from berthmaster.local.components import EXTENDER, PLANNER
from berthmaster.local.progress import Report, Tell
from berthmaster.options import run
from fleet.clock import SystemClock
from fleet.kube.client import Client

FILTER_SECONDS = "berthmaster_extender_seconds"
# For the empty cluster, where everything is cheapest for a scheduler that looks at many nodes.
TARGETS = {1_000: 0.8, 5_000: 1.0}
KAI_TARGET = 5.0
CALM_P99_S = 3.0
_RESIDENTS = "bench-residents"
_SCHEDULING = (SCHEDULER, STOCK_SCHEDULER, EXTENDER, PLANNER, *kai_side.NAMES)
_SETTLE_S = 2.0


def compare(
    ground: Ground,
    clock: SystemClock,
    report: Report,
    *,
    pods: int,
    pairs: int,
    filled_ratio: float = 0.0,
    rival: Side = Side.STOCK,
) -> dict[str, Any]:
    """Return every run and the median ratio of pods/s, ours over the rival's.

    One run per side is discarded as warm-up; then the sides alternate, and so does who begins a pair.

    Args:
        ground: A cluster with no pods on it; it is left so.
        clock: To wait on.
        report: Where steps are shown.
        pods: Of one run.
        pairs: How many.
        filled_ratio: Share of the nodes that other pods, bound before, have all devices of.
        rival: The other side.
    """
    sides = (rival, Side.OURS)
    full = round(filled_ratio * ground.nodes)
    if full:
        with report.step(f"{ground.nodes} nodes: filling {full} of them") as tell:
            run(_fill(ground, clock, full, tell))
    numbers = itertools.count()
    for side in sides:
        _one(ground, clock, report, side, pods, f"warm-up {side.value}", next(numbers))
    runs: list[dict[str, Any]] = []
    for pair in range(pairs):
        order = sides if pair % 2 == 0 else sides[::-1]
        for side in order:
            title = f"pair {pair + 1} of {pairs}, {side.value}"
            runs.append({"pair": pair + 1} | _one(ground, clock, report, side, pods, title, next(numbers)))
    ratios = [_rate(runs, pair, Side.OURS) / _rate(runs, pair, rival) for pair in range(1, pairs + 1)]
    calm = None
    if rival is Side.STOCK and not full:
        rate = median(run["pods_per_s"] for run in runs if run["side"] == Side.OURS.value) / 2
        calm = _one(ground, clock, report, Side.OURS, pods, "at half the rate", next(numbers), rate_per_s=rate)
        calm |= {"created_per_s": round(rate, 1), "target_p99_s": CALM_P99_S, "is_reached": calm["p99_s"] < CALM_P99_S}
    target = KAI_TARGET if rival is Side.KAI else None if full else TARGETS.get(ground.nodes)
    if full:
        run(_clear(ground, clock, _RESIDENTS))
    return {
        "rival": rival.value,
        "nodes": ground.nodes,
        "full_nodes": full,
        "pods": pods,
        "ratio_pods_per_s": {"pairs": [round(ratio, 3) for ratio in ratios], "median": round(median(ratios), 3)},
        "target_ratio": target,
        "is_reached": None if target is None else median(ratios) >= target,
        "medians": {side.value: _medians([run for run in runs if run["side"] == side.value]) for side in sides},
        "at_half_the_rate": calm,
        "runs": runs,
    }


def _rate(runs: list[dict[str, Any]], pair: int, side: Side) -> float:
    return float(next(run["pods_per_s"] for run in runs if run["pair"] == pair and run["side"] == side.value))


def _medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    names = ("pods_per_s", "p50_s", "p99_s", "filter_p50_ms", "filter_p99_ms")
    found = {name: round(median(run[name] for run in runs), 3) for name in names if name in runs[0]}
    parts = [run["cpu_ms_per_pod"] for run in runs]
    scheduling = [sum(ms for name, ms in part.items() if name in _SCHEDULING) for part in parts]
    others = [sum(ms for name, ms in part.items() if name not in _SCHEDULING) for part in parts]
    return found | {
        "scheduling_cpu_ms_per_pod": round(median(scheduling), 2),
        "other_cpu_ms_per_pod": round(median(others), 2),
    }


def _one(
    ground: Ground,
    clock: SystemClock,
    report: Report,
    side: Side,
    pods: int,
    title: str,
    number: int,
    *,
    rate_per_s: float | None = None,
) -> dict[str, Any]:
    """Measure one side from the empty cluster, and leave the cluster empty and silent."""
    with report.step(f"{ground.nodes} nodes, {title}: starting"):
        ground.start(side)
        run(_first_pod(ground, clock, side))
        clock.sleep_blocking(_SETTLE_S)
    with report.step(f"{ground.nodes} nodes, {title}: {pods} pods") as tell:
        bound, spent_s, wrong = run(_load(ground, clock, side, pods, number, tell, rate_per_s))
    found = {
        "side": side.value,
        "pods_per_s": round(bound.pods_per_s, 2),
        "seconds": round(bound.seconds, 3),
        "p50_s": round(bound.latency_s(0.5), 3),
        "p99_s": round(bound.latency_s(0.99), 3),
        "faults": wrong,
        "cpu_ms_per_pod": {name: round(1000 * seconds / pods, 2) for name, seconds in spent_s.items()},
    }
    if side is Side.OURS:
        text = fetch(f"{ground.cluster.url(EXTENDER)}/metrics")
        p50, p99 = histogram_quantile(text, FILTER_SECONDS, {"verb": "filter"}, (0.5, 0.99))
        found |= {"filter_p50_ms": round(1000 * (p50 or 0), 3), "filter_p99_ms": round(1000 * (p99 or 0), 3)}
    report.note(
        f"  {found['pods_per_s']:.1f} pods/s, created to bound p50 {found['p50_s']:.2f} s, p99 {found['p99_s']:.2f} s"
    )
    with report.step(f"{ground.nodes} nodes, {title}: clearing"):
        ground.silence()
        run(_clear(ground, clock, side.namespace))
    return found


def _pod(name: str, side: Side, owner_uid: str) -> dict[str, Any]:
    if side is Side.KAI:
        # KAI makes one group of all pods of one owner; replicas of a Deployment it takes one by one, as here.
        return load.pod_object(name, side.namespace, "", scheduler=kai_side.SCHEDULER_NAME, marks=kai_side.QUEUE_LABEL)
    return load.pod_object(name, side.namespace, owner_uid)


def _cpu_s(ground: Ground) -> dict[str, float]:
    """Return processor time so far of every component with its children, by name, and of this process."""
    found = {name: sum(proc.cpu_s(pid) for pid in pids) for name, pids in ground.families().items()}
    return found | {"bench": proc.cpu_s(proc.OWN)}


async def _first_pod(ground: Ground, clock: SystemClock, side: Side) -> None:
    """Wait until the side has bound a pod: it is awake."""
    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        uid = await load.prepare(client, side.namespace, is_managed=side is Side.OURS)
        pod = _pod(f"first-{side.value}", side, uid)
        await load.place(client, clock, [pod], lambda ratio, words: None)
        await load.clear(client, clock, side.namespace)


async def _load(
    ground: Ground, clock: SystemClock, side: Side, pods: int, number: int, tell: Tell, rate_per_s: float | None
) -> tuple[load.Bound, dict[str, float], tuple[str, ...]]:
    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        uid = await load.prepare(client, side.namespace, is_managed=side is Side.OURS)
        wanted = [_pod(f"model-{number}-{i:05d}", side, uid) for i in range(pods)]
        before = _cpu_s(ground)
        bound = await load.place(client, clock, wanted, tell, rate_per_s=rate_per_s)
        spent_s = {name: after_s - before.get(name, 0.0) for name, after_s in _cpu_s(ground).items()}
        return bound, spent_s, await load.faults(client)


async def _fill(ground: Ground, clock: SystemClock, nodes: int, tell: Tell) -> None:
    """Give every device of the first nodes to one pod each, already bound."""
    done = 0

    def told(_: str) -> None:
        nonlocal done
        done += 1
        tell(done / nodes, f"{done} of {nodes}")

    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        uid = await load.prepare(client, _RESIDENTS, is_managed=False)
        wanted = (
            load.pod_object(f"on-{node}", _RESIDENTS, uid, gpus=GPUS_PER_NODE, node=node)
            for node in ground.node_names[:nodes]
        )
        await load.create(client, wanted, told)


async def _clear(ground: Ground, clock: SystemClock, namespace: str) -> None:
    async with Client(ground.access, clock, user_agent="bench-kwok") as client:
        await load.clear(client, clock, namespace)
