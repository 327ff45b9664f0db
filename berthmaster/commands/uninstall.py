"""`berthmaster uninstall`."""

from __future__ import annotations

import click

from berthmaster.commands.release import finish, progress
from berthmaster.options import connect, json_option, kubeconfig_option, run
from binpack.controller.release import (
    GATE_POLICIES,
    POLICY_LAG_S,
    RECORD_POLICIES,
    Released,
    release,
    remove_policies,
)
from fleet.clock import SystemClock
from fleet.kube.client import Client


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@kubeconfig_option
@json_option
def command(yes: bool, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Leave the cluster safely: the gating policy first, then every gate we set.

    Works without a running planner. Running pods are not touched. What is left afterwards (deployments, rights,
    namespace) is removed with `kubectl delete -k manifests/base`.
    """
    if not yes:
        click.confirm("Stop gating new pods and release every gated pod of this cluster?", abort=True, err=True)
    finish(run(_uninstall(kubeconfig, context)), as_json=as_json)


async def _uninstall(kubeconfig: str | None, context: str | None) -> Released:
    clock = SystemClock()
    async with Client(connect(kubeconfig, context), clock, user_agent="berthmaster") as client:
        for path in await remove_policies(client, GATE_POLICIES):
            click.echo(f"removed {path.rpartition('/v1/')[2]}", err=True)
        result = await release(client, clock, quiet_s=POLICY_LAG_S, report=progress)
        if not result.failed:
            for path in await remove_policies(client, RECORD_POLICIES):
                click.echo(f"removed {path.rpartition('/v1/')[2]}", err=True)
        return result
