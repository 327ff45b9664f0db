"""Proposed moves, as a person reads them and as a machine does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from berthmaster.move_goals import Proposed
from binpack.repack.values import MovePlan, MoveReason
from binpack.wording import plural
from fleet.pod import Berth, Pod


def as_json(one: Proposed, pods: Mapping[str, Pod]) -> dict[str, Any]:
    """Return one goal's moves for `--json`."""
    plan = one.plan
    return {
        "goal": one.title,
        "verdict": plan.verdict.value,
        "detail": plan.detail,
        "moves": [
            {
                "pod": _name(pods, move.pod_uid),
                "from": _berth(move.source),
                "to": _berth(move.target),
                "reason": move.reason.value,
                "gain_milli_gpu": move.gain_milli,
            }
            for move in plan.moves
        ],
        "placements": [
            {"pod": _name(pods, placement.pod_uid)} | _berth(placement.berth) for placement in plan.placements
        ],
        "unplaced": [
            {"pod": _name(pods, unplaced.pod_uid), "reason": unplaced.reason.value} for unplaced in plan.unplaced
        ],
        "freed_devices": plan.freed_devices,
        "freed_nodes": list(plan.freed_nodes),
        "objective_milli_gpu": plan.objective,
        "bound_milli_gpu": plan.bound,
        "gap_ratio": plan.gap_ratio,
        "solve_status": plan.solve_status.value,
    }


def lines(one: Proposed, pods: Mapping[str, Pod]) -> Iterator[str]:
    """Yield what is proposed, line by line, the moves in the order in which each has room."""
    plan = one.plan
    yield f"{one.title}: {plan.verdict.value} ({plan.detail})"
    for number, move in enumerate(plan.moves, start=1):
        yield (
            f"  {number}. {_name(pods, move.pod_uid)}: {_text(move.source)} -> {_text(move.target)}  "
            f"{move.reason.value}, gain {move.gain_milli:+z.0f} milli-GPU"
        )
    for placement in plan.placements:
        yield f"  then {_name(pods, placement.pod_uid)} fits on {_text(placement.berth)}"
    yield f"  {_proof(plan)}"


def _proof(plan: MovePlan) -> str:
    solver = f"solver {plan.solve_status.value}"
    if not plan.moves:
        return f"no moves ({solver})"
    proof = "no bound proven" if plan.bound is None else f"bound {plan.bound:z.1f}, gap {plan.gap_ratio:.2%}"
    moves = plural(len(plan.moves), "move")
    return f"{moves}, {_freed(plan)}; objective {plan.objective:z.1f} milli-GPU, {proof} ({solver})"


def _freed(plan: MovePlan) -> str:
    """Say how many devices more nobody uses; where whole ones change nodes it is none, and yet openings are gained."""
    if plan.freed_devices:
        devices = plural(abs(plan.freed_devices), "device")
        return f"{devices} {'more' if plan.freed_devices > 0 else 'fewer'} that nobody uses"
    is_gathered = any(move.reason is MoveReason.FREES_DEVICES for move in plan.moves)
    return "as many free devices as before" + (", more of them on one node" if is_gathered else "")


def _name(pods: Mapping[str, Pod], uid: str) -> str:
    return pods[uid].key if uid in pods else uid


def _berth(berth: Berth) -> dict[str, Any]:
    claimed = [list(result.id) for choice in berth.choices for result in choice.allocation.results]
    return {"node": berth.node, "devices": list(berth.devices), "claimed": claimed}


def _text(berth: Berth) -> str:
    claimed = ("/".join(result.id) for choice in berth.choices for result in choice.allocation.results)
    devices = ",".join((*berth.devices, *claimed))
    return f"{berth.node}[{devices}]" if devices else berth.node
