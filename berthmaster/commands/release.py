"""`berthmaster release`."""

from __future__ import annotations

import json
import sys

import click

from berthmaster.options import connect, json_option, kubeconfig_option, run
from binpack.controller.release import Released, release
from binpack.wording import plural
from fleet.clock import SystemClock
from fleet.kube.client import Client


@click.command()
@click.option("--all", "is_all", is_flag=True, help="Every namespace.")
@click.option("-n", "--namespace", help="One namespace.")
@kubeconfig_option
@json_option
def command(is_all: bool, namespace: str | None, kubeconfig: str | None, context: str | None, as_json: bool) -> None:
    """Remove our scheduling gate from pods without planning them, so that kube-scheduler takes them as they are.

    For a planner that is down for long. Pods created later are gated again; `berthmaster uninstall` ends that too.
    """
    if is_all == bool(namespace):
        raise click.UsageError("say either --all or --namespace")
    finish(run(_release(namespace, kubeconfig, context)), as_json=as_json)


async def _release(namespace: str | None, kubeconfig: str | None, context: str | None) -> Released:
    clock = SystemClock()
    async with Client(connect(kubeconfig, context), clock, user_agent="berthmaster") as client:
        return await release(client, clock, namespace=namespace, report=progress)


def progress(done: int, found: int) -> None:
    """Show how far a release is."""
    click.echo(f"released {done} of {plural(found, 'pod')}", err=True)


def finish(result: Released, *, as_json: bool) -> None:
    """Print how a release ended; exit with status 1 where pods are left gated."""
    if as_json:
        shown = {"released": result.released, "failed": dict(result.failed), "others": dict(result.others)}
        click.echo(json.dumps(shown))
    else:
        click.echo(f"{plural(result.released, 'pod')} released")
        for pod, fate in result.others:
            click.echo(f"not released: {pod} {fate}", err=True)
        for pod, detail in result.failed:
            click.echo(f"still gated: {pod}: {detail}", err=True)
    if result.failed:
        sys.exit(1)
