"""`python -m binpack extender|planner`: the two processes, wiring only."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import click

from fleet.errors import BerthmasterError
from fleet.loop import run_process
from fleet.telemetry import configure_logging

SETTINGS_PREFIX = "BERTHMASTER_SETTING"

_kubeconfig = click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig; $KUBECONFIG or the pod's account by default."
)
_log_level = click.option(
    "--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"])
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Berthmaster's processes. People use `berthmaster`; these run in pods or under `berthmaster up`."""


@main.command()
@_kubeconfig
@click.option("--listen", default="127.0.0.1:8610", show_default=True, help="HOST:PORT for the scheduler: loopback.")
@click.option("--metrics-listen", default="", help="HOST:PORT for probes and metrics alone.")
@_log_level
def extender(kubeconfig: str | None, listen: str, metrics_listen: str, log_level: str) -> None:
    """Answer kube-scheduler's extender calls: verify pins, steer by candidates."""
    from binpack.extender_service import run_extender

    _run(log_level, lambda: run_extender(kubeconfig=kubeconfig, listen=listen, metrics_listen=metrics_listen))


@main.command()
@_kubeconfig
@click.option("--listen", default="127.0.0.1:8611", show_default=True, help="HOST:PORT for probes and metrics.")
@click.option("--hand-over-after-s", type=float, help="Wait of a whole-GPU or CPU pod before an autoscaler sees it.")
@click.option("--solve-s", type=float, help="Deterministic solver time per batch; 0 = index only.")
@_log_level
def planner(
    kubeconfig: str | None, listen: str, hand_over_after_s: float | None, solve_s: float | None, log_level: str
) -> None:
    """Plan gated pods, pin them, and speak for those that wait; one of several replicas leads.

    Settings can come from the environment too: BERTHMASTER_SETTING_HAND_OVER_AFTER_S=60,
    BERTHMASTER_SETTING_BATCH_LONGEST_S=0.5 and so on.
    """
    from binpack.controller.service import run_planner

    flags = {"hand_over_after_s": hand_over_after_s, "solve_s": solve_s}
    _run(
        log_level,
        lambda: run_planner(
            kubeconfig=kubeconfig, listen=listen, environment=dict(os.environ), prefix=SETTINGS_PREFIX, flags=flags
        ),
    )


def _run(log_level: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    configure_logging(log_level)
    sys.exit(run_process(work))


if __name__ == "__main__":
    try:
        main()
    except BerthmasterError as error:
        click.echo(f"binpack: {error}", err=True)
        sys.exit(1)
