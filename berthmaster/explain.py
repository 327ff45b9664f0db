"""Where a pod is and why there, what else was feasible and at which cost, or why nowhere. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from berthmaster.explain_claims import devices_of, held, keeping_away
from berthmaster.waiting_reasons import meaning_of
from binpack.fit import mismatch, missing
from binpack.index import Index
from binpack.state import NodeState
from binpack.wording import amount, needs, sentence
from fleet import labels
from fleet.constraints import Requirement
from fleet.plan import Placement, Unplaced
from fleet.pod import Berth, Pod


class Standing(Enum):
    """Where the pod stands on its way."""

    BOUND = "bound"
    PINNED = "pinned"
    STEERED = "steered"
    WAITING = "waiting"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A feasible berth: cost is the potential it takes away, in milli-GPU; lower is better.

    `devices` are those of resource claims as well, the latter with their pool where it is not the node's own.
    """

    node: str
    devices: tuple[str, ...]
    cost: float
    is_taken: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The condition of a pod that waits, or that was steered.

    Attributes:
        reason: As written, a `Reason` where this command is as new as the planner.
        text: With the numbers.
        since: When its status changed last, as the API writes times; "" = it does not say.
    """

    reason: str
    text: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer of `berthmaster explain`.

    Attributes:
        berth: Where it is or is pinned to; its devices as those of an option.
        options: Feasible berths with the pod itself lifted out of the cluster, cheapest first.
        feasible_nodes: How many nodes could take it.
        excluded: Why the other nodes cannot, with the number of nodes for each reason.
        said: What the planner has said of it; None = nothing.
        reason: Why it has no berth, or was steered: as said, else as found now; "" = it has one.
        means: That reason in words; "" where it is none that this command knows.
        helps: What helps against it.
    """

    pod: str
    standing: Standing
    needs: str
    berth: Berth | None
    why: str
    options: tuple[Option, ...]
    feasible_nodes: int
    excluded: tuple[tuple[str, int], ...]
    said: Said | None
    reason: str
    means: str
    helps: str


def standing(pod: Pod) -> Standing:
    """Return where the pod stands."""
    if not pod.is_live:
        return Standing.FINISHED
    if pod.node_name:
        return Standing.BOUND
    if pod.pinned_node and not pod.gates:
        return Standing.PINNED
    return Standing.STEERED if pod.candidates and not pod.gates else Standing.WAITING


def berth_of(pod: Pod) -> Berth | None:
    """Return the berth the pod holds or is pinned to, None if it has none."""
    node = pod.node_name or ("" if pod.gates else pod.pinned_node)
    if not node:
        return None
    if pod.devices is not None:
        return Berth(node=node, devices=pod.devices)
    return next((berth for berth in pod.candidates if berth.node == node), Berth(node=node))


def unpinned(pod: Pod) -> Pod:
    """Return the pod as it was before it was pinned: the planner added the same node name to every term."""
    terms = pod.constraints.terms
    if not pod.is_pin_ours or terms is None:
        return pod
    pin = Requirement(key=labels.NODE_NAME_FIELD, operator="In", values=(pod.pinned_node,))
    own = tuple(replace(term, fields=tuple(field for field in term.fields if field != pin)) for term in terms)
    is_pin_alone = len(own) == 1 and not own[0].labels and not own[0].fields
    constraints = replace(pod.constraints, terms=None if is_pin_alone else own)
    return replace(pod, constraints=constraints, pinned_node="")


def explain(
    pod: Pod, index: Index, states: Mapping[str, NodeState], most: int, said: Said | None = None
) -> Explanation:
    """Return the explanation.

    Args:
        pod: The pod in question.
        index: With the pod itself lifted out, so that its own berth is free, devices of its claims included.
        states: The same picture, by node name.
        most: How many options to list.
        said: What the planner has said of the pod.
    """
    desk, berth = index.desk, berth_of(pod)
    if berth is not None and desk is not None and pod.resource_claims:
        berth = replace(berth, devices=(*berth.devices, *held(desk, pod, berth.node)))
    pod = unpinned(pod)
    answer = index.place(pod)
    ranked = _ranked(index, pod, max(most, 1)) if isinstance(answer, Placement) else []
    options = tuple(
        Option(
            node=option.berth.node,
            devices=devices_of(desk, pod, option.berth),
            cost=round(option.score, 3),
            is_taken=berth is not None and option.berth.node == berth.node,
        )
        for option in ranked
    )
    reasons: Counter[str] = Counter()
    against, keeps_away = index.company.against(pod), keeping_away(desk, pod)
    for name, state in states.items():
        reasons[_exclusion(pod, state) or against.get(name, "") or keeps_away(name)] += 1
    feasible = reasons.pop("", 0)
    reason = _reason(berth, answer, said)
    meaning = meaning_of(reason)
    return Explanation(
        pod=pod.key,
        standing=standing(pod),
        needs=needs(pod) + (" and devices for its resource claims" if pod.resource_claims else ""),
        berth=berth,
        why=_why(pod, berth, options, answer),
        options=options,
        feasible_nodes=feasible,
        excluded=tuple(reasons.most_common()),
        said=said,
        reason=reason,
        means=meaning.says if meaning is not None else "",
        helps=meaning.helps if meaning is not None else "",
    )


def _ranked(index: Index, pod: Pod, most: int) -> list[Placement]:
    """Return berths, cheapest first; those for claims are looked for on a few more nodes at every question."""
    before, found = -1, index.options(pod, most)
    while pod.resource_claims and before < len(found) < most:
        before, found = len(found), index.options(pod, most)
    return found


def _reason(berth: Berth | None, answer: Placement | Unplaced, said: Said | None) -> str:
    """Return why the pod has no berth; what was said counts: the planner knows gangs, seats and gates as well."""
    if said is not None:
        return said.reason
    return answer.reason.value if berth is None and isinstance(answer, Unplaced) else ""


def _exclusion(pod: Pod, state: NodeState) -> str:
    rule = mismatch(pod, state.node)
    if rule is not None:
        return rule.value
    lacking = missing(pod, state)
    return f"lacks {_kind(lacking[0][0])}" if lacking else ""


def _kind(resource: str) -> str:
    return {
        "milli_cpu": "CPU",
        "memory_bytes": "memory",
        "pod_slots": "pod slots",
        "devices": "free devices",
        "milli_gpu": "milli-GPU on one device",
        "gpu_memory_mib": "memory on one device",
    }.get(resource, resource)


def _why(pod: Pod, berth: Berth | None, options: tuple[Option, ...], answer: Placement | Unplaced) -> str:
    if pod.problems:
        return f"it cannot be read: {'; '.join(pod.problems)}"
    if pod.seat is not None:
        return f"a berth on {pod.seat.node} is kept for it: it is pinned there once whoever holds it still has left"
    if isinstance(answer, Unplaced):
        return sentence(pod, answer)
    best = options[0] if options else None
    if berth is None:
        but = ", but for its volume claims, which its condition tells of" if pod.claims else ""
        if pod.gang and pod.gates:
            but = f", but its gang {pod.gang} is placed as a whole or not at all: its condition tells how that stands"
        return f"it could go to {best.node} now{but}" if best else "no node can take it"
    taken = next((option for option in options if option.is_taken), None)
    if taken is None:
        return (
            "its berth is not among the cheapest for the cluster as it is now; it was chosen for the cluster as it was"
        )
    if best is not None and taken.cost <= best.cost:
        return f"no berth costs less: {amount_text(taken.cost)}"
    cheapest = f"{best.node} at {amount_text(best.cost)}" if best else "none"
    return f"it costs {amount_text(taken.cost)} now; cheaper is {cheapest}, which was not free or not cheapest then"


def amount_text(cost: float) -> str:
    """Return a cost with its unit."""
    return amount("milli_gpu", round(cost)) if abs(cost) >= 1 else f"{cost:.3f} milli-GPU"
