"""Reasons as sentences: what a waiting pod's condition, event and log line say."""

from __future__ import annotations

from fleet import labels
from fleet.device import AskKind
from fleet.plan import Reason, Shortfall, Unplaced
from fleet.pod import Pod

_GIB = 2**30


_LONGEST = 900


def plain(text: str) -> str:
    """Return text from outside as one printable line of a sane length: it ends in conditions, logs and terminals."""
    cut = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in cut)


def needs(pod: Pod) -> str:
    """Return what the pod asks for, for people: '2 free G2 devices on one node, 12 cores and 64 GiB'."""
    return plain(_needs(pod))


def _needs(pod: Pod) -> str:
    parts: list[str] = []
    ask = pod.ask
    if ask is not None:
        kind = "/".join(ask.models) + " " if ask.models else ""
        if ask.alternatives:
            parts.append(" or ".join(f"{one.count} free {one.model}" for one in ask.alternatives) + " on one node")
        elif ask.kind is AskKind.PARTITION:
            parts.append(f"a MIG instance {ask.profile} of one {kind}device")
        elif ask.kind is AskKind.SHARE:
            share = [f"{ask.milli_gpu} milli-GPU"] if ask.milli_gpu else []
            share += [f"{ask.memory_mib} MiB"] if ask.memory_mib else []
            parts.append(f"{' and '.join(share)} on {plural(ask.count, f'{kind}device')}")
        else:
            place = "island" if ask.is_one_island else "node"
            parts.append(f"{plural(ask.count, f'free {kind}device')} on one {place}")
    if pod.requests.milli_cpu or not parts:
        parts.append(amount("milli_cpu", pod.requests.milli_cpu))
    if pod.requests.memory_bytes:
        parts.append(amount("memory_bytes", pod.requests.memory_bytes))
    counted = ask is not None and ask.kind is AskKind.CLASSIC
    parts += [
        amount(name, value) for name, value in pod.requests.extended if not (counted and name == labels.NVIDIA_GPU)
    ]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def amount(resource: str, value: int) -> str:
    """Return one amount with its unit as a person writes it."""
    match resource:
        case "milli_cpu":
            return f"{value / 1000:g} core{'s' if value != 1000 else ''}"
        case "memory_bytes":
            return f"{value / _GIB:.3g} GiB" if value >= _GIB // 10 else f"{value} bytes"
        case "pod_slots":
            return plural(value, "pod slot")
        case "devices":
            return plural(value, "free device")
        case "milli_gpu":
            return f"{value} milli-GPU"
        case "gpu_memory_mib":
            return f"{value} MiB of device memory"
        case _:
            return f"{value} {resource}"


def plural(count: int, noun: str) -> str:
    """Return '1 device', '2 devices'."""
    return f"{count} {noun}{'s' if count != 1 else ''}"


def lacks(shortfall: Shortfall) -> str:
    """Return 'best node n0173 lacks 4 cores': the smallest change that would help."""
    names = {name for name, _ in shortfall.missing}
    said_twice = labels.NVIDIA_GPU if "devices" in names else ""  # a classic node's cards and their count are one thing
    missing = " and ".join(amount(name, value) for name, value in shortfall.missing if name != said_twice)
    return f"best node {shortfall.node} lacks {missing or 'nothing any more'}"


def sentence(pod: Pod, unplaced: Unplaced) -> str:
    """Return why the pod waits, with the numbers; stable for equal causes, so that events can be counted."""
    return plain(_sentence(pod, unplaced))


def _sentence(pod: Pod, unplaced: Unplaced) -> str:
    match unplaced.reason:
        case Reason.NO_NODES:
            return "the cluster has no nodes"
        case Reason.NO_NODE_ALLOWED:
            return f"no node is allowed: {unplaced.detail or 'selector, affinity, taints or cordon exclude all'}"
        case (
            Reason.NO_SUCH_DEVICE
            | Reason.INSUFFICIENT
            | Reason.NO_WARM_NODE
            | Reason.HOST_PORT
            | Reason.TOPOLOGY_SPREAD
            | Reason.POD_AFFINITY
            | Reason.POD_ANTI_AFFINITY
        ):
            text = f"needs {needs(pod)}"
            if unplaced.shortfall is not None and unplaced.reason is not Reason.NO_WARM_NODE:
                return f"{text}: {lacks(unplaced.shortfall)}"
            return f"{text}: {unplaced.detail or 'no allowed node has it'}"
        case Reason.NO_LEGAL_START:
            return f"needs {needs(pod)}: {unplaced.detail}"
        case Reason.CLAIM_UNSATISFIED | Reason.CLAIM_PENDING | Reason.LEFT_TO_SCHEDULER | Reason.VOLUME:
            return _of_claims(pod, unplaced)
        case Reason.MALFORMED:
            return f"cannot be read: {unplaced.detail or '; '.join(pod.problems)}"
        case Reason.UNMODELLED_CONSTRAINT:
            return f"has a constraint that is not planned yet: {unplaced.detail or ', '.join(pod.unmodelled)}"
        case Reason.FOREIGN_GATE:
            return f"is held by another gate: {unplaced.detail}"
        case Reason.GANG_INCOMPLETE | Reason.GANG_DOES_NOT_FIT | Reason.SEAT_AWAITED:
            return unplaced.detail
        case Reason.PLANNER_FAULT:
            return f"could not be planned by a fault of the planner, which tries again: {unplaced.detail}"


def _of_claims(pod: Pod, unplaced: Unplaced) -> str:
    if unplaced.reason is Reason.CLAIM_UNSATISFIED:
        return f"needs {needs(pod)} and devices for its resource claims: {unplaced.detail}"
    if unplaced.reason is Reason.VOLUME:
        return f"waits for its volumes: {unplaced.detail}"
    if unplaced.reason is Reason.CLAIM_PENDING:
        return f"waits for its resource claims: {unplaced.detail}"
    return f"left to kube-scheduler, un-pinned: {unplaced.detail}"
