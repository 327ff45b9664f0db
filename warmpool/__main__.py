"""`python -m warmpool controller`: the process of the warm pool, wiring only."""

from __future__ import annotations

import os
import sys

import click

from fleet.errors import BerthmasterError
from fleet.loop import run_process
from fleet.telemetry import configure_logging

SETTINGS_PREFIX = "BERTHMASTER_WARMPOOL"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The warm pool's process. People use `berthmaster`; this runs in pods."""


@main.command()
@click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Kubeconfig; $KUBECONFIG or the pod's account by default."
)
@click.option("--listen", default="127.0.0.1:8615", show_default=True, help="HOST:PORT for probes and metrics.")
@click.option("--kwok/--no-kwok", default=None, help="Play the cloud of pools with provider kwok: local clusters only.")
@click.option(
    "--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"])
)
def controller(kubeconfig: str | None, listen: str, kwok: bool | None, log_level: str) -> None:
    """Keep nodes proven warm for every WarmPool; one of several replicas leads.

    Settings come from the environment: BERTHMASTER_WARMPOOL_PERIOD_S=10, BERTHMASTER_WARMPOOL_KWOK_TIME_SCALE=60 and
    so on.
    """
    from warmpool.controller.service import run_controller

    configure_logging(log_level)
    sys.exit(
        run_process(
            lambda: run_controller(
                kubeconfig=kubeconfig,
                listen=listen,
                environment=dict(os.environ),
                prefix=SETTINGS_PREFIX,
                flags={"kwok.is_enabled": kwok},
            )
        )
    )


if __name__ == "__main__":
    try:
        main()
    except BerthmasterError as error:
        click.echo(f"warmpool: {error}", err=True)
        sys.exit(1)
