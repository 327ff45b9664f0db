"""Cards that nobody holds anything of, and how to cut them for the pods that wait for an instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from binpack import fit
from binpack.mig.layouts import best_layout
from binpack.state import DeviceState, NodeState
from fleet import labels
from fleet.device import AskKind, Device, Partition
from fleet.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """How to cut one card.

    Attributes:
        pods: namespace/name of those whom the instances would serve, in the order of the instances.
        turns_mode_on: The card is not in MIG mode now: the driver resets it, and shares and whole devices lose it.
        commands: For a shell on the node, but the last one, which tells the planner.
    """

    node: str
    device: str
    partitions: tuple[Partition, ...]
    pods: tuple[str, ...]
    turns_mode_on: bool
    commands: tuple[str, ...]


def proposals(states: Mapping[str, NodeState], waiting: Iterable[Pod], most: int = 8) -> tuple[Proposal, ...]:
    """Return which empty cards to cut anew, and how, for pods that wait for MIG instances.

    One card after another, each time the one that serves most memory slices of what still waits, cards in MIG mode
    before others. CPU, memory and rules of a node are asked of each pod alone: the proposal opens places, and the
    planner decides who gets them.

    Args:
        states: By node name.
        waiting: Pods without a place; others than those that ask for an instance are left out.
        most: How many cards.
    """
    left = [pod for pod in waiting if pod.ask is not None and pod.ask.kind is AskKind.PARTITION]
    cards = [
        (state, device)
        for _, state in sorted(states.items())
        if state.node.is_sharing and not state.blocked
        for device in state.devices
        if device.users == 0 and device.device.is_healthy and device.device.partitions != ()
    ]
    found: list[Proposal] = []
    while left and len(found) < most:
        offers = [(card, offer) for card in cards if (offer := _offer(*card, left)) is not None]
        if not offers:
            break
        card, (proposal, _) = min(offers, key=lambda one: (one[1][0].turns_mode_on, -one[1][1]))
        found.append(proposal)
        cards.remove(card)
        left = [pod for pod in left if pod.key not in proposal.pods]
    return tuple(found)


def _offer(state: NodeState, device: DeviceState, waiting: Sequence[Pod]) -> tuple[Proposal, int] | None:
    """Return what this card could be made into, and how many memory slices that serves."""
    card = device.device
    able = [pod for pod in waiting if _may_go_there(pod, state, card)]
    layout = best_layout(card.model, card.memory_mib, Counter(pod.ask.profile for pod in able if pod.ask is not None))
    if layout is None or layout.partitions == tuple(one.place for one in card.partitions or ()):
        return None
    served: list[str] = []
    for partition in layout.partitions:
        is_for = (pod.key for pod in able if pod.ask and pod.ask.profile == partition.profile and pod.key not in served)
        served.append(next(is_for))
    return (
        Proposal(
            node=state.node.name,
            device=card.id,
            partitions=layout.partitions,
            pods=tuple(served),
            turns_mode_on=card.partitions is None,
            commands=_commands(state, card, layout.partitions),
        ),
        layout.slices,
    )


def _may_go_there(pod: Pod, state: NodeState, card: Device) -> bool:
    is_wanted = pod.ask is not None and fit.model_rank(pod.ask, card.model) is not None
    return is_wanted and fit.mismatch(pod, state.node) is None and not state.free.lacks(pod.requests)


def _commands(state: NodeState, card: Device, partitions: Sequence[Partition]) -> tuple[str, ...]:
    instances = ",".join(f"{one.profile}:{one.start}" for one in partitions)
    mine = f"{card.id}={','.join(f'{one.profile}@{one.start}' for one in partitions)}"
    others = [_note(device.device) for device in state.devices if device.device.id != card.id]
    note = ";".join([*(other for other in others if other), mine])
    clear = [f"nvidia-smi mig -i {card.id} -dci", f"nvidia-smi mig -i {card.id} -dgi"]
    return (
        *(clear if card.partitions is not None else [f"nvidia-smi -i {card.id} -mig 1"]),
        f"nvidia-smi mig -i {card.id} -cgi {instances} -C",
        f"kubectl annotate node {state.node.name} --overwrite '{labels.MIG_DEVICES}={note}'",
    )


def _note(device: Device) -> str:
    """Return what the annotation says of a device already; "" = nothing."""
    if device.partitions is None:
        return ""
    listed = ",".join(f"{one.profile}@{one.start}{f':{one.uuid}' if one.uuid else ''}" for one in device.partitions)
    return f"{device.id}={listed}" if listed else device.id
