"""A pod's start as the API shows it, and what the kubelet's events tell of its pulls. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

import msgspec

from fleet import labels
from fleet.draw import Draw, read_draw
from fleet.kube.objects import PodSpecObject
from warmpool.starts.parts import Moments, Ran

# kubelet, pkg/kubelet/images: `Successfully pulled image "x" in 1.5s (2s including waiting). Image size: 1 bytes.`
_PULLED = re.compile(r"Successfully pulled image .* in (?P<alone>\S+)(?: \((?P<all>\S+) including waiting\))?")
_PART = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>h|ms|m|s|us|µs|ns)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_LONGEST_TEXT = 1024


class _Part(msgspec.Struct, rename="camel", gc=False):
    """Base of the parts read."""


class StateTimes(_Part):
    """running or terminated of a container's state."""

    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(_Part):
    """state of a container."""

    running: StateTimes | None = None
    terminated: StateTimes | None = None


class ContainerStatus(_Part):
    """containerStatuses[] and initContainerStatuses[]."""

    name: str = ""
    state: ContainerState | None = None


class StartCondition(_Part):
    """conditions[] of a pod, with its time."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class StartStatus(_Part):
    """status of a pod, as far as it tells of its start."""

    phase: str | None = None
    conditions: list[StartCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class StartMeta(_Part):
    """metadata of a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None


class StartPod(_Part):
    """A v1 Pod, as far as it tells of its start."""

    metadata: StartMeta = msgspec.field(default_factory=StartMeta)
    spec: PodSpecObject = msgspec.field(default_factory=PodSpecObject)
    status: StartStatus | None = None

    @property
    def draw(self) -> Draw | None:
        """Return how its draw from a pool ended; None = it needed none."""
        return read_draw((self.metadata.annotations or {}).get(labels.DRAW, ""))


def moments_of(
    created: str | None, spec: PodSpecObject, status: StartStatus | None, notes: dict[str, str] | None
) -> Moments | None:
    """Return the moments of a pod's start; None = nobody can tell when it was created."""
    created_s = epoch_s(created)
    if created_s is None:
        return None
    status = status or StartStatus()
    true_s = {c.type: epoch_s(c.last_transition_time) for c in status.conditions or () if c.status == "True"}
    states = {one.name: one for one in status.init_container_statuses or ()}
    inits = [one.name for one in spec.init_containers or () if one.restart_policy != "Always"]
    loader = (notes or {}).get(labels.WEIGHTS_CONTAINER, "")
    return Moments(
        created_s=created_s,
        bound_s=true_s.get("PodScheduled"),
        sandbox_s=true_s.get("PodReadyToStartContainers"),
        inits=tuple(_ran(states.get(name) or ContainerStatus(name=name)) for name in inits),
        mains=tuple(_ran(one) for one in status.container_statuses or ()),
        weights_s=true_s.get(labels.WEIGHTS_CONDITION),
        ready_s=true_s.get("Ready"),
        weight_loaders=frozenset(name.strip() for name in loader.split(",") if name.strip()),
    )


def pulls_s(messages: Iterable[str]) -> tuple[float, ...]:
    """Return how long each pull took that a kubelet's events (reason Pulled) tell of; an image that was there took 0.

    The time in the queue of other pulls counts: the container waited for it.
    """
    found: list[float] = []
    for message in messages:
        match = _PULLED.match(message[:_LONGEST_TEXT])
        if match is not None:
            found.append(_seconds(match["all"] or match["alone"]))
        elif "already present on machine" in message:
            found.append(0.0)
    return tuple(found)


def epoch_s(text: str | None) -> float | None:
    """Return an RFC 3339 time in seconds since the epoch; None where it is none."""
    try:
        moment = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def _ran(status: ContainerStatus) -> Ran:
    state = status.state or ContainerState()
    times = state.terminated or state.running or StateTimes()
    ended = state.terminated.finished_at if state.terminated else None
    return Ran(name=status.name, started_s=epoch_s(times.started_at), ended_s=epoch_s(ended))


def _seconds(text: str) -> float:
    """Return a Go duration, "1m2.5s", in seconds; 0 where it is none."""
    return sum(float(part["number"]) * _UNIT_S[part["unit"]] for part in _PART.finditer(text))
