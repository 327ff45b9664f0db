"""The openb protocol's arrivals: which pods come, in which order, and which node wins ties.

Source: the run scripts and simulator of Weng et al., USENIX ATC 2023 (hkust-adsl/kubernetes-scheduler-simulator): pods
are sorted by name and shuffled; to reach the wanted demand, re-sampled pods follow until the next one's share of one
GPU would exceed it, or pods drawn at random are dropped while there are too many; node names are sorted and shuffled,
and equal scores go to the first. Differs: the generator is Python's, not Go's, so a seed names another sequence.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """One run's input.

    Attributes:
        pods: In order of arrival; re-sampled ones are named NAME-tuned-I.
        node_order: Node names; the first wins a tie of the published policies.
    """

    pods: tuple[Pod, ...]
    node_order: tuple[str, ...]


def arrivals(pods: Sequence[Pod], nodes: Iterable[str], capacity_milli_gpu: int, ratio: float, seed: int) -> Arrivals:
    """Return what arrives until the GPU demand reaches `ratio` of the capacity.

    Pods that ask no GPU at all cannot reach any ratio: they arrive once each.
    """
    generator = random.Random(seed)
    originals = sorted(pods, key=lambda pod: pod.name)
    order = list(originals)
    generator.shuffle(order)
    wanted = ratio * capacity_milli_gpu
    demand = sum(map(milli_gpu_of, order))
    if demand > wanted:
        while demand > wanted:
            demand -= milli_gpu_of(order.pop(generator.randrange(len(order))))
    elif demand > 0:
        order += _resampled(originals, wanted - demand, generator)
    names = sorted(nodes)
    generator.shuffle(names)
    return Arrivals(pods=tuple(order), node_order=tuple(names))


def _resampled(pods: Sequence[Pod], wanted: float, generator: random.Random) -> list[Pod]:
    found: list[Pod] = []
    while True:
        pod = generator.choice(pods)
        if pod.ask is not None and pod.ask.milli_gpu > wanted:
            return found
        wanted -= milli_gpu_of(pod)
        name = f"{pod.name}-tuned-{len(found)}"
        found.append(replace(pod, name=name, uid=name))


def milli_gpu_of(pod: Pod) -> int:
    """Return the milli-GPU a pod asks over all devices, 0 for a CPU-only one."""
    return pod.ask.total_milli_gpu if pod.ask is not None else 0


def class_of(pod: Pod) -> str:
    """Return the class that failed pods are counted by: 1gpu, 2gpu, ..., f>=600, f400-599, f<400 (shares), cpu."""
    ask = pod.ask
    if ask is None:
        return "cpu"
    if ask.is_whole:
        return f"{ask.count}gpu"
    if ask.milli_gpu >= 600:
        return "f>=600"
    return "f400-599" if ask.milli_gpu >= 400 else "f<400"
