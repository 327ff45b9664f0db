"""`berthmaster plan --dry-run`."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.markup import escape
from rich.table import Column, Table

from berthmaster import move_words, proposal_words
from berthmaster.budgets import disruption_budgets
from berthmaster.move_goals import Proposed, Wish, proposed
from berthmaster.options import connect, json_option, kubeconfig_option, output, run
from berthmaster.view import View, watched
from binpack.controller.triage import Handling, handling
from binpack.gangs.batch import plan_with_gangs
from binpack.mig.proposals import Proposal, proposals
from binpack.repack.values import MoveBudget
from binpack.solver.instance import Budget
from binpack.wording import sentence
from fleet.clock import SystemClock
from fleet.errors import BerthmasterError
from fleet.plan import Placement, Plan
from fleet.pod import Pod


@click.command()
@click.option("--dry-run", is_flag=True, help="Required: this command never writes; the planner process does.")
@click.option("--solve-s", default=2.0, show_default=True, help="Deterministic solver time; 0 = index only.")
@click.option("--most", default=512, show_default=True, type=click.IntRange(1), help="Pods to plan together.")
@click.option("--moves", is_flag=True, help="Also propose which pods to move so that those that wait fit.")
@click.option("--free-openings", default=0, help="With --moves: free devices for this many pods more.", metavar="PODS")
@click.option("--free-seats", default=None, hidden=True)
@click.option("--free-devices", default=1, show_default=True, type=click.IntRange(1), help="Devices of each of them.")
@click.option("--empty", multiple=True, metavar="NODE", help="With --moves: empty this node; may be repeated.")
@click.option("--most-moves", default=60, show_default=True, type=click.IntRange(0), help="Pods to move at most.")
@kubeconfig_option
@json_option
def command(
    dry_run: bool,
    solve_s: float,
    most: int,
    moves: bool,
    free_openings: int,
    free_seats: str | None,
    free_devices: int,
    empty: tuple[str, ...],
    most_moves: int,
    kubeconfig: str | None,
    context: str | None,
    as_json: bool,
) -> None:
    """Plan the pods that are gated now, and print the plan without writing anything."""
    if not dry_run:
        raise click.UsageError("only --dry-run is offered: writing is the planner's, so that devices have one writer")
    if free_seats is not None:
        raise click.UsageError("--free-seats is called --free-openings now")
    if (free_openings or empty) and not moves:
        raise click.UsageError("--free-openings and --empty say what to move pods for: give --moves too")
    budget = MoveBudget(pods_per_hour=most_moves)
    wish = Wish(openings=free_openings, devices=free_devices, empty=empty, budget=budget)
    pods, plan, cuts, everyone, proposals_of_moves = run(
        _plan(solve_s, most, wish if moves else None, kubeconfig, context)
    )
    if as_json:
        document = _document(pods, plan) | {"proposals": [proposal_words.as_json(cut) for cut in cuts]}
        if moves:
            document["moves"] = [move_words.as_json(one, everyone) for one in proposals_of_moves]
        click.echo(json.dumps(document, indent=2))
    else:
        _print(pods, plan)
        words = [line for cut in cuts for line in proposal_words.lines(cut)]
        words += [line for one in proposals_of_moves for line in move_words.lines(one, everyone)]
        for line in words:
            output().print(escape(line), soft_wrap=True)


async def _plan(
    solve_s: float, most: int, wish: Wish | None, kubeconfig: str | None, context: str | None
) -> tuple[dict[str, Pod], Plan, tuple[Proposal, ...], dict[str, Pod], list[Proposed]]:
    """Return the batch, its plan, how cards could be cut for those that wait for MIG instances, all pods and moves."""
    connection = connect(kubeconfig, context)
    async with watched(connection, SystemClock()) as view:
        batch = _gated(view)[:most]
        budget = Budget(deterministic_s=solve_s, wall_s=60.0) if solve_s > 0 else None
        plan = plan_with_gangs(view.index, view.states, batch, tuple(view.pods.values()), budget)
        pods = {pod.uid: pod for pod in batch}
        cuts = proposals(view.states, [pods[unplaced.pod_uid] for unplaced in plan.unplaced])
        if wish is None:
            return pods, plan, cuts, {}, []
        if missing := [node for node in wish.empty if node not in view.states]:
            raise BerthmasterError(f"no node {', '.join(missing)}: --empty names nodes that there are")
        found = proposed(view, plan, batch, await disruption_budgets(connection), wish, budget)
        return pods, plan, cuts, dict(view.pods), found


def _gated(view: View) -> list[Pod]:
    ours = [pod for pod in view.pods.values() if handling(pod) in (Handling.PIN, Handling.STEER)]
    return sorted(ours, key=lambda pod: (-pod.priority, pod.created_at_s, pod.key))


def _document(pods: dict[str, Pod], plan: Plan) -> dict[str, Any]:
    return {
        "source": plan.source.value,
        "solve_status": plan.solve_status.value,
        "objective_milli_gpu": plan.objective,
        "bound_milli_gpu": plan.bound,
        "gap_ratio": plan.gap_ratio,
        "placements": [
            {
                "pod": pods[placement.pod_uid].key,
                "node": placement.berth.node,
                "devices": list(placement.berth.devices),
                "claimed": [list(one) for one in _claimed(placement)],
                "cost_milli_gpu": placement.score,
            }
            for placement in plan.placements
        ],
        "unplaced": [
            {
                "pod": pods[unplaced.pod_uid].key,
                "reason": unplaced.reason.value,
                "message": sentence(pods[unplaced.pod_uid], unplaced),
            }
            for unplaced in plan.unplaced
        ],
    }


def _claimed(placement: Placement) -> list[tuple[str, str, str]]:
    """Return driver, pool and name of the devices chosen for resource claims."""
    return [result.id for choice in placement.berth.choices for result in choice.allocation.results]


def _print(pods: dict[str, Pod], plan: Plan) -> None:
    console = output()
    if not pods:
        console.print("no gated pods: nothing to plan")
        return
    table = Table(
        *(Column(name, overflow="fold") for name in ("pod", "node", "devices")),
        "cost, milli-GPU",
        box=None,
        header_style="bold",
    )
    for placement in plan.placements:
        table.add_row(
            pods[placement.pod_uid].key,
            placement.berth.node,
            ",".join((*placement.berth.devices, *("/".join(one) for one in _claimed(placement)))) or "-",
            f"{placement.score:.3f}",
        )
    if plan.placements:
        console.print(table)
    for unplaced in plan.unplaced:
        pod = pods[unplaced.pod_uid]
        console.print(f"[yellow]{pod.key} waits[/] ({unplaced.reason.value}): {escape(sentence(pod, unplaced))}")
    proof = "no bound proven" if plan.bound is None else f"bound {plan.bound:z.1f}, gap {plan.gap_ratio:.2%}"
    console.print(
        f"{len(plan.placements)} placed, {len(plan.unplaced)} waiting; plan by the {plan.source.value} "
        f"(solver {plan.solve_status.value}); objective {plan.objective:z.1f} milli-GPU, {proof}"
    )
