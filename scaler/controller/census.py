"""The pods of a workload and the count that was ordered, as the replicas that a decision is taken on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fleet import labels
from scaler.controller.pods import Pod
from scaler.seen import Fleet, Phase, Replica

# Anybody may write any count into a workload of their own: two billion replicas must not be two billion numbers here.
_MOST_MISSING = 5000
_ALIKE: Mapping[str, str] = {}


class Make(NamedTuple):
    """What replicas must have in common to be learnt from together.

    Attributes:
        version: Hash of the template that they were made from; "" = not known.
        hardware: What their node calls its GPUs; "" = none, or not known.
    """

    version: str = ""
    hardware: str = ""

    def __str__(self) -> str:
        """Return VERSION on HARDWARE, without what is not known."""
        return f"{self.version} on {self.hardware}" if self.hardware else self.version


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The count that the workload is set to.

    Attributes:
        replicas: spec.replicas; None = not known.
        at_s: When it was last seen to change.
        tells_pods: Whether its pods can be told; where they cannot (a scale without a selector), what is ordered
            counts as Ready.
    """

    replicas: int | None
    at_s: float
    tells_pods: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Who is there.

    Attributes:
        fleet: As counts.
        pods: Live pods (not ended) by name.
        names: Name of the pod at each address; an address that two pods share names neither.
        stuck: Pods that hold a place of the order and cannot come up by waiting.
        missing: Replicas ordered for which there is no pod yet; they count as starting, 5,000 of them at most.
        unseen: The rest of them: nothing is decided of these, they stay ordered.
        is_mixed: Ready pods are of more than one make.
        makes: Of each Ready pod, by name.
    """

    fleet: Fleet
    pods: Mapping[str, Pod]
    names: Mapping[str, str]
    stuck: int
    missing: int
    makes: Mapping[str, Make]
    unseen: int = 0
    is_mixed: bool = False

    @property
    def ready_by_make(self) -> Mapping[Make, int]:
        """Return how many are Ready of each make."""
        return Counter(self.makes.values())


def census(pods: Iterable[Pod], order: Order, hardware: Mapping[str, str] = _ALIKE) -> Census:
    """Count.

    A place of the order is held by every pod that neither ended nor is being deleted. An order without a pod yet is
    starting since it was given; pods beyond the order (a shrink on its way, a rollout's surge) are as good as gone,
    those that start first.

    Args:
        pods: Of the workload.
        order: What it is set to.
        hardware: By node; one that is not in it has none that tells replicas apart.
    """
    if not order.tells_pods:
        return Census(fleet=Fleet(ready=order.replicas or 0), pods={}, names={}, stuck=0, missing=0, makes={})
    live = [pod for pod in pods if not pod.is_ended]
    ready = sum(pod.phase is Phase.READY for pod in live)
    stuck = sum(pod.phase is Phase.FAILED for pod in live)
    draining = sum(pod.phase is Phase.DRAINING for pod in live)
    since = sorted(pod.since_s for pod in live if pod.phase is Phase.STARTING)
    held = ready + stuck + len(since)
    without_pod = 0 if order.replicas is None else max(0, order.replicas - held)
    missing = min(without_pod, _MOST_MISSING)
    surplus = 0 if order.replicas is None else max(0, held - order.replicas)
    given_up = min(surplus, len(since))
    if given_up:
        since = since[:-given_up]
    leaving = min(surplus - given_up, ready)
    makes = {pod.name: Make(pod.version, hardware.get(pod.node, "")) for pod in live if pod.phase is Phase.READY}
    return Census(
        fleet=Fleet(
            ready=ready - leaving,
            starting_since_s=tuple(since) + (order.at_s,) * missing,
            draining=draining + given_up + leaving,
            failed=stuck,
        ),
        pods={pod.name: pod for pod in live},
        names=_names(live),
        stuck=stuck,
        missing=missing,
        makes=makes,
        unseen=without_pod - missing,
        is_mixed=len(set(makes.values())) > 1,
    )


def replicas(pods: Iterable[Pod], in_flight: Mapping[str, float]) -> tuple[Replica, ...]:
    """Return the replicas to choose victims from, with the load that the balancer saw on each."""
    return tuple(
        Replica(
            name=pod.name,
            phase=pod.phase,
            since_s=pod.since_s,
            in_flight=in_flight.get(pod.name),
            unscheduled=pod.scheduled_at_s is None,
            is_replaced=pod.cost == labels.LEAVES_FIRST,
        )
        for pod in pods
        if not pod.is_ended
    )


def order_for(desired: int, census: Census, max_replicas: int) -> int:
    """Return the count to set so that `desired` replicas serve or start, stuck pods beside them.

    count = min(max, desired + min(stuck, ready // 2) + unseen): a pod that cannot come up is replaced while others of
    its kind do come up; where none does, more of them would not help.
    """
    beside = min(census.stuck, census.fleet.ready // 2) + census.unseen
    return min(max_replicas, desired + beside) if desired else 0


def _names(live: list[Pod]) -> dict[str, str]:
    names: dict[str, str] = {}
    shared: set[str] = set()
    for pod in live:
        if not pod.address:
            continue
        if pod.address in names:
            shared.add(pod.address)
        names[pod.address] = pod.name
    for address in shared:
        del names[address]
    return names
